"""The interface between the pipeline and Kafka, implemented by `KafkaSource` and the tests' fake."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ingestor.records import Columns, TopicPartition


class Listener(Protocol):
    """Decides on rebalances; called inside `poll`."""

    def on_assigned(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets to fetch from; a partition that is left out is assigned but stays paused."""

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Flush the partitions' records within the time, and forget the partitions."""

    def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Forget the partitions: another member may own them already."""


@dataclass(slots=True)
class Polled:
    """The result of one poll."""

    columns: list[tuple[str, Columns]] = field(default_factory=list)  # with their routes, in the order of reading
    ends: dict[TopicPartition, int] = field(default_factory=dict)  # partitions read to their end, and the end
    lost_positions: set[TopicPartition] = field(default_factory=set)  # Kafka no longer has our position
    damaged: dict[TopicPartition, int] = field(default_factory=dict)  # the offset of a damaged batch
    waits: list[str] = field(default_factory=list)  # retriable errors
    records: int = 0


class Source(Protocol):
    """What the pipeline needs of Kafka."""

    def subscribe(self, listener: Listener) -> None:
        """Join the group; the listener decides on every change of the assignment."""

    def poll(self, max_records: int, timeout: float) -> Polled:
        """Return what arrives within the timeout; serve rebalances."""

    def reposition(self, moved: Mapping[TopicPartition, int], kept: Mapping[TopicPartition, int]) -> None:
        """Fetch `moved` from other positions; `kept` are the positions of all others that are being read."""

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching from these partitions for now."""

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch from these partitions again; called after every poll, nearly always with nothing paused."""

    def acknowledge(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit group offsets, for lag tools."""

    def close(self) -> None:
        """Leave the group."""
