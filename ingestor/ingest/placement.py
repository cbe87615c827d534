"""Where to go on in a partition, asked of the table and of Kafka before a single record of it is read.

Runs on a route's storage thread, after whatever is landing there, so the ledger it reads is the newest. Refuses to
start a partition whose rows somebody else's txns account for, and to go on where Kafka has lost what the table needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ingestor import ledger
from ingestor.errors import DataLossError, Fenced, Unavailable
from ingestor.ledger import Gap, Placement, txn_before
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from ingestor.ingest.committer import Committer
    from ingestor.kafka.broker import Watermarks


_SHOWN = 3  # of many gaps an error names so many


class Cluster(Protocol):
    """What placement needs to know of Kafka."""

    def topics(self) -> dict[str, int]:
        """Return every topic and its number of partitions."""

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return the partitions' watermarks."""

    def offsets_at(self, tps: Collection[TopicPartition], moment: datetime) -> dict[TopicPartition, int]:
        """Return each partition's first offset at or after a moment."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topics' ids, as far as they are known."""

    def first_readable(self, tp: TopicPartition, damaged: int, end: int) -> int:
        """Return the first offset behind a damaged batch, at most `end`, from which the partition can be read."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Partitions that can be read from now on."""

    txns: Mapping[TopicPartition, int | None]
    placements: Mapping[TopicPartition, Placement]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Placer:
    """Places the partitions of one route."""

    route: str
    table_uri: str
    committer: Committer
    cluster: Cluster
    skip_lost: bool  # on_data_loss: skip
    on_look: Callable[[Placed], None] = lambda _placed: None  # told of what is then refused, too

    def place(self, tps: Collection[TopicPartition], damaged: Mapping[TopicPartition, int] | None = None) -> Placed:
        """Return where to go on in each partition; raise if that would lose or repeat records.

        `damaged` tells for partitions at which offset a batch fails its checksum: they go on behind it.
        """
        txns = self.committer.read(tps)
        self.refuse(tps)
        ids = self.cluster.topic_ids({tp.topic for tp in tps})
        marks = self.cluster.watermarks(tps)
        placements = {
            tp: ledger.place(
                tp,
                txns[tp],
                low=marks[tp].low,
                high=marks[tp].high,
                recreated=self.committer.recreated(tp, ids.get(tp.topic)),
            )
            for tp in tps
        }
        for tp, offset in (damaged or {}).items():
            placements[tp] = self._behind(tp, placements[tp], offset, marks[tp].high)
        placed = Placed(txns, placements, ids)
        self.on_look(placed)
        self.refuse_loss(placements)
        return placed

    def _behind(self, tp: TopicPartition, placement: Placement, damaged: int, end: int) -> Placement:
        """Pass over a damaged batch, if it is what would be read next."""
        if placement.gap is not None or placement.position < damaged or placement.position >= end:
            return placement
        position = self.cluster.first_readable(tp, placement.position, end)
        return Placement(position, position, Gap(tp, placement.position, position - 1, "corrupt"))

    def refuse_loss(self, placements: Mapping[TopicPartition, Placement]) -> None:
        """Refuse to pass over what Kafka no longer has, unless the route says so."""
        gaps = [placement.gap for placement in placements.values() if placement.gap is not None]
        if gaps and not self.skip_lost:
            shown = "; ".join(str(gap) for gap in gaps[:_SHOWN]) + ("; …" if len(gaps) > _SHOWN else "")
            msg = f"route {self.route}: Kafka no longer has what table {self.table_uri} needs next: {shown}"
            raise DataLossError(
                msg,
                hint=(
                    "bring the records back, or accept the loss with on_data_loss: skip for one start, or choose the "
                    "next offset with `ingestor offsets CONFIG --set`; for a recreated topic take a new table"
                ),
            )

    def refuse(self, tps: Collection[TopicPartition]) -> None:
        """Refuse partitions that the guards do not let pass, before a single record of them is read."""
        try:
            self.committer.check_guards(tps)
        except Fenced as fenced:
            raise Unavailable(str(fenced)) from None


def first_positions(
    topics: Collection[str],
    *,
    explicit: bool,
    start: str | datetime,
    known: Mapping[TopicPartition, int],
    first_run: bool,
    cluster: Cluster,
) -> dict[TopicPartition, int]:
    """Return the txns to write before the first poll of a route that does not start at the earliest record.

    A partition without a txn counts as one that appeared later, and is read from its start. So whatever is there
    when `start` applies gets its txn before anything is read: every partition of topics of which nothing was ever
    committed. With a regex only on the table's first run, since a new topic that matches later did appear later.
    An explicit topic that does not exist yet gets a marker: when it appears, it is read from its start.
    """
    if start == "earliest" or not (explicit or first_run):
        return {}
    begun = {tp.topic for tp in known}
    existing = cluster.topics()
    new = [topic for topic in topics if topic not in begun]
    tps = [TopicPartition(topic, number) for topic in new for number in range(existing.get(topic, 0))]
    if start == "latest":
        positions = {tp: marks.stable for tp, marks in cluster.watermarks(tps).items()}
    else:
        positions = cluster.offsets_at(tps, start)  # type: ignore[arg-type]
    markers = {TopicPartition(topic, 0): 0 for topic in new if topic not in existing} if explicit else {}
    return {tp: txn_before(position) for tp, position in (positions | markers).items()}
