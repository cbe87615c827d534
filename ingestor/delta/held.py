"""A data file from its creation until a commit names it: that very file, whatever becomes of its path meanwhile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from ingestor.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path


class Held(Protocol):
    """A file that is being written, whatever becomes of its path meanwhile."""

    def settle(self, size: int) -> None:
        """Return only when the file is closed, complete, at its path, and survives a power cut. Lets go of it."""

    def standing(self) -> bool:
        """Tell whether the file at the path is still the one that was settled."""

    def let_go(self) -> None:
        """Hold it no longer."""


class HeldFile:
    """A file on a local disk, held by its descriptor: a folder that is copied and swapped leaves another at its path.

    Opened after the writer has opened it. Should the folder be swapped in between, what is held here stays empty, and
    its size tells.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._path = path
        self._descriptor: int | None = os.open(root / path, os.O_RDONLY)
        self._settled: tuple[int, ...] | None = None

    def settle(self, size: int) -> None:
        """Sync the file that was written, then its folders; refuse to take another one at its path for it."""
        if self._descriptor is None:
            msg = f"data file {self._path} was let go of already"
            raise AssertionError(msg)
        os.fsync(self._descriptor)
        sync_folders(self._root, self._path)
        written = os.fstat(self._descriptor)
        self.let_go()
        self._settled = _identity(written)
        if written.st_size != size or not self.standing():
            msg = f"data file {self._path} is not the one that was written: was the table's folder moved or replaced?"
            raise Unavailable(msg)

    def standing(self) -> bool:
        """Tell whether the file at the path is the one that was settled."""
        try:
            return _identity((self._root / self._path).stat()) == self._settled
        except FileNotFoundError:
            return False

    def let_go(self) -> None:
        """Close the descriptor."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class HeldObject:
    """An object in a store: its upload is complete or nothing, under a name that is used once."""

    def settle(self, size: int) -> None:
        """Do nothing: closing the stream completed the upload."""

    def standing(self) -> bool:
        """Tell that it stands: nobody writes the same name again."""
        return True

    def let_go(self) -> None:
        """Do nothing."""


def sync(path: Path) -> None:
    """Return only when a file or a folder's names survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(root: Path, path: str) -> None:
    """Sync every folder from a file's own up to the table's root: they hold its name."""
    folder = (root / path).parent
    while True:
        sync(folder)
        if folder == root:
            return
        folder = folder.parent
