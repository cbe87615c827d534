"""The files of a table: on a local disk, where durable means fsync, or behind an object store.

Both offer the same few calls; only the table above knows which one it has.

Behind an object store all goes through delta-rs's own client, so credentials and options mean the same for data and
log. Some of its calls keep Python's lock while they wait for the store, which would hold up every thread, polling and
HTTP too, as long as a store is silent (tests/faults/test_storage.py measures it). `ObjectStorage` comes without the
worst of them, reading, and asks the store a question that waits without the lock before each of the others.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from ingestor.delta.held import HeldFile, HeldObject, sync, sync_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ingestor.delta.held import Held


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

    def hold(self, path: str) -> Held:
        """Hold on to a file that was just created, to settle the very file that was written."""

    def settle(self, path: str) -> None:
        """Return only when whatever stands at a path survives a power cut."""

    def discard(self, path: str) -> None:
        """Remove a file that no commit can ever name; a file that is gone already is fine."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder on a local disk. Nobody else fsyncs, so what has to last is synced here."""

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
        try:
            (self.root / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False  # any other error tells nothing, and is raised: newer Pythons' `exists` would say no
        return True

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reading here and there."""
        return pa.OSFile(str(self.root / path), "rb")

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file for writing, with the folders above it."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(target), "wb")

    def hold(self, path: str) -> HeldFile:
        """Hold on to a file that was just created."""
        return HeldFile(self.root, path)

    def settle(self, path: str) -> None:
        """Sync the file, then its folders."""
        sync(self.root / path)
        sync_folders(self.root, path)

    def discard(self, path: str) -> None:
        """Remove a file that no commit can ever name."""
        (self.root / path).unlink(missing_ok=True)


class Sized(Protocol):
    """Opens the same files with the sizes of some of them told, which then need not be asked for."""

    def __call__(self, known_sizes: dict[str, int]) -> pafs.FileSystem:
        """Return the files."""


# What is asked for of an object whose size is not known: stores send what there is. 1 TiB, S3's limit being 5.
_WHOLE_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """A prefix in an object store, through delta-rs's own client: a finished upload is durable."""

    files: pafs.FileSystem
    sized: Sized | None = None

    def read(self, path: str) -> bytes | None:
        """Return the whole object, or None if it does not exist; in one request."""
        try:
            with self._opened(path) as source:
                return bytes(source.read_buffer(_WHOLE_BYTES))
        except FileNotFoundError as error:
            if _NOT_MISSING.search(str(error)):
                raise OSError(str(error)) from error
            return None
        except OSError as error:
            if _NO_BYTES in str(error):
                return b""
            raise

    def _opened(self, path: str) -> pa.NativeFile:
        if self.sized is None:
            self._reach(path)
            return self.files.open_input_file(path)
        return self.sized({path: _WHOLE_BYTES}).open_input_file(path)

    def list(self, folder: str) -> list[str]:
        """Return the names directly below a prefix."""
        self._reach(folder)
        selector = pafs.FileSelector(folder, recursive=False, allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(selector)]

    def exists(self, path: str) -> bool:
        """Tell whether an object is there."""
        return self._reach(path) is not None

    def open_input(self, path: str) -> pa.NativeFile:
        """Open an object for reading here and there."""
        size = self._reach(path)
        if size is None:
            raise FileNotFoundError(path)
        return (self.files if self.sized is None else self.sized({path: size})).open_input_file(path)

    def create(self, path: str) -> pa.NativeFile:
        """Open a new object; it is uploaded in parts while it is written.

        Closing the stream completes the upload, there is no way to abort it: who does not want the object closes,
        then discards it. delta-rs aborts an upload of which a part failed. What a killed process leaves are parts
        that no listing shows; a lifecycle rule with AbortIncompleteMultipartUpload removes them.
        """
        self._reach(path)
        return self.files.open_output_stream(path)

    def hold(self, path: str) -> HeldObject:  # noqa: ARG002 - the same for every object
        """Hold on to an object that is being written."""
        return HeldObject()

    def settle(self, path: str) -> None:
        """Do nothing: closing the stream completed the upload."""

    def discard(self, path: str) -> None:
        """Remove an object that no commit can ever name."""
        if self.exists(path):
            with contextlib.suppress(FileNotFoundError):
                self.files.delete_file(path)

    def _reach(self, path: str) -> int | None:
        """Return the size of an object, None if it does not exist: the question that waits without Python's lock."""
        info = self.files.get_file_info(path)
        return int(info.size) if info.type == pafs.FileType.File else None


# A 404 that is not about the object: stores say so of their buckets, and versitygw of a user that it does not know.
_NOT_MISSING = re.compile(r"<Code>\w*(Bucket|Container|User)\w*</Code>")
_NO_BYTES = "416 Range Not Satisfiable"  # what a range of an empty object is answered with

# How long delta-rs may hold on to one request, below all deadlines of a rebalance (10 to 45 s) and of the breaker
# (60 s); delta-rs's own defaults hold for up to 3 minutes. Trying again is the business of `retry`, which can be woken;
# delta-rs tries again just enough to get over a connection that was closed, or a request to slow down.
# Each fault and how long it then holds: tests/faults/test_storage_times.py.
_CLIENT_DEFAULTS = {
    "connect_timeout": "5s",
    "timeout": "15s",  # of a whole request, with its body: parts have 5 MiB, so 350 KB/s are enough
}
_RETRY_DEFAULTS = {
    "max_retries": "5",
    "retry_timeout": "10s",  # no more tries after that: so at the worst 10 s of tries and one time-out
    "backoff_config.init_backoff": "100ms",
    "backoff_config.max_backoff": "2s",
}
_PREFIXES = ("aws_", "azure_", "google_")
_RETRY_ALIASES = ("backoff_config.", "backoff.")


def with_defaults(storage_options: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return storage_options with time-outs where they and the environment set none.

    delta-rs takes time-outs in any case, also as `AWS_TIMEOUT` and from the environment. What it says about retries it
    takes in lower case only and ignores else, so that is put right here.
    """
    environ = os.environ if environ is None else environ
    options = {_retry_key(name) or name: value for name, value in storage_options.items()}
    present = {_client_key(name) for name in (*options, *environ)}
    defaults = {name: value for name, value in _CLIENT_DEFAULTS.items() if name not in present}
    return {**defaults, **_RETRY_DEFAULTS, **options}


def _client_key(name: str) -> str:
    lower = name.lower()
    return next((lower.removeprefix(prefix) for prefix in _PREFIXES if lower.startswith(prefix)), lower)


def _retry_key(name: str) -> str | None:
    """Return the name under which delta-rs knows an option about retries, None for any other option."""
    bare = name.lower()
    for alias in _RETRY_ALIASES:
        bare = bare.removeprefix(alias)
    return next(
        (known for known in (*_RETRY_DEFAULTS, "backoff_config.base") if bare == known.rpartition(".")[2]), None
    )


def local_root(uri: str) -> Path | None:
    """Return the folder that a table's path or file:// URL names, None for any other URL."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))  # as delta-rs does
    return None if "://" in uri else Path(uri)


def open_storage(uri: str, object_store: Callable[[], pafs.FileSystem], sized: Sized | None = None) -> Storage:
    """Return the storage for a table's path or URL."""
    root = local_root(uri)
    return ObjectStorage(object_store(), sized) if root is None else LocalStorage(root)
