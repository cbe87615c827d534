"""Stops reading while memory is full or a store is slow, so that memory stays bounded.

Pausing discards what librdkafka has prefetched; it is fetched and decompressed again later. So the poll thread first
waits for a moment, while librdkafka's threads send the heartbeats. Only a route that stays slow is paused.
"""

from __future__ import annotations

from concurrent import futures
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingestor.ingest.budget import Budget
    from ingestor.ingest.route import Route, Watcher
    from ingestor.kafka.source import Source

_HOLD_SECONDS = 1.0
_LANDING_SECONDS = 0.05  # most commits end within this time: waiting keeps the draft within the flush limits
_BLOCKED_SECONDS = 0.3  # a route whose flush is due for this long is paused


class BackPressure:
    """Decides which routes are read. Runs on the poll thread."""

    def __init__(self, source: Source, budget: Budget, watcher: Watcher, clock: Callable[[], float]) -> None:
        self._source = source
        self._budget = budget
        self._watcher = watcher
        self._clock = clock

    def apply(self, routes: Sequence[Route]) -> None:
        """Pause a route whose store is slow, and all routes while memory is full; resume the others."""
        full = self._budget.exhausted and not self._budget.wait(_HOLD_SECONDS)
        self._wait_for_landing(routes)
        for route in routes:
            why = self._reason(route, full=full)
            drained = self._budget.used < self._budget.limit // 2
            hold = why is not None or (route.paused and not drained)
            route.held = why or route.held
            if hold != route.paused:
                route.paused = hold
                self._watcher.held_back(route.lane.name, paused=hold, why=why or "")
            reading = (tp for tp in route.lane.positions if tp not in route.adrift)  # evaluated only where needed
            if hold:
                self._source.pause(reading)
            else:
                self._source.resume(reading)

    def _wait_for_landing(self, routes: Sequence[Route]) -> None:
        landing = [done for route in routes if (done := route.lane.blocking) is not None]
        if landing:
            seconds = _HOLD_SECONDS if len(landing) == len(routes) else _LANDING_SECONDS
            futures.wait(landing, timeout=seconds, return_when=futures.FIRST_COMPLETED)

    def _reason(self, route: Route, *, full: bool) -> str | None:
        """Return why a route must not be read now, None if it may be."""
        slow = self._blocked_seconds(route) > _BLOCKED_SECONDS
        # A half-open breaker counts as answering after one good probe: it needs commits to close.
        if not route.breaker.answering:
            return "breaker open"
        if slow:
            return "table is slow"
        return "memory is full" if full else None

    def _blocked_seconds(self, route: Route) -> float:
        """Return for how long a route's flush has been due while the commit before it is under way."""
        if route.lane.blocking is None:
            route.blocked_since = None
            return 0.0
        now = self._clock()
        if route.blocked_since is None:
            route.blocked_since = now
        return now - route.blocked_since
