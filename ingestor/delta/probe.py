"""Proves at the start that a place gives each log entry one winner; without that nothing is exactly once.

On a local disk a hard link does, so a file and a link to it are made and removed beside the table. A file system
without hard links (FAT, exFAT, most mounts of object stores) is refused as what it is.

A store may ignore `If-None-Match`: then the later of two commits overwrites the earlier, nobody is told, and rows are
gone. Or it may check the condition and then write, in two steps: then all who check before the first has written win.
So writers race for the entries of a scratch table, through the very call that puts real commits, each over a connection
of its own. Of those only one may be told that it won, and the entry must be that one's.

A store of the second kind passes a round by luck if its first writer is done before the next one checks. How many of
100 rounds passed on two cores under heavy load (tests/faults/test_probe.py measures it), with entries of 16 KiB:

| writers | s3s-fs 0.14.1 | Adobe S3Mock 5.2.0 |
|---|---|---|
| 2 | 38 | 33 |
| 4 | 20, 22, 22 | 31, 39, 41, 49 |

So 24 rounds of four writers pass by luck once in 27 million starts at the worst of these, 0.49 (seen with 40 processes
on the two cores), and less than once in a million up to 0.56. More writers tell no more per request, for the threads of
one process don't start together. Each costs two requests a round, a listing and the PUT; the whole probe costs about
370, so each store is probed once in a process (`Probed`).

What is left: a store passes more often if far less time lies between its check and its write than between the requests
of our writers (microseconds, or a network that varies by more), and one that races under load only, or between its
sites, may always pass. For those nothing speaks but their maker's word.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from ingestor.delta import deltalog
from ingestor.delta.failures import classify
from ingestor.delta.open import options_for
from ingestor.delta.storage import ObjectStorage, local_root
from ingestor.delta.table_log import NewEntry, TableLog
from ingestor.errors import RefusedError
from ingestor.records import RawSchema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# VACUUM and readers leave alone what begins with an underscore.
PROBE_FOLDER = "_ingestor_probe"
ROUNDS = 24
WRITERS = 4
_START_SECONDS_MAX = 30.0
# What has to be written between check and end: it makes the moment longer in which a second writer checks.
_ENTRY_BYTES = 16 << 10
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def probe(uri: str, storage_options: Mapping[str, str]) -> None:
    """Refuse a store that lets two writers win, and a file system without hard links."""
    root = local_root(uri)
    doing = f"probing the store of table {uri}"
    try:
        if root is not None:
            _link(root, uri)
        else:
            _race_all(uri, options_for(uri, storage_options))
    except Exception as error:
        raise classify(error, doing=doing) from error


class Probed:
    """Probes each store once in a process: what its bucket does for one table it does for all."""

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._options = storage_options
        self._locks: dict[str, threading.Lock] = {}
        self._passed: set[str] = set()
        self._lock = threading.Lock()

    def probe(self, uri: str, *, opened: bool) -> None:
        """Probe the store of a table, unless it has passed; whoever comes meanwhile waits for the outcome.

        On a disk a table that is there already is left alone until it is opened: one that is not ours stays untouched.
        """
        root = local_root(uri)
        if root is not None and not opened and (root / deltalog.LOG_DIR).exists():
            return
        store = uri if root is not None else "://".join(urlsplit(uri)[:2])
        with self._lock:
            lock = self._locks.setdefault(store, threading.Lock())
        with lock:
            if store not in self._passed:
                probe(uri, self._options)
                self._passed.add(store)


# --- a local disk ---


def _link(root: Path, uri: str) -> None:
    """Make a file and a link to it where the table is or will be, and remove both."""
    folder = root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return  # opening the table says what is wrong
    file = folder / f"{PROBE_FOLDER}_{uuid.uuid4().hex}"
    link = file.with_name(f"{file.name}_link")
    file.touch(exist_ok=False)
    try:
        link.hardlink_to(file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        msg = f"the file system of table {uri} has no hard links ({os.strerror(error.errno)})"
        raise RefusedError(
            msg,
            hint="keep the table on one that has them (ext4, xfs, NFS), not on FAT, exFAT or a mounted bucket;"
            " name a bucket by its URL",
        ) from error
    finally:
        for path in (link, file):
            with contextlib.suppress(OSError):
                path.unlink()


# --- a store ---


def _race_all(uri: str, options: Mapping[str, str]) -> None:
    """Race for one entry after the other of a scratch table, and remove it."""
    scratch = f"{uri.rstrip('/')}/{PROBE_FOLDER}/{uuid.uuid4().hex}"
    schema = RawSchema()
    handle = DeltaTable.create(
        scratch,
        Schema.from_arrow(schema.table),
        storage_options=dict(options),
        commit_properties=CommitProperties(max_commit_retries=0),
    )
    log = TableLog(scratch, schema, options, handle)
    try:
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="probe") as pool:
            for _ in range(ROUNDS):
                _race(log, pool, uri)
    finally:
        _clean_up(log)


def _race(log: TableLog, pool: ThreadPoolExecutor, uri: str) -> None:
    """Let all writers go for the same entry at once; refuse the store if more than one gets it."""
    version = log.newest() + 1
    start = Barrier(WRITERS)
    writers = [uuid.uuid4().hex for _ in range(WRITERS)]

    def attempt(writer: str) -> Exception | None:
        entry = NewEntry((), {}, {"commit_id": writer, "padding": os.urandom(_ENTRY_BYTES // 2).hex()})
        with contextlib.suppress(BrokenBarrierError):  # too slow to start together: then this round proves less
            start.wait(_START_SECONDS_MAX)
        try:
            log.put(version, entry, after=None)
        except Exception as error:  # noqa: BLE001 - lost, or unknown: the log tells
            return error
        return None

    errors = list(pool.map(attempt, writers))
    winners = [writer for writer, error in zip(writers, errors, strict=True) if error is None]
    if len(winners) > 1:
        raise _refused(uri, f"{len(winners)} of {WRITERS} writers were told that they wrote the same log entry")
    entry = deltalog.read_entry(log.storage, version)
    if entry is None:
        raise next((error for error in errors if error is not None), _refused(uri, "a log entry vanished"))
    if winners and entry.commit_id != winners[0]:
        raise _refused(uri, "a log entry was overwritten after its writer was told that it stands")


def _refused(uri: str, what: str) -> RefusedError:
    msg = f"the store of table {uri} has no conditional PUT: {what}"
    return RefusedError(
        msg, hint="commits would overwrite each other: use a store, or a version of it, that honours If-None-Match"
    )


def _clean_up(log: TableLog) -> None:
    """Remove the scratch table. What a failure or a kill leaves is a few small objects that nobody reads."""
    with contextlib.suppress(OSError, DeltaError):
        storage = log.storage
        # Listing waits without Python's lock, which deleting would hold (see `storage`).
        if isinstance(storage, ObjectStorage) and storage.list(deltalog.LOG_DIR):
            storage.files.delete_dir(deltalog.LOG_DIR)
