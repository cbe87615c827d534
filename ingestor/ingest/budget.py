"""The process's memory budget for records."""

from __future__ import annotations

import threading


class Budget:
    """Bytes of records that the process holds in memory, counted across all threads."""

    def __init__(self, limit: int, *, writers: int = 1) -> None:
        self.limit = limit
        # What one writer may collect before it has to write. All shares together are half of the budget; if they
        # filled it, every writer would wait for a flush that no limit triggers.
        self.share = limit // (2 * writers)
        self._used = 0
        self._changed = threading.Condition()

    @property
    def used(self) -> int:
        """Return the bytes that are held now."""
        return self._used

    @property
    def exhausted(self) -> bool:
        """Return whether no more records should be read."""
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
        """Wait for room; return whether there is any."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.exhausted, timeout)
