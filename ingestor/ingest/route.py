"""A running route: its state in the pipeline, the interface of its watchers, and its snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from ingestor.errors import IngestorError
    from ingestor.ingest.breaker import Breaker, BreakerState
    from ingestor.ingest.buffer import Selection
    from ingestor.ingest.lane import Flushed, Lane, Progress
    from ingestor.ingest.placement import Placed, Placer
    from ingestor.records import TopicPartition
    from ingestor.worker import Worker


@dataclass(frozen=True, slots=True)
class Times:
    """How long the pipeline waits; derived from Kafka's own time-outs."""

    revoke_seconds: float  # for the flush of revoked partitions
    place_seconds: float  # for the ledger during an assignment; partitions not placed by then are placed later
    stop_seconds: float = 8.0


class Watcher(Protocol):
    """Receives events for logs and metrics. Called per poll, per flush and per rebalance, never per record."""

    def accepted(self, route: str, selection: Selection) -> None:
        """Records were accepted."""

    def flushed(self, route: str, flushed: Flushed) -> None:
        """A flush was committed."""

    def started_over(self, route: str, progress: Progress) -> None:
        """A route's uncommitted records were dropped."""

    def rebalanced(self, event: str, tps: Collection[TopicPartition]) -> None:
        """Partitions were assigned, revoked or lost."""

    def placed(self, route: str, placed: Placed) -> None:
        """Partitions got their positions."""

    def gone(self, route: str, tps: Collection[TopicPartition]) -> None:
        """Partitions are no longer ours."""

    def waiting(self, why: str) -> None:
        """Kafka or the store does not answer at the moment."""

    def gave_up(self, route: str, error: IngestorError) -> None:
        """A route was stopped for good."""

    def held_back(self, route: str, *, paused: bool, why: str) -> None:
        """A route was paused or resumed."""


@dataclass(slots=True)
class Route:
    """A running route: its lane, and the state of its partitions that are not reading."""

    lane: Lane
    placer: Placer
    store: Worker
    breaker: Breaker
    pending: set[TopicPartition] = field(default_factory=set)
    adrift: set[TopicPartition] = field(default_factory=set)
    damaged: dict[TopicPartition, int] = field(default_factory=dict)  # where a batch fails its checksum
    placing: Future[Placed] | None = None
    placing_tps: frozenset[TopicPartition] = frozenset()
    place_at: float = 0.0
    blocked_since: float | None = None
    paused: bool = False
    held: str = ""  # why it is paused, or was last
    failure: IngestorError | None = None  # it was given up; its partitions stay assigned but are not read

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """Remove partitions from every state but reading."""
        self.pending.difference_update(tps)
        self.adrift.difference_update(tps)
        for tp in tps:
            self.damaged.pop(tp, None)


@dataclass(frozen=True, slots=True)
class RouteView:
    """A snapshot of a route, for status and metrics."""

    breaker: BreakerState
    answering: bool  # whether the store answered the last call
    paused: bool
    pending: int  # partitions that are ours but not read yet
    positions: Mapping[TopicPartition, int]
    in_hand: Mapping[TopicPartition, int]  # timestamps of the first records that were read and are not in the table
    draft_bytes: int
    failure: IngestorError | None = None  # why it was given up
    assigned: int = 0  # partitions that are ours
    held: str = ""  # why it is paused
