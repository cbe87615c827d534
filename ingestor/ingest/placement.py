"""Placement: where to continue in a partition, decided from the table and Kafka before any record is read.

It runs on the route's storage thread, behind the commit under way, so it reads the newest ledger. It refuses a
partition whose rows belong to foreign txns, and one of which Kafka no longer has what the table needs next.
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


_SHOWN = 3  # gaps that an error names


class Cluster(Protocol):
    """What placement asks of Kafka."""

    def topics(self) -> dict[str, int]:
        """Return every topic and its number of partitions."""

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return the partitions' watermarks."""

    def offsets_at(self, tps: Collection[TopicPartition], moment: datetime) -> dict[TopicPartition, int]:
        """Return each partition's first offset at or after a moment."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topic ids that are known."""

    def first_readable(self, tp: TopicPartition, damaged: int, end: int) -> int:
        """Return the first readable offset after a damaged batch, at most `end`."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The placements of partitions, with the txns and topic ids that they rest on."""

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
        """Return where to continue in each partition; raise if that would lose or repeat records.

        `damaged` maps partitions to the offset of a batch that fails its checksum; they continue after it.
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
        """Skip a damaged batch if it would be read next."""
        if placement.gap is not None or placement.position < damaged or placement.position >= end:
            return placement
        position = self.cluster.first_readable(tp, placement.position, end)
        return Placement(position, position, Gap(tp, placement.position, position - 1, "corrupt"))

    def refuse_loss(self, placements: Mapping[TopicPartition, Placement]) -> None:
        """Refuse gaps, unless the route has `on_data_loss: skip`."""
        gaps = [placement.gap for placement in placements.values() if placement.gap is not None]
        if gaps and not self.skip_lost:
            shown = "; ".join(str(gap) for gap in gaps[:_SHOWN]) + ("; …" if len(gaps) > _SHOWN else "")
            msg = f"route {self.route}: Kafka no longer has what table {self.table_uri} needs next: {shown}"
            raise DataLossError(
                msg,
                hint=(
                    "restore the records, or accept the loss with on_data_loss: skip for one start, or choose the "
                    "next offset with `ingestor offsets CONFIG --set`; for a recreated topic use a new table"
                ),
            )

    def refuse(self, tps: Collection[TopicPartition]) -> None:
        """Refuse partitions that a guard refuses, before any record of them is read."""
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
    """Return the txns to write before the first poll of a route whose `start` is not earliest.

    A partition without a txn counts as one that appeared later and is read from its start. So every existing
    partition of a topic without commits gets a txn before anything is read. For a regex this happens only on the
    table's first run, since a topic that matches afterwards has appeared later. A topic that is named but does not
    exist yet gets a marker, so that it is read from its start when it appears.
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
