"""A table's files in memory."""

from __future__ import annotations

from collections import deque

import pyarrow as pa


class MemoryStorage:
    """Files by path; a file is there once it is settled. `failures` are raised by the next calls that write."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.discarded: list[str] = []
        self.failures: deque[OSError] = deque()
        self._open: dict[str, pa.BufferOutputStream] = {}

    def read(self, path: str) -> bytes | None:
        """Return the whole file, or None if it does not exist."""
        return self.files.get(path)

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return [path.removeprefix(f"{folder}/") for path in self.files if path.startswith(f"{folder}/")]

    def exists(self, path: str) -> bool:
        """Tell whether a file is there."""
        return path in self.files

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reading here and there."""
        return pa.BufferReader(self.files[path])

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file for writing."""
        self._fail()
        self._open[path] = pa.BufferOutputStream()
        return self._open[path]

    def hold(self, path: str) -> HeldInMemory:
        """Hold on to a file that was just created."""
        return HeldInMemory(self, path)

    def settle(self, path: str) -> None:
        """Keep what was written."""
        self._fail()
        self.files[path] = self._open.pop(path).getvalue().to_pybytes()

    def discard(self, path: str) -> None:
        """Remove a file that no commit can ever name."""
        self.discarded.append(path)
        self._open.pop(path, None)
        self.files.pop(path, None)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.popleft()


class HeldInMemory:
    """A file in memory; `gone` says that another one stands at its path."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self.gone = False

    def settle(self, size: int) -> None:
        """Keep what was written."""
        self._storage.settle(self._path)
        assert len(self._storage.files[self._path]) == size

    def standing(self) -> bool:
        """Tell whether it is there."""
        return self._path in self._storage.files and not self.gone

    def let_go(self) -> None:
        """Hold nothing."""
