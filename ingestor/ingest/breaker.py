"""A circuit breaker per table store: after repeated failures it blocks calls for a while, then lets single ones probe.

Own code, because no library takes a clock and lets only one caller probe at a time. A breaker on the wall clock
changes its state when that clock is set.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PROBE_POLL_SECONDS = 0.1


class BreakerState(StrEnum):
    """Closed: calls pass. Open: none passes. Half open: one passes at a time, as a probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Opens after `failures` in a row, probes after `open_seconds`, closes after `successes` good probes."""

    def __init__(
        self,
        *,
        failures: int,
        open_seconds: float,
        successes: int,
        clock: Callable[[], float],
        on_change: Callable[[BreakerState], None] = lambda _state: None,
    ) -> None:
        self._failures_max = failures
        self._open_seconds = open_seconds
        self._successes_min = successes
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._count = 0  # failures in a row while closed, good probes while half open
        self._opened_at = 0.0
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Return the state as of the last call."""
        return self._state

    @property
    def answering(self) -> bool:
        """Return whether the store answered the last call."""
        return self._state is BreakerState.CLOSED or (self._state is BreakerState.HALF_OPEN and self._count > 0)

    def enter(self) -> float:
        """Return 0 if a call may pass now, else the seconds to wait before asking again."""
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return 0.0
            if self._state is BreakerState.OPEN:
                left = self._opened_at + self._open_seconds - self._clock()
                if left > 0:
                    return left
                self._move(BreakerState.HALF_OPEN)
            if self._probing:
                return _PROBE_POLL_SECONDS
            self._probing = True
            return 0.0

    def succeeded(self) -> None:
        """Count a call that succeeded."""
        with self._lock:
            self._probing = False
            if self._state is BreakerState.CLOSED:
                self._count = 0
                return
            self._count += 1
            if self._count >= self._successes_min:
                self._move(BreakerState.CLOSED)

    def failed(self) -> None:
        """Count a call that failed after its retries."""
        with self._lock:
            self._probing = False
            self._count += 1
            if self._state is not BreakerState.CLOSED or self._count >= self._failures_max:
                self._opened_at = self._clock()
                self._move(BreakerState.OPEN)

    def _move(self, state: BreakerState) -> None:
        self._count = 0
        if state is not self._state:
            self._state = state
            self._on_change(state)
