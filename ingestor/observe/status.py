"""What the process shows of itself: the loop writes it down now and then, the HTTP server's threads read it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ingestor import DISTRIBUTION
from ingestor.delta.failures import plain
from ingestor.observe.lag import Lag
from ingestor.observe.metrics import Level, Levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.config.settings import Settings
    from ingestor.ingest.pipeline import Pipeline
    from ingestor.ingest.placement import Cluster
    from ingestor.ingest.route import RouteView
    from ingestor.observe.watch import Committed, Watch
    from ingestor.records import TopicPartition

_SNAPSHOT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """How everything was at one moment, in values that change no more."""

    joined: bool = False
    routes: Mapping[str, RouteView] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, Committed]] = field(default_factory=dict)
    memory: tuple[int, int] = (0, 0)

    def lacking(self, name: str) -> dict[TopicPartition, int]:
        """Return the first offset that a route's table lacks, by partition.

        Where everything that was read is in the table, that is where reading goes on: behind the last record there may
        be transaction markers and aborted records, which will never be in any table. A partition that waits for its
        place, or whose route was stopped, stands where it stood.
        """
        view = self.routes[name]
        landed = {tp: found.lacks for tp, found in self.committed.get(name, {}).items()}
        read = {tp: at for tp, at in view.positions.items() if tp not in view.in_hand or tp not in landed}
        return landed | read


class Status:
    """Implements `http.State`. `moved` and `tick` are for the thread that polls, everything else for any thread."""

    def __init__(self, settings: Settings, watch: Watch, cluster: Cluster, *, stuck_seconds: float) -> None:
        self._settings = settings
        self._watch = watch
        self._stuck_seconds = stuck_seconds
        self._started_at = time.time()
        self._moved_at = time.monotonic()
        self._shown_at = 0.0
        self._snapshot: _Snapshot | None = None
        self._lag = Lag(cluster, watch.recent, partitions=self._lacking, on_stuck=watch.waiting)
        watch.metrics.show_levels(self._levels)
        for name in settings.routes:
            watch.metrics.known(name)

    def end(self) -> None:
        """Ask Kafka for no more lag; what was known last is still shown."""
        self._lag.end()

    # --- written by the loop ----------------------------------------------------------------------------------------

    def moved(self) -> None:
        """Note that the start gets on, though it waits."""
        self._moved_at = time.monotonic()

    def tick(self, pipeline: Pipeline) -> None:
        """Note that the loop moves, and now and then how its routes are."""
        now = self._moved_at = time.monotonic()
        if now - self._shown_at < _SNAPSHOT_SECONDS:
            return
        self._shown_at = now
        before = self._snapshot
        self._snapshot = _Snapshot(
            joined=pipeline.joined,
            routes=pipeline.view(),
            committed={name: dict(committed) for name, committed in self._watch.committed.items()},
            memory=pipeline.memory,
        )
        if before is None or _read(before) != _read(self._snapshot):
            self._lag.ask_soon()

    # --- asked by the server ----------------------------------------------------------------------------------------

    def live(self) -> bool:
        """Tell whether the loop moves."""
        return time.monotonic() - self._moved_at < self._stuck_seconds

    def readiness(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""
        snapshot = self._snapshot
        if snapshot is None:
            return ["starting: waiting for Kafka and for every table to open"]
        reasons = [] if snapshot.joined else ["no assignment from the consumer group yet"]
        for name, route in snapshot.routes.items():
            if not route.answering:
                reasons.append(f"route {name}: breaker is {route.breaker.value}, the table's store does not answer")
            if route.failure is not None:
                reasons.append(f"route {name} was stopped: {route.failure}")
            if route.pending and route.failure is None:
                reasons.append(f"route {name}: {route.pending} partitions wait for the ledger to be read")
        return reasons

    def components(self) -> Mapping[str, str | None]:
        """Return what is wrong with each part; None if nothing is."""
        snapshot = self._snapshot
        if snapshot is None:
            return dict.fromkeys(("kafka", "storage"), "starting") | dict.fromkeys(("breaker", "dead_letters"))
        routes = snapshot.routes.items()
        down = [name for name, route in routes if not route.answering]
        stopped = [f"route {name} was stopped: {route.failure}" for name, route in routes if route.failure is not None]
        waiting = [name for name, route in routes if route.pending and route.failure is None]
        silent = f"no answer for {', '.join(sorted({*down, *waiting}))}" if down or waiting else None
        return {
            "kafka": self._lag.trouble if snapshot.joined else "no assignment from the consumer group yet",
            "storage": "; ".join(stopped) or silent,
            "breaker": f"not closed for {', '.join(down)}" if down else None,
            "dead_letters": None,
        }

    def status(self) -> Mapping[str, Any]:
        """Return what `/api/status` shows."""
        snapshot = self._snapshot or _Snapshot()
        reasons = self.readiness()
        used, limit = snapshot.memory
        return {
            "app_id": self._settings.app_id,
            "version": version(DISTRIBUTION),
            "now": time.time(),
            "started_at": self._started_at,
            "live": self.live(),
            "ready": not reasons,
            "reasons": reasons,
            "memory": {"used_bytes": used, "limit_bytes": limit},
            "routes": {name: self._route(snapshot, name) for name in self._settings.routes},
            **self._watch.recent.shown(),
        }

    def _route(self, snapshot: _Snapshot, name: str) -> dict[str, Any]:
        settings = self._settings.routes[name]
        shown: dict[str, Any] = {"table": plain(settings.table), "topics": list(settings.topics)}
        view = snapshot.routes.get(name)
        if view is None:
            return {**shown, "state": "starting", "partitions": []}
        return {
            **shown,
            "state": "stopped" if view.failure else "paused" if view.paused else "running",
            "failure": None if view.failure is None else str(view.failure),
            "breaker": view.breaker.value,
            "pending": view.pending,
            "buffer_bytes": view.draft_bytes,
            "flush_bytes": settings.flush.bytes,
            "partitions": [
                self._partition(snapshot, name, tp, at) for tp, at in sorted(snapshot.lacking(name).items())
            ],
        }

    def _partition(self, snapshot: _Snapshot, name: str, tp: TopicPartition, lacks: int) -> dict[str, Any]:
        committed = snapshot.committed.get(name, {}).get(tp)
        ends = self._lag.ends
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "position": snapshot.routes[name].positions.get(tp),
            "committed_offset": None if committed is None else committed.offset,
            "record_at": None if committed is None or committed.timestamp_ms < 0 else committed.timestamp_ms / 1000,
            "lag": _behind(ends.stable.get(tp), lacks),
            "open_transaction_at": ends.held.get(tp),
        }

    def _lacking(self) -> dict[TopicPartition, int]:
        snapshot = self._snapshot or _Snapshot()
        return {tp: at for name in snapshot.routes for tp, at in snapshot.lacking(name).items()}

    def _levels(self) -> Levels:
        """Return what the metrics show of this moment."""
        snapshot = self._snapshot or _Snapshot()
        stable = self._lag.ends.stable
        partitions = []
        for name in snapshot.routes:
            committed = snapshot.committed.get(name, {})
            for tp, lacks in snapshot.lacking(name).items():
                found = committed.get(tp)
                offset = None if found is None else found.offset
                partitions.append(Level(name, tp, offset, _behind(stable.get(tp), lacks)))
        return Levels({name: view.draft_bytes for name, view in snapshot.routes.items()}, partitions)


def _read(snapshot: _Snapshot) -> set[TopicPartition]:
    return {tp for view in snapshot.routes.values() for tp in view.positions}


def _behind(stable: int | None, lacks: int) -> int | None:
    return None if stable is None else max(0, stable - lacks)
