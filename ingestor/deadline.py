"""One time budget that several steps share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """Counts down from its creation; give `left` to every step that waits."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends_at = clock() + seconds

    def left(self) -> float:
        """Return the seconds that are left, never below 0."""
        return max(0.0, self._ends_at - self._clock())
