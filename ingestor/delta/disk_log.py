"""The log of a table on a local disk: a power cut finds each entry and each checkpoint whole, or not at all.

delta-rs syncs nothing: after a power cut each name that it gave may stand for a file that is empty or torn, or be gone
together with the folders above it. So all that an ingestor puts into a log is written under another name, synced, and
only then given its own. tests/faults/test_power_cut.py starts from every disk that a cut may leave.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING, Any

from deltalake import Schema

from ingestor.delta import deltalog
from ingestor.delta.held import sync
from ingestor.delta.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ingestor.records import RawSchema

# VACUUM and readers leave alone what begins with an underscore.
_ASIDE = "_ingestor_aside-"
_LEFT_BEHIND_SECONDS = 3600.0


def put_entry(
    log: Path, version: int, actions: Iterable[dict[str, Any]], *, before: Callable[[], None] = lambda: None
) -> None:
    """Write an entry aside, sync it, call `before`, and link the entry to its slot; FileExistsError if that is taken.

    The name aside is none that a reader of logs takes for an entry, should a killed process leave it. The link itself
    is not synced yet.
    """
    aside = log / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        with aside.open("xb") as file:
            file.write("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions).encode())
            file.flush()
            os.fsync(file.fileno())
        before()
        (log.parent / deltalog.entry_path(version)).hardlink_to(aside)
    finally:
        with contextlib.suppress(OSError):  # what became of the entry matters more
            aside.unlink()


def create(root: Path, schema: RawSchema) -> None:
    """Create a table; FileExistsError if there is one. Whoever opens it then sees to it that it lasts."""
    log = root / deltalog.LOG_DIR
    log.mkdir(parents=True, exist_ok=True)
    put_entry(log, 0, _first_actions(schema, time.time_ns() // 1_000_000))


def _first_actions(schema: RawSchema, now_ms: int) -> list[dict[str, Any]]:
    """Return what delta-rs would have written."""
    metadata = {
        "id": str(uuid.uuid4()),
        "name": None,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(schema.table).to_json(),
        "partitionColumns": schema.partition_by,
        "createdTime": now_ms,
        "configuration": {},
    }
    told = {"timestamp": now_ms, "operation": "CREATE TABLE", "operationParameters": {}, "engineInfo": "ingestor"}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return [{"commitInfo": told}, {"protocol": protocol}, {"metaData": metadata}]


def anchor(root: Path) -> None:
    """Sync a table's folder and those above it, as far as the file system goes.

    Whoever made them may not have come to it: a process that was killed, or one that creates the table right now.
    """
    folder = root.resolve()
    device = folder.stat().st_dev
    while folder.stat().st_dev == device:
        with contextlib.suppress(PermissionError):  # may be passed through, but not read: made by somebody else
            sync(folder)
        if folder == folder.parent:
            return
        folder = folder.parent


def checkpoint(root: Path, write: Callable[[Path], int]) -> int:
    """Put a checkpoint into the log, then the hint at it; `write` makes both in a table aside and returns the version.

    That table has the same log, from the last checkpoint on, and no data files.
    """
    log = root / deltalog.LOG_DIR
    with _aside(root) as place:
        made = place / deltalog.LOG_DIR
        first = f"{deltalog.checkpointed(LocalStorage(root)) or 0:020d}"
        for name in os.listdir(log):  # noqa: PTH208 - names wanted, not paths
            if name[:20].isdecimal() and name >= first:
                (made / name).hardlink_to(log / name)
        version = write(place)
        for part in sorted(made.glob(f"{version:020d}.checkpoint*")):
            _move(part, log)
        _move(made / "_last_checkpoint", log)
    return version


@contextlib.contextmanager
def _aside(root: Path) -> Iterator[Path]:
    """Give an empty table's folder to work in; remove it afterwards, and those that killed processes left."""
    for left in root.glob(f"{_ASIDE}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    place = root / f"{_ASIDE}{uuid.uuid4().hex}"
    try:
        (place / deltalog.LOG_DIR).mkdir(parents=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _move(file: Path, folder: Path) -> None:
    """Sync a file, put it into another folder in place of one that has its name, and sync that folder."""
    sync(file)
    file.replace(folder / file.name)
    sync(folder)
