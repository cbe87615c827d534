"""Proves at the start that an object store gives each log entry one winner; without that nothing is exactly once.

A store may ignore `If-None-Match`: then the later of two commits overwrites the earlier, nobody is told, and rows are
gone. So a few writers race for the entries of a scratch table, through the very calls that real commits make. Of those
only one may be told that it won, and the entry must be that one's.

A store that ignores the condition is caught whenever both have looked before either writes. They start together, so
that is nearly every round, but not each: hence three of them. A store that checks the condition and then writes, in two
steps, passes almost always: nothing but its maker's word speaks for what it does under load.
"""

from __future__ import annotations

import contextlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import TYPE_CHECKING

from ingestor.deltalog import LOG_DIR
from ingestor.errors import RefusedError
from ingestor.failures import classify
from ingestor.records import RawSchema
from ingestor.storage import local_root
from ingestor.table import RawTable

if TYPE_CHECKING:
    from collections.abc import Mapping

# VACUUM and readers leave alone what begins with an underscore.
PROBE_FOLDER = "_ingestor_probe"
_ROUNDS = 3
_WRITERS = 2
_START_SECONDS_MAX = 30.0


def probe(uri: str, storage_options: Mapping[str, str]) -> None:
    """Refuse a store that lets two writers win; a local disk does not, and needs no probe."""
    if local_root(uri) is not None:
        return
    scratch = f"{uri.rstrip('/')}/{PROBE_FOLDER}/{uuid.uuid4().hex}"
    writers: list[RawTable] = []
    try:
        writers.extend(RawTable(scratch, RawSchema(), storage_options) for _ in range(_WRITERS))
        with ThreadPoolExecutor(_WRITERS, thread_name_prefix="probe") as pool:
            for _ in range(_ROUNDS):
                _race(writers, pool, uri)
    except Exception as error:
        raise classify(error, doing=f"probing the store of table {uri}") from error
    finally:
        _clean_up(writers)


def _race(writers: list[RawTable], pool: ThreadPoolExecutor, uri: str) -> None:
    """Let both writers go for the same entry at once; refuse the store if both get it."""
    list(pool.map(RawTable.refresh, writers))
    version = writers[0].version + 1
    start = Barrier(len(writers))

    def attempt(writer: RawTable) -> tuple[str, Exception | None]:
        commit_id = uuid.uuid4().hex
        with contextlib.suppress(BrokenBarrierError):  # too slow to start together: then this round proves less
            start.wait(_START_SECONDS_MAX)
        try:
            writer.attempt((), {}, {"commit_id": commit_id})
        except Exception as error:  # noqa: BLE001 - lost, or unknown: the log tells
            return commit_id, error
        return commit_id, None

    outcomes = list(pool.map(attempt, writers))
    owner = writers[0].slot(version)
    winners = [commit_id for commit_id, error in outcomes if error is None]
    if len(winners) > 1:
        raise _refused(uri, f"{len(winners)} of {len(writers)} writers were told that they wrote the same log entry")
    if winners and owner != winners[0]:
        raise _refused(uri, "a log entry was overwritten after its writer was told that it stands")
    if owner is None:
        raise next(error for _, error in outcomes if error is not None)


def _refused(uri: str, what: str) -> RefusedError:
    msg = f"the store of table {uri} has no conditional PUT: {what}"
    return RefusedError(
        msg, hint="commits would overwrite each other: use a store, or a version of it, that honours If-None-Match"
    )


def _clean_up(writers: list[RawTable]) -> None:
    """Remove the scratch table. What a failure or a kill leaves is a few small objects that nobody reads."""
    with contextlib.suppress(OSError):
        for writer in writers[:1]:
            for name in sorted(writer.storage.list(LOG_DIR)):
                writer.storage.discard(f"{LOG_DIR}/{name}")
