"""What the pipeline needs of Kafka, and what Kafka tells it: `KafkaSource` does so, and the tests' fake."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ingestor.records import Columns, TopicPartition


class Listener(Protocol):
    """Who decides on a rebalance; called from inside `poll`."""

    def on_assigned(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return from where to fetch; a partition that is left out is assigned but stays paused."""

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Land what can be landed in time, and forget the partitions."""

    def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Forget the partitions: somebody else may own them already."""


@dataclass(slots=True)
class Polled:
    """What one poll brought."""

    columns: list[tuple[str, Columns]] = field(default_factory=list)  # with their routes, in the order of reading
    ends: dict[TopicPartition, int] = field(default_factory=dict)  # partitions read to their end, and that position
    lost_positions: set[TopicPartition] = field(default_factory=set)  # Kafka no longer has where we are
    damaged: dict[TopicPartition, int] = field(default_factory=dict)  # where a batch failed its checksum
    waits: list[str] = field(default_factory=list)  # why nothing may come at the moment
    records: int = 0


class Source(Protocol):
    """What the pipeline needs of Kafka; held by `KafkaSource` and by the tests' fake."""

    def subscribe(self, listener: Listener) -> None:
        """Join the group; the listener decides on every change of the assignment."""

    def poll(self, max_records: int, timeout: float) -> Polled:
        """Return what came within the timeout; serve rebalances."""

    def reposition(self, moved: Mapping[TopicPartition, int], kept: Mapping[TopicPartition, int]) -> None:
        """Fetch `moved` from other positions; `kept` are those of all others that are being read."""

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch no more from these partitions for now."""

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch from these partitions again; asked after every poll, mostly while nothing is paused."""

    def acknowledge(self, positions: Mapping[TopicPartition, int]) -> None:
        """Tell Kafka how far the table is."""

    def close(self) -> None:
        """Leave the group."""
