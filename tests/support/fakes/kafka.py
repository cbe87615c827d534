"""A Kafka cluster in memory: partitions with gaps, open transactions, retention and topic ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingestor.kafka.broker import Watermarks
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class FakeRecord:
    """A record as it stands in a partition."""

    offset: int
    value: bytes | None
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = None


class OffsetOutOfRange(Exception):  # noqa: N818 - Kafka's own name
    """The partition has not got this offset (any more)."""


@dataclass(slots=True)
class FakePartition:
    """One partition; offsets without a record are markers, aborted or compacted."""

    low: int = 0
    high: int = 0
    readable: dict[int, FakeRecord] = field(default_factory=dict)  # committed and not compacted, since ever
    compacted: set[int] = field(default_factory=set)
    held: list[FakeRecord] | None = None  # records of an open transaction
    open_at: int = 0

    @property
    def stable(self) -> int:
        """Return the end for readers of committed records."""
        return self.high if self.held is None else self.open_at

    def append(self, value: bytes | None, timestamp_ms: int, key: bytes | None) -> FakeRecord:
        """Add a record: committed at once, or with the open transaction."""
        record = FakeRecord(self.high, value, timestamp_ms, key)
        self.high += 1
        if self.held is None:
            self.readable[record.offset] = record
        else:
            self.held.append(record)
        return record

    def fetch(self, position: int, limit: int) -> tuple[list[FakeRecord], int]:
        """Return records from a position on, and the position after them."""
        if not self.low <= position <= self.high:
            raise OffsetOutOfRange
        found: list[FakeRecord] = []
        while position < self.stable and len(found) < limit:
            record = self.readable.get(position)
            if record is not None and position not in self.compacted:
                found.append(record)
            position += 1
        return found, position


class FakeKafka:
    """The cluster; implements `placement.Cluster`."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self._ids: dict[str, str] = {}
        self._made = 0
        for topic, count in topics.items():
            self.add_topic(topic, count)

    def add_topic(self, topic: str, count: int) -> None:
        """Create a topic, or create it again: empty, under another id."""
        self._made += 1
        self._ids[topic] = f"{topic}-id-{self._made}"
        for number in range(count):
            self.partitions[TopicPartition(topic, number)] = FakePartition()

    def produce(
        self,
        tp: TopicPartition,
        values: Iterable[bytes | None],
        *,
        timestamp_ms: int = 1_700_000_000_000,
        key: bytes | None = None,
    ) -> None:
        """Append records."""
        for value in values:
            self.partitions[tp].append(value, timestamp_ms, key)

    def skip(self, tp: TopicPartition, offsets: int) -> None:
        """Let offsets pass without a committed record: aborted records, and transaction markers."""
        self.partitions[tp].high += offsets

    def begin(self, tp: TopicPartition) -> None:
        """Open a transaction: nothing from here on is readable until it ends."""
        partition = self.partitions[tp]
        if partition.held is None:
            partition.held, partition.open_at = [], partition.high

    def end(self, tp: TopicPartition, *, commit: bool) -> None:
        """End the open transaction with its marker."""
        partition = self.partitions[tp]
        held, partition.held = partition.held, None
        if held is not None:
            partition.high += 1
            partition.readable.update({record.offset: record for record in held} if commit else {})

    def compact(self, tp: TopicPartition, offset: int) -> None:
        """Let compaction take a record away."""
        if offset in self.partitions[tp].readable:
            self.partitions[tp].compacted.add(offset)

    def retain_from(self, tp: TopicPartition, offset: int) -> None:
        """Let retention take all that lies before an offset."""
        partition = self.partitions[tp]
        partition.low = max(partition.low, min(offset, partition.stable))

    def committed(self, tp: TopicPartition) -> dict[int, FakeRecord]:
        """Return every committed record that the partition ever had, and that compaction did not take."""
        partition = self.partitions[tp]
        found = partition.readable.items()
        return {offset: record for offset, record in found if offset not in partition.compacted}

    # --- placement.Cluster ------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """Return every topic and its number of partitions."""
        return {topic: sum(tp.topic == topic for tp in self.partitions) for topic in self._ids}

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return the partitions' watermarks."""
        found = {tp: self.partitions[tp] for tp in tps}
        return {tp: Watermarks(each.low, each.high, each.stable) for tp, each in found.items()}

    def offsets_at(self, tps: Collection[TopicPartition], moment: datetime) -> dict[TopicPartition, int]:
        """Return each partition's first offset at or after a moment, its end if there is none."""
        since = moment.timestamp() * 1000
        return {
            tp: min(
                (at for at, record in self.committed(tp).items() if record.timestamp_ms >= since),
                default=self.partitions[tp].stable,
            )
            for tp in tps
        }

    def first_readable(self, tp: TopicPartition, damaged: int, end: int) -> int:
        """Return the first offset behind a damaged batch: here each is of one record."""
        assert damaged < end <= self.partitions[tp].high
        return damaged + 1

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topics' ids."""
        return {topic: self._ids[topic] for topic in topics if topic in self._ids}
