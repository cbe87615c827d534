"""How a table's log is looked at and added to: by delta-rs in a store, without it on a local disk.

A commit of delta-rs lists the log three times and takes in every live file of the table, twice. A store is asked for
the end of the log only, and compaction keeps live files few; but on a disk each listing is of the whole folder: twice
the CPU after 3,000 entries, ten times after 20,000. All that a commit needs there is that nobody else has the slot, and
that is what a hard link tells, which is how delta-rs puts entries on a disk, too. The tables that we write have no
feature that would ask for more (`table_rules`); delta-rs opens and checkpoints them all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote

import pyarrow.fs as pafs
from deltalake import CommitProperties, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from ingestor.delta import deltalog
from ingestor.delta.disk_log import checkpoint, put_entry
from ingestor.delta.held import sync
from ingestor.delta.open import believed, open_handle, reopen_handle, storage_of
from ingestor.delta.storage import LocalStorage, local_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from deltalake import DeltaTable

    from ingestor.delta.storage import Storage
    from ingestor.records import RawSchema

# Each commit of delta-rs replays the log's tail since the last checkpoint: with a checkpoint every 50 entries and a
# handle reopened on it a commit costs 5-10 ms, without it 100 ms after 1,000 entries (bench/commit.py).
CHECKPOINT_EVERY = 50
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_PLAIN_IN_PATHS = "/=:@!$&'()*+,;"  # what stands in a URL's path as it is


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


class TableLog(Protocol):
    """The log of one table, seen from one handle."""

    @property
    def storage(self) -> Storage:
        """The table's files, the log's among them."""

    def newest(self, seen: int) -> int | None:
        """Return the newest version, None if there is none, for someone who has seen the log up to a version."""

    def put(self, version: int, entry: NewEntry, *, after: bytes | None) -> None:
        """Put one entry at a version or nowhere, right after the entry of this fingerprint.

        Whatever is raised, the entry may be there.
        """

    def secure(self, entries: Iterable[deltalog.Entry]) -> None:
        """Return only when entries that somebody put survive a power cut: ours is not to outlive those it follows."""

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, through a handle of its own; return that version."""


def open_log(uri: str, schema: RawSchema, options: Mapping[str, str], handle: DeltaTable) -> TableLog:
    """Return the log of a table that was just opened."""
    root = local_root(uri)
    if root is not None:
        return DiskLog(root, schema, handle.version(), lambda: reopen_handle(uri, options))
    return StoreLog(uri, schema, options, handle)


class StoreLog:
    """The log of a table in a store: a handle of delta-rs, followed from version to version and committed through.

    delta-rs must neither rebase (`max_commit_retries=0`) nor run hooks after the commit, for a hook that fails looks
    like a commit that failed.
    """

    def __init__(self, uri: str, schema: RawSchema, options: Mapping[str, str], handle: DeltaTable) -> None:
        self._uri = uri
        self._options = dict(options)
        self._schema = Schema.from_arrow(schema.table)
        self._partition_by = schema.partition_by
        self._handle = handle
        self._opened_at = handle.version()
        self.storage = storage_of(uri, self._options, self._sized)

    def newest(self, seen: int) -> int:  # noqa: ARG002 - the handle has its own idea of what was seen
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

    def put(self, version: int, entry: NewEntry, *, after: bytes | None) -> None:  # noqa: ARG002 - the handle knows
        """Put one entry right after the version that the handle is at."""
        if version != self._handle.version() + 1:
            msg = f"a handle at version {self._handle.version()} can't put version {version}"
            raise AssertionError(msg)
        now_ms = _now_ms()
        self._handle.create_write_transaction(
            [_add_action(file, now_ms) for file in entry.files],
            mode="append",
            schema=self._schema,
            partition_by=self._partition_by,
            commit_properties=CommitProperties(
                max_commit_retries=0,
                app_transactions=[Transaction(app_id, version, now_ms) for app_id, version in entry.txns.items()],
                custom_metadata=dict(entry.info),
            ),
            post_commithook_properties=NO_HOOKS,
        )

    def secure(self, entries: Iterable[deltalog.Entry]) -> None:
        """Do nothing: what can be read is durable."""

    def checkpoint(self) -> int:
        """Write it where it belongs: a finished upload is whole."""
        handle = reopen_handle(self._uri, self._options)
        handle.create_checkpoint()
        return handle.version()

    def _sized(self, known_sizes: dict[str, int]) -> pafs.FileSystem:
        return pafs.PyFileSystem(DeltaStorageHandler.from_table(self._handle._table, self._options, known_sizes))  # noqa: SLF001


class DiskLog:
    """The log of a table on a local disk: what comes next is looked for by name, and put by a hard link."""

    def __init__(self, root: Path, schema: RawSchema, at_version: int, open_whole: Callable[[], object]) -> None:
        """Take the log of a table that was just opened at a version; `open_whole` refuses a log that is damaged."""
        self.storage = LocalStorage(root)
        self._log = root / deltalog.LOG_DIR
        self._partition_by = schema.partition_by
        self._open_whole = open_whole
        self._opened_at = at_version

    def newest(self, seen: int) -> int | None:
        """Go on from what was seen, entry by entry, and list them all where that may stop too early."""
        found = seen
        while self.storage.exists(deltalog.entry_path(found + 1)):
            found += 1
        newest = deltalog.newest_version(self.storage) if self._cleaned_up_behind(seen, found) else found
        if newest is not None and newest - self._opened_at >= CHECKPOINT_EVERY:
            self._open_whole()  # checkpoints are nothing that we read: others do
            self._opened_at = newest
        return newest

    def _cleaned_up_behind(self, seen: int, found: int) -> bool:
        """Tell whether the slot after what was found may be empty because its entry was cleaned up, and more follow.

        Entries go in no certain order, but only those before a checkpoint, and there is a hint which is the last one.
        Asked after that slot was found empty, so a clean-up that emptied it has its checkpoint hinted at by then.
        """
        hinted = deltalog.checkpointed(self.storage)
        if hinted is None:  # never checkpointed, unless somebody removed the hint
            return not all(self.storage.exists(deltalog.entry_path(version)) for version in (0, seen))
        return hinted > found or not self.storage.exists(deltalog.entry_path(seen))

    def put(self, version: int, entry: NewEntry, *, after: bytes | None) -> None:
        """Write the entry aside, sync it, and link it to its slot: it is never seen in part, not after a power cut.

        Nothing is put after another entry than the one that was compared: while a disk was away the table may have been
        replaced.
        """

        def compare() -> None:
            if deltalog.fingerprint(self.storage, version - 1) != after:
                raise FileNotFoundError(errno.ENOENT, "not there as it was", deltalog.entry_path(version - 1))

        put_entry(self._log, version, _actions(entry, self._partition_by, _now_ms()), before=compare)

    def secure(self, entries: Iterable[deltalog.Entry]) -> None:
        """Sync the log's names and, since only ingestors sync, all that other programs have written.

        A file of theirs may be gone by now, compacted and vacuumed.
        """
        for entry in entries:
            if entry.commit_id is None:
                for added in entry.adds:
                    with contextlib.suppress(FileNotFoundError):
                        self.storage.settle(unquote(added.path))
                self.storage.settle(deltalog.entry_path(entry.version))
        sync(self._log)

    def checkpoint(self) -> int:
        """Let delta-rs write it aside."""

        def write(place: Path) -> int:
            handle = open_handle(str(place), {})
            handle.create_checkpoint()
            return handle.version()

        return checkpoint(self.storage.root, write)


def _actions(entry: NewEntry, partition_by: list[str], now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the actions of an entry as delta-rs would have written them."""
    yield {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": json.dumps(partition_by)},
            **entry.info,
            "engineInfo": "ingestor",
        }
    }
    for file in entry.files:
        yield {
            "add": {
                "path": quote(file.path, safe=_PLAIN_IN_PATHS),
                "partitionValues": dict(file.partition_values),
                "size": file.size,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": json.dumps(file.stats),
            }
        }
    for app_id, last in entry.txns.items():
        yield {"txn": {"appId": app_id, "version": last, "lastUpdated": now_ms}}


def _add_action(file: DataFile, now_ms: int) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition_values),
        modification_time=now_ms,
        data_change=True,
        stats=json.dumps(file.stats),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
