"""Tells people and machines what the pipeline does: one place that turns events into log lines and metrics."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.delta.failures import plain
from ingestor.errors import IngestorError, RefusedError, Unavailable
from ingestor.ingest.put import Outcome
from ingestor.observe.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ingestor.ingest.breaker import BreakerState
    from ingestor.ingest.buffer import Selection
    from ingestor.ingest.lane import Flushed, Progress
    from ingestor.ingest.placement import Placed
    from ingestor.ledger import Gap
    from ingestor.observe.metrics import Metrics
    from ingestor.records import TopicPartition

_REPEAT_SECONDS = 10.0  # the same wait is told once in so long
_PASSES = "it is tried again by itself, and nothing is lost"


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a partition is in the table: its last record, and the first offset that the table lacks."""

    offset: int | None
    lacks: int
    timestamp_ms: int = -1


class Watch:
    """The pipeline's watcher. Also called from the storage threads, for what only they see."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.rows_landed = 0
        self.dropped = 0  # how often what was in hand was dropped, to be read again
        self.recent = Recent()
        self.committed: dict[str, dict[TopicPartition, Committed]] = {}  # by route: of partitions that are ours
        self.moved: Callable[[], None] = lambda: None  # called while the start waits for Kafka and tables
        self.waited: Callable[[], None] = lambda: None  # called when something is waited for
        self.landed_at: dict[str, float] = {}  # by route: Unix time of the last commit
        self.stores: dict[str, str] = {}  # by route: why its store did not answer when it was tried last
        self.store_of: dict[str, str] = {}  # by route: the store that its table lies in, as its breaker is called
        self._ours: set[TopicPartition] = set()
        self._standing = (
            threading.Lock()
        )  # how partitions stand is noted by the thread that polls and by storage threads
        self._log = logs.get()
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def accepted(self, route: str, selection: Selection) -> None:
        """Count records that were taken in, and those that were there already."""
        if selection.batch is not None:
            self.recent.records_read(selection.batch.records.num_rows)
        if selection.duplicates:
            self.metrics.duplicates(route, selection.duplicates)

    def flushed(self, route: str, flushed: Flushed) -> None:
        """Tell that a batch is in the table."""
        staged, landed = flushed.staged, flushed.landed
        rows = sum(staged.counts.values())
        self.rows_landed += rows
        self.landed_at[route] = time.time()
        self.store_answered(route)
        age = time.time() - staged.newest_ms / 1000 if staged.newest_ms >= 0 else None
        self._log.info(
            "committed",
            route=route,
            version=landed.version,
            rows=rows,
            bytes=staged.payload_bytes,
            partitions=len(staged.last),
            seconds=round(landed.seconds, 3),
            write_seconds=round(staged.write_seconds, 3),
            conflicts=landed.conflicts,
            why=flushed.reason.value,
            answer="lost" if landed.outcome is Outcome.LANDED_UNANSWERED else "ok",
            commit_id=staged.commit_id,
        )
        self.recent.committed(
            route=route,
            version=landed.version,
            rows=rows,
            seconds=round(landed.seconds, 3),
            commit_id=staged.commit_id,
        )
        self._lost(route, flushed.gaps)
        for tp, last in staged.last.items():
            self._stands(route, tp, Committed(last, last + 1, staged.last_ms.get(tp, -1)))
        self.metrics.landed(
            route,
            rows=staged.counts,
            payload_bytes=staged.payload_bytes,
            commit_seconds=landed.seconds,
            write_seconds=staged.write_seconds,
            age_seconds=age,
        )

    def _lost(self, route: str, gaps: Iterable[Gap]) -> None:
        """Tell which offsets a commit has passed over."""
        for gap in gaps:
            self._log.error("records lost", route=route, gap=str(gap), offsets=gap.offsets)
            self.recent.trouble(
                f"records lost: {gap}",
                "on_data_loss: skip passed over them; the commit's gaps name them for good",
                level="error",
                route=route,
            )
            self.metrics.lost_offsets(route, gap.tp, gap.offsets)

    def started_over(self, route: str, progress: Progress) -> None:
        """Tell that what was in hand was dropped and is read again."""
        self.dropped += 1
        event = "fenced" if progress.fenced else "file lost"
        why = progress.fenced or progress.unavailable
        self.recent.trouble(f"{event}: {why}", "the partitions are read again from the table", route=route)
        self._log.warning(
            event, route=route, why=why, partitions=len(progress.to_place), next="read again from the table"
        )

    def rebalanced(self, event: str, tps: Collection[TopicPartition]) -> None:
        """Tell that partitions came or went."""
        self._log.info("rebalance", event_kind=event, count=len(tps), partitions=_shown(tps))
        self.metrics.rebalance(event)
        if event == "assigned":
            with self._standing:
                self._ours.update(tps)

    def gone(self, route: str, tps: Collection[TopicPartition]) -> None:
        """Forget how partitions stand that are no longer ours."""
        with self._standing:
            self._ours.difference_update(tps)
            for tp in tps:
                self.committed.get(route, {}).pop(tp, None)

    def _stands(self, route: str, tp: TopicPartition, committed: Committed) -> None:
        """Note how far a partition is; a batch may land, and a place be found, after the partition has gone."""
        with self._standing:
            if tp in self._ours:
                self.committed.setdefault(route, {})[tp] = committed

    def stand(self) -> dict[str, dict[TopicPartition, Committed]]:
        """Return how far every partition is that is ours, by route, in values that change no more."""
        with self._standing:
            return {route: dict(committed) for route, committed in self.committed.items()}

    def placed(self, route: str, placed: Placed) -> None:
        """Tell where partitions go on."""
        self.store_answered(route)
        for placement in placed.placements.values():
            if placement.gap is not None:
                self._log.error("records lost", route=route, gap=str(placement.gap), on_data_loss="skip")
        positions = {str(tp): placement.position for tp, placement in list(placed.placements.items())[:20]}
        self._log.info("placed", route=route, count=len(placed.placements), positions=positions)

    def looked(self, route: str, placed: Placed) -> None:
        """Note how far partitions are in the table, also of a route that is about to be stopped for that."""
        for tp, placement in placed.placements.items():
            self._stands(route, tp, Committed(placed.txns[tp], placement.position))

    def waiting(self, why: str) -> None:
        """Tell why nothing may come at the moment, not more than every few seconds."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(why, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
                return
            if len(self._told) > 1000:  # noqa: PLR2004 - a bound, no meaning
                self._told.clear()
            self._told[why] = now
        self.recent.trouble(why, _PASSES)
        self._log.warning("waiting", why=why)
        self.waited()

    def gave_up(self, route: str, error: IngestorError) -> None:
        """Tell that a route was stopped for good; the others go on."""
        self._log.error("route stopped", route=route, why=error.message, next=error.hint)
        self.recent.trouble(f"route stopped: {error.message}", error.hint, level="error", route=route)
        if not isinstance(error, RefusedError):  # those were counted where they came from
            self.metrics.failure(route, "permanent")

    def held_back(self, route: str, *, paused: bool, why: str) -> None:
        """Tell that a route's consumption was paused or goes on."""
        self._log.info("paused" if paused else "resumed", route=route, **({"why": why} if paused else {}))

    def storage_failed(self, route: str, failure: IngestorError | Unavailable) -> None:
        """Tell that a storage call failed; it is tried again unless it is refused for good."""
        if isinstance(failure, IngestorError):
            self.metrics.failure(route, "permanent")
            self.recent.trouble(failure.message, failure.hint, level="error", route=route)
            return
        self.stores[route] = str(failure)
        self.metrics.failure(route, "retriable")
        self.metrics.retry(route, "storage")
        self.waiting(f"route {route}: {failure}")

    def store_answered(self, route: str) -> None:
        """Forget why a route's store did not answer."""
        self.stores.pop(route, None)

    def committing(self, route: str, outcome: Outcome) -> None:
        """Count how tries to commit ended."""
        self.metrics.commit(route, outcome.value)
        if outcome is Outcome.CONFLICT:
            self.metrics.retry(route, "conflict")

    def checkpointed(self, route: str, version: int) -> None:
        """Tell that the log has a new checkpoint."""
        self._log.debug("checkpoint", route=route, version=version)

    def checkpoint_failed(self, route: str, why: str) -> None:
        """Tell that the log has no new checkpoint: commits get slower until the next one succeeds."""
        why = plain(why)[:300]
        self._log.warning("checkpoint failed", route=route, why=why)
        hint = "the next one is tried by itself; commits get slower until then"
        self.recent.trouble(f"checkpoint failed: {why}", hint, route=route)
        self.metrics.retry(route, "checkpoint")

    def log_kept(self, route: str, why: str) -> None:
        """Tell that expired log entries stay: commits get slower the more there are."""
        self._log.warning("expired log entries kept", route=route, why=why[:300])

    def breaker_made(self, store: str) -> None:
        """Tell that there is a breaker for a store."""
        self.metrics.breaker_made(store)

    def lies_in(self, route: str, store: str) -> None:
        """Tell which store a route's table lies in."""
        self.store_of[route] = store

    def breaker_changed(self, store: str, state: BreakerState) -> None:
        """Tell that a store is left alone, probed or back."""
        self._log.warning("breaker", store=store, state=state.value)
        self.metrics.breaker(store, state.value)


def _shown(tps: Collection[TopicPartition]) -> str:
    some = ", ".join(str(tp) for tp in sorted(tps)[:20])
    return some if len(tps) <= 20 else f"{some}, …"  # noqa: PLR2004 - what fits a line
