"""The files of a table: on a local disk, where durable means fsync, or behind an object store.

Both offer the same few calls; only the table above knows which one it has.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

if TYPE_CHECKING:
    from collections.abc import Callable


class Storage(Protocol):
    """What a table needs of the place it lies in; paths are relative to the table's root."""

    def read(self, path: str) -> bytes | None:
        """Return the whole file, or None if it does not exist."""

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder; empty if there is no such folder."""

    def exists(self, path: str) -> bool:
        """Tell whether a file is there."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reading here and there; FileNotFoundError if it does not exist."""

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file for writing."""

    def settle(self, path: str) -> None:
        """Return only when the written file survives a power cut."""

    def discard(self, path: str) -> None:
        """Remove a file that no commit can ever name; a file that is gone already is fine."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder on a local disk. delta-rs fsyncs nothing, so what has to last is synced here."""

    root: Path

    def read(self, path: str) -> bytes | None:
        """Return the whole file, or None if it does not exist."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder; empty if there is no such folder."""
        try:
            return os.listdir(self.root / folder)  # noqa: PTH208 - names wanted, not paths
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Tell whether a file is there."""
        return (self.root / path).exists()

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reading here and there."""
        return pa.OSFile(str(self.root / path), "rb")

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file for writing, with the folders above it."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(target), "wb")

    def settle(self, path: str) -> None:
        """Sync the file, then every folder from its own up to the table's root."""
        target = self.root / path
        _fsync(target)
        folder = target.parent
        while True:
            _fsync(folder)
            if folder == self.root:
                return
            folder = folder.parent

    def discard(self, path: str) -> None:
        """Remove a file that no commit can ever name."""
        (self.root / path).unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """A prefix in an object store, through delta-rs's own client: a finished upload is durable."""

    files: pafs.FileSystem

    def read(self, path: str) -> bytes | None:
        """Return the whole object, or None if it does not exist."""
        try:
            with self.files.open_input_file(path) as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        """Return the names directly below a prefix."""
        selector = pafs.FileSelector(folder, recursive=False, allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(selector)]

    def exists(self, path: str) -> bool:
        """Tell whether an object is there."""
        return bool(self.files.get_file_info(path).type == pafs.FileType.File)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open an object for reading here and there."""
        return self.files.open_input_file(path)

    def create(self, path: str) -> pa.NativeFile:
        """Open a new object; it is uploaded in parts while it is written."""
        return self.files.open_output_stream(path)

    def settle(self, path: str) -> None:
        """Do nothing: closing the stream completed the upload."""

    def discard(self, path: str) -> None:
        """Remove an object that no commit can ever name."""
        try:
            self.files.delete_file(path)
        except FileNotFoundError:
            return


def local_root(uri: str) -> Path | None:
    """Return the folder that a table's path or file:// URL names, None for any other URL."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))  # as delta-rs does
    return None if "://" in uri else Path(uri)


def open_storage(uri: str, object_store: Callable[[], pafs.FileSystem]) -> Storage:
    """Return the storage for a table's path or URL."""
    root = local_root(uri)
    return ObjectStorage(object_store()) if root is None else LocalStorage(root)
