"""How many bytes of records the process holds in memory."""

from __future__ import annotations

import threading


class Budget:
    """Bytes of records that the process holds in memory, counted across all threads."""

    def __init__(self, limit: int, *, writers: int = 1) -> None:
        self.limit = limit
        # What one writer may gather before it has to write: all that they gather together must leave room for more,
        # else everybody waits for a flush that no size brings about.
        self.share = limit // (2 * writers)
        self._used = 0
        self._changed = threading.Condition()

    @property
    def used(self) -> int:
        """Return the bytes held now."""
        return self._used

    @property
    def exhausted(self) -> bool:
        """Tell whether nothing more should be taken in."""
        return self._used >= self.limit

    def take(self, size: int) -> None:
        """Count bytes that are now held."""
        with self._changed:
            self._used += size

    def give_back(self, size: int) -> None:
        """Count bytes that are no longer held."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until there is room again; tell whether there is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.exhausted, timeout)
