"""What the process shows of itself: the loop writes it down now and then, the HTTP server's threads read it."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ingestor.breaker import BreakerState
from ingestor.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ingestor.broker import Watermarks
    from ingestor.metrics import Metrics
    from ingestor.pipeline import Pipeline
    from ingestor.placement import Cluster
    from ingestor.records import TopicPartition
    from ingestor.route import RouteView

_SNAPSHOT_SECONDS = 1.0
_LAG_SECONDS = 10.0
_COMMITS_SHOWN = 20
_STUCK_TRANSACTION_SECONDS = 120.0  # brokers end a transaction after 60 s by default, 15 minutes at most


class Status:
    """Implements `http.State`. `tick` is for the thread that polls, everything else for any thread."""

    def __init__(
        self, metrics: Metrics, cluster: Cluster, *, stuck_seconds: float, on_stuck: Callable[[str], None]
    ) -> None:
        self._metrics = metrics
        self._cluster = cluster
        self._stuck_seconds = stuck_seconds
        self._on_stuck = on_stuck
        self._moved_at = time.monotonic()
        self._shown_at = 0.0
        self._routes: Mapping[str, RouteView] = {}
        self._joined = False
        self._lag: Mapping[TopicPartition, int] = {}
        self._held: dict[TopicPartition, tuple[int, float]] = {}  # partitions that an open transaction holds up
        self._kafka_trouble: str | None = None
        self.commits: deque[Mapping[str, Any]] = deque(maxlen=_COMMITS_SHOWN)
        threading.Thread(target=self._follow_lag, name="lag", daemon=True).start()

    def tick(self, pipeline: Pipeline) -> None:
        """Note that the loop moves, and now and then how its routes are."""
        now = time.monotonic()
        self._moved_at = now
        if now - self._shown_at >= _SNAPSHOT_SECONDS:
            self._shown_at = now
            self._routes = pipeline.view()
            self._joined = pipeline.joined
            for name, route in self._routes.items():
                self._metrics.buffer_bytes(name, route.draft_bytes)

    def live(self) -> bool:
        """Tell whether the loop moves."""
        return time.monotonic() - self._moved_at < self._stuck_seconds

    def readiness(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""
        reasons = [] if self._joined else ["no assignment from the consumer group yet"]
        for name, route in self._routes.items():
            if route.breaker is not BreakerState.CLOSED:
                reasons.append(f"route {name}: breaker is {route.breaker.value}, the table's store does not answer")
            if route.failure is not None:
                reasons.append(f"route {name} was stopped: {route.failure}")
            if route.pending:
                reasons.append(f"route {name}: {route.pending} partitions wait for the ledger to be read")
        return reasons

    def status(self) -> Mapping[str, Any]:
        """Return what `/api/status` shows."""
        return {
            "routes": {name: self._route(route) for name, route in self._routes.items()},
            "commits": list(self.commits),
            "ready": not self.readiness(),
            "reasons": self.readiness(),
        }

    def _route(self, route: RouteView) -> dict[str, Any]:
        return {
            "state": "stopped" if route.failure else "paused" if route.paused else "running",
            "failure": route.failure,
            "breaker": route.breaker.value,
            "pending": route.pending,
            "buffer_bytes": route.draft_bytes,
            "partitions": [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "position": position,
                    "lag": self._lag.get(tp),
                    "open_transaction_at": self._held.get(tp, (None,))[0],
                }
                for tp, position in sorted(route.positions.items())
            ],
        }

    def components(self) -> Mapping[str, str | None]:
        """Return what is wrong with each part; None if nothing is."""
        routes = self._routes.items()
        down = [name for name, route in routes if route.breaker is not BreakerState.CLOSED]
        waiting = [name for name, route in routes if route.pending]
        return {
            "kafka": self._kafka_trouble if self._joined else "no assignment from the consumer group yet",
            "storage": f"no answer for {', '.join(sorted({*down, *waiting}))}" if down or waiting else None,
            "breaker": f"not closed for {', '.join(down)}" if down else None,
            "dead_letters": None,
        }

    def _watch_transactions(self, marks: Mapping[TopicPartition, Watermarks]) -> None:
        """Warn of a transaction that stays open: it hides everything behind it, and no lag shows it."""
        now = time.monotonic()
        held = {tp: found.stable for tp, found in marks.items() if found.stable < found.high}
        self._held = {
            tp: self._held[tp] if self._held.get(tp, (-1, 0))[0] == at else (at, now) for tp, at in held.items()
        }
        for tp, (at, since) in self._held.items():
            if now - since > _STUCK_TRANSACTION_SECONDS:
                self._on_stuck(
                    f"{tp}: a transaction is open at offset {at} since {now - since:.0f} s; what follows waits"
                )

    def _follow_lag(self) -> None:
        """Ask Kafka for the ends now and then, so that the lag is right without traffic too."""
        while True:
            time.sleep(_LAG_SECONDS)
            positions = {tp: (name, at) for name, r in self._routes.items() for tp, at in r.positions.items()}
            try:
                marks = self._cluster.watermarks(list(positions))
            except Exception as error:  # noqa: BLE001 - what the lag costs must never be ingestion
                self._kafka_trouble = str(error) if isinstance(error, Unavailable) else type(error).__name__
                continue
            self._kafka_trouble = None
            self._watch_transactions(marks)
            lag = {tp: max(0, marks[tp].stable - at) for tp, (_, at) in positions.items()}
            for tp, (name, _) in positions.items():
                self._metrics.lag(name, tp, lag[tp])
            self._lag = lag
