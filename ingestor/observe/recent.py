"""What happened lately: the last commits and troubles, and a quarter of an hour of speed and lag. All of it bounded.

Kept here rather than in the page that shows it, so that it survives a reload and is the same for everybody who looks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_SECONDS = 10.0
_SAMPLES_KEPT = 90  # a quarter of an hour
_COMMITS_KEPT = 20
_TROUBLES_KEPT = 20


class Recent:
    """Written by the threads that work, read by those that answer."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._commits: deque[dict[str, Any]] = deque(maxlen=_COMMITS_KEPT)
        self._troubles: deque[dict[str, Any]] = deque(maxlen=_TROUBLES_KEPT)
        self._samples: deque[tuple[float, float, int | None]] = deque(maxlen=_SAMPLES_KEPT)
        self._read = 0
        self._sampled = (clock(), 0)  # when, and how many records had been read then

    def records_read(self, number: int) -> None:
        """Count records that were taken in."""
        with self._lock:
            self._read += number

    def committed(self, **commit: object) -> None:
        """Remember a commit."""
        with self._lock:
            self._commits.append({"at": self._clock(), **commit})

    def trouble(self, what: str, hint: str, *, level: str = "warning", route: str | None = None) -> None:
        """Remember what went wrong; what is told again counts up instead of pushing others out."""
        with self._lock:
            known = next((t for t in self._troubles if (t["what"], t["route"]) == (what, route)), None)
            if known is not None:
                self._troubles.remove(known)
            count = 1 if known is None else known["count"] + 1
            self._troubles.append(
                {"at": self._clock(), "level": level, "route": route, "what": what, "hint": hint, "count": count}
            )

    def sample(self, lag: int | None) -> None:
        """Add a point to the course of things; the lag is None where it is not known."""
        with self._lock:
            now = self._clock()
            then, read = self._sampled
            if now <= then:
                return  # the wall clock was set back
            self._sampled = (now, self._read)
            self._samples.append((now, (self._read - read) / (now - then), lag))

    def shown(self) -> dict[str, Any]:
        """Return everything as plain values, the newest commits and troubles first."""
        with self._lock:
            return {
                "commits": list(reversed(self._commits)),
                "errors": list(reversed(self._troubles)),
                "history": {
                    "at": [round(at, 1) for at, _, _ in self._samples],
                    "records_per_second": [round(speed, 1) for _, speed, _ in self._samples],
                    "lag": [lag for _, _, lag in self._samples],
                },
            }
