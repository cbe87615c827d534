"""How a table's log is looked at and added to: through delta-rs, on a local disk as in a store.

Each commit of delta-rs replays the log's tail and takes in every live file. Checkpoints, the removal of expired entries
(see `maintenance`) and compaction keep that cheap, beside the commits.

delta-rs puts an entry on a disk by a hard link, so it is whole, but it syncs nothing. What is acknowledged or built on
is synced here first. After a power cut the newest entry may still be empty or cut off, also at a line's end. Each entry
of ours says how many actions it has (`commit_info`), so a cut is seen before anything is built on it (`repair`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.fs as pafs
from deltalake import CommitProperties, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from ingestor.delta import deltalog, disk_log
from ingestor.delta.commit_info import counted
from ingestor.delta.open import believed, open_handle, reopen_handle, storage_of
from ingestor.delta.storage import local_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from deltalake import DeltaTable

    from ingestor.delta.storage import Storage
    from ingestor.records import RawSchema

# Each commit of delta-rs replays the log's tail since the last checkpoint: with a checkpoint every 50 entries and a
# handle reopened on it a commit costs 5-10 ms, without it 100 ms after 1,000 entries (bench/commit.py).
CHECKPOINT_EVERY = 50
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _standing() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished Parquet file, not yet part of the table."""

    path: str
    size: int
    stats: Mapping[str, Any]
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    standing: Callable[[], bool] = field(default=_standing, compare=False, repr=False)
    """Tells whether the file at the path is still the one that was written."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What a log entry is to say: files that become part of the table, txns, and what else is told of the commit."""

    files: tuple[DataFile, ...]
    txns: Mapping[str, int]
    info: Mapping[str, Any]


class TableLog:
    """The log of one table: a handle of delta-rs, followed from version to version and committed through.

    delta-rs must neither rebase (`max_commit_retries=0`) nor run hooks after the commit, for a hook that fails looks
    like a commit that failed.
    """

    def __init__(self, uri: str, schema: RawSchema, options: Mapping[str, str], handle: DeltaTable) -> None:
        """Take the log of a table that was just opened."""
        self._uri = uri
        self._options = dict(options)
        self._schema = Schema.from_arrow(schema.table)
        self._partition_by = schema.partition_by
        self._handle = handle
        self._opened_at = handle.version()
        self._root = local_root(uri)
        self.storage: Storage = storage_of(uri, self._options, self._sized)

    def newest(self) -> int:
        """Move the handle to the newest version."""
        if self._handle.version() - self._opened_at >= CHECKPOINT_EVERY:
            self._handle = reopen_handle(self._uri, self._options)  # one that is only ever updated grows for ever
            self._opened_at = self._handle.version()
        else:
            try:
                believed(self._handle.update_incremental)
            except DeltaError:
                deltalog.refuse_damage(self.storage)
                raise
        return self._handle.version()

    def put(self, version: int, entry: NewEntry, *, after: bytes | None) -> None:
        """Put one entry at a version or nowhere, right after the entry of this fingerprint.

        Whatever is raised, the entry may be there.
        """
        if version != self._handle.version() + 1:
            msg = f"a handle at version {self._handle.version()} can't put version {version}"
            raise AssertionError(msg)
        self._refuse_another_folder(version - 1, after)
        now_ms = time.time_ns() // 1_000_000
        self._handle.create_write_transaction(
            [_add_action(file, now_ms) for file in entry.files],
            mode="append",
            schema=self._schema,
            partition_by=self._partition_by,
            commit_properties=CommitProperties(
                max_commit_retries=0,
                app_transactions=[Transaction(app_id, version, now_ms) for app_id, version in entry.txns.items()],
                custom_metadata=counted(entry.info, len(entry.files) + len(entry.txns)),
            ),
            post_commithook_properties=NO_HOOKS,
        )

    def _refuse_another_folder(self, version: int, expected: bytes | None) -> None:
        """Put nothing into a folder that took the table's place: a disk may have been away between two tries."""
        if self._root is not None and deltalog.fingerprint(self.storage, version) != expected:
            raise FileNotFoundError(errno.ENOENT, "not there as it was", deltalog.entry_path(version))

    def secure(self, entries: Iterable[deltalog.Entry]) -> None:
        """Return only when entries that others put survive a power cut: ours is not to outlive those it follows.

        Ingestors sync their data files before they commit; other programs don't. A file of theirs may be gone by now,
        compacted and vacuumed.
        """
        for entry in entries:
            for added in entry.adds if entry.commit_id is None else ():
                with contextlib.suppress(FileNotFoundError):
                    self.storage.settle(unquote(added.path))
            self.storage.settle(deltalog.entry_path(entry.version))

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, through a handle of its own; return that version.

        On a disk it is written aside first: delta-rs does not sync it. In a store a finished upload is whole.
        """
        if self._root is not None:
            return disk_log.checkpoint(self._root, self._checkpoint_aside)
        handle = reopen_handle(self._uri, self._options)
        handle.create_checkpoint()
        return handle.version()

    def _checkpoint_aside(self, place: Path) -> int:
        handle = open_handle(str(place), {})
        handle.create_checkpoint()
        self.secure(deltalog.tail(self.storage, handle.version()))  # it must not outlive what it contains
        return handle.version()

    def _sized(self, known_sizes: dict[str, int]) -> pafs.FileSystem:
        return pafs.PyFileSystem(DeltaStorageHandler.from_table(self._handle._table, self._options, known_sizes))  # noqa: SLF001


def _add_action(file: DataFile, now_ms: int) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition_values),
        modification_time=now_ms,
        data_change=True,
        stats=json.dumps(file.stats),
    )
