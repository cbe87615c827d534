"""A route at work: what the pipeline keeps of each, who watches it, and how it looks from outside."""

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

    revoke_seconds: float  # to land what a revocation takes away
    place_seconds: float  # for the ledger during an assignment; what is not placed by then is placed later
    stop_seconds: float = 8.0


class Watcher(Protocol):
    """Who is told what happens: logs and metrics. Called per poll, per flush and per rebalance, never per record."""

    def accepted(self, route: str, selection: Selection) -> None:
        """Records were taken in."""

    def flushed(self, route: str, flushed: Flushed) -> None:
        """A batch landed."""

    def started_over(self, route: str, progress: Progress) -> None:
        """What was in hand was dropped."""

    def rebalanced(self, event: str, tps: Collection[TopicPartition]) -> None:
        """Partitions came or went."""

    def placed(self, route: str, placed: Placed) -> None:
        """Partitions got their positions."""

    def gone(self, route: str, tps: Collection[TopicPartition]) -> None:
        """Partitions are no longer ours."""

    def waiting(self, why: str) -> None:
        """Nothing may come for the moment."""

    def gave_up(self, route: str, error: IngestorError) -> None:
        """A route was stopped for good."""

    def held_back(self, route: str, *, paused: bool, why: str) -> None:
        """A route was paused, or goes on."""


@dataclass(slots=True)
class Route:
    """A route at work: its lane, and how its partitions get their places."""

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
        """Take partitions out of every state but reading."""
        self.pending.difference_update(tps)
        self.adrift.difference_update(tps)
        for tp in tps:
            self.damaged.pop(tp, None)


@dataclass(frozen=True, slots=True)
class RouteView:
    """How a route was at some moment, for whoever looks at the process from outside."""

    breaker: BreakerState
    answering: bool  # whether the store answered when it was last tried
    paused: bool
    pending: int  # partitions that are ours but not read yet
    positions: Mapping[TopicPartition, int]
    in_hand: Mapping[TopicPartition, int]  # timestamps of the first records that were read and are not in the table
    draft_bytes: int
    failure: IngestorError | None = None  # why it was given up
    assigned: int = 0  # partitions that are ours
    held: str = ""  # why it is paused
