"""Holds the source back while memory is full or a store does not keep up, so that both bound what is in hand.

Pausing throws away what was fetched ahead, to be fetched and decompressed again: better to hold still for a moment,
while librdkafka's own threads go on with heartbeats. Only who is slow for longer is paused.
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
_LANDING_SECONDS = 0.05  # most commits land within so long: better to wait than to outgrow the flush limits
_BLOCKED_SECONDS = 0.3  # a lane that can't seal for so long is paused


class BackPressure:
    """Decides which routes are read on, on the thread that polls."""

    def __init__(self, source: Source, budget: Budget, watcher: Watcher, clock: Callable[[], float]) -> None:
        self._source = source
        self._budget = budget
        self._watcher = watcher
        self._clock = clock

    def apply(self, routes: Sequence[Route]) -> None:
        """Pause what can't be taken in: a lane whose store does not keep up, and all of them when memory is full."""
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
            reading = (tp for tp in route.lane.positions if tp not in route.adrift)  # nobody asks while nothing rests
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
        """Return why a route is not to be read now, None if nothing speaks against it."""
        slow = self._blocked_seconds(route) > _BLOCKED_SECONDS
        # Half open after a good probe it needs something to commit, or stays so.
        if not route.breaker.answering:
            return "breaker open"
        if slow:
            return "table is slow"
        return "memory is full" if full else None

    def _blocked_seconds(self, route: Route) -> float:
        """Return for how long now a route's lane could not seal."""
        if route.lane.blocking is None:
            route.blocked_since = None
            return 0.0
        now = self._clock()
        if route.blocked_since is None:
            route.blocked_since = now
        return now - route.blocked_since
