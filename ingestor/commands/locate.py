"""Finds one record: the file that holds it, and the commit that landed it.

The newest version's file statistics name the files that may hold the record, and only those are opened. The log is
then read backwards to the commit that landed it. OPTIMIZE moves rows to other files, so that may not be the entry that
added the file. If log clean-up has removed it, the commit is unknown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from ingestor.audit.files import COORDINATES, FileDamagedError, partitions_of, read
from ingestor.delta import deltalog
from ingestor.delta.open import open_existing
from ingestor.delta.stats import live_files
from ingestor.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ingestor.delta.storage import Storage
    from ingestor.ledger import AppIds
    from ingestor.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Commit:
    """A log entry: its version, time, operation, and commit id if it is ours."""

    version: int
    time: datetime | None
    operation: str
    commit_id: str | None

    @classmethod
    def of(cls, entry: deltalog.Entry) -> Commit:
        """Return the commit of a log entry."""
        info = entry.commit_info
        stamp = info.get("timestamp")
        time = None if stamp is None else datetime.fromtimestamp(stamp / 1000, UTC)
        return cls(entry.version, time, str(info.get("operation", "unknown")), entry.commit_id)

    def text(self) -> str:
        """Return the commit as text for people."""
        time = "at a time not recorded" if self.time is None else self.time.isoformat(" ")
        ours = "" if self.commit_id is None else f", commit {self.commit_id}"
        return f"version {self.version}, {time} ({self.operation}{ours})"

    def to_json(self) -> dict[str, Any]:
        """Return the commit as an object for JSON."""
        return {**asdict(self), "time": None if self.time is None else self.time.isoformat()}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record is in the table, and which commits put it there."""

    tp: TopicPartition
    offset: int
    table_version: int  # the version that was searched
    file: str
    file_added: Commit | None  # None: no longer in the log
    landed: Commit | None  # differs from `file_added` if OPTIMIZE moved the record
    elsewhere: tuple[str, ...] = ()  # other files that hold it: normally none

    @property
    def moved(self) -> bool:
        """Return whether the record is known to have been moved to another file."""
        return self.file_added is not None and self.file_added != self.landed

    def to_json(self) -> dict[str, Any]:
        """Return the location as an object for JSON."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "offset": self.offset,
            "table_version": self.table_version,
            "file": self.file,
            "file_added": None if self.file_added is None else self.file_added.to_json(),
            "landed": None if self.landed is None else self.landed.to_json(),
            "elsewhere": list(self.elsewhere),
        }

    def lines(self) -> Iterator[str]:
        """Yield the location for people."""
        landed = "not known: the log was cleaned up" if self.landed is None else self.landed.text()
        yield f"{self.tp} offset {self.offset} is in table version {self.table_version}"
        yield f"file:   {self.file}"
        yield f"landed: {landed}"
        if self.file_added is not None and self.moved:
            yield f"moved:  {self.file_added.text()}"
        yield from (f"again:  {path} — run `ingestor audit`" for path in self.elsewhere)


def locate(
    uri: str,
    storage_options: Mapping[str, str],
    app_ids: AppIds,
    tp: TopicPartition,
    offset: int,
) -> Location | None:
    """Return where a record is in the newest version of a table, None if it is not there."""
    found = open_existing(uri, storage_options)
    if found is None:
        msg = f"there is no table at {uri}"
        raise ConfigError(msg, hint="correct the route's table path, or run the ingestor first")
    version, storage = found
    live = live_files(uri, storage_options, version)
    candidates = sorted(unquote(add.path) for add in live if _may_hold(add, tp, offset))
    files = [path for path in candidates if _holds(storage, path, tp, offset)]
    if not files:
        return None
    added, landed = _commits(storage, version, files[0], app_ids.of(tp), offset)
    return Location(tp, offset, version, files[0], added, landed, tuple(files[1:]))


def _may_hold(add: deltalog.AddedFile, tp: TopicPartition, offset: int) -> bool:
    """Return whether a file may hold a record by its statistics; True without statistics."""
    record = dict(zip(COORDINATES, (tp.topic, tp.partition, offset), strict=True))
    for name, value in record.items():
        low, high = (add.stats.get(ends, {}).get(name) for ends in ("minValues", "maxValues"))
        if (low is not None and value < low) or (high is not None and value > high):
            return False
    return True


def _holds(storage: Storage, path: str, tp: TopicPartition, offset: int) -> bool:
    """Return whether a file holds a record; a file that can't be read counts as no, `ingestor audit` reports it."""
    try:
        for batch in read(storage, path, COORDINATES):
            for found, _, offsets in partitions_of(batch):
                if found == tp and bool(np.isin(offset, offsets)):
                    return True
    except (FileNotFoundError, FileDamagedError):
        return False
    return False


def _commits(
    storage: Storage, version: int, path: str, app_id: str, offset: int
) -> tuple[Commit | None, Commit | None]:
    """Return the entry that added a file, and the one that landed an offset that is in it now.

    An entry that adds a file with new data landed its rows. A rewritten file has rows of earlier entries: the offset
    was landed by the first entry whose txn of the partition reaches it.
    """
    added: deltalog.Entry | None = None
    landed: deltalog.Entry | None = None
    for entry in _backwards(storage, version):
        if added is None:
            action = next((add for add in entry.adds if unquote(add.path) == path), None)
            if action is not None and action.data_change:
                return Commit.of(entry), Commit.of(entry)
            added = None if action is None else entry
            continue
        txn = entry.txns.get(app_id)
        if txn is not None and txn < offset:
            break
        if txn is not None and any(add.data_change for add in entry.adds):
            landed = entry
        if entry.version > 0 and not storage.exists(deltalog.entry_path(entry.version - 1)):
            landed = landed if _short_before(storage, entry.version, app_id, offset) else None
    return (
        None if added is None else Commit.of(added),
        None if landed is None else Commit.of(landed),
    )


def _backwards(storage: Storage, version: int) -> Iterator[deltalog.Entry]:
    """Yield the entries of the log from the newest to the oldest that exists."""
    while version >= 0:
        entry = deltalog.read_entry(storage, version)
        if entry is None:
            return
        yield entry
        version -= 1


def _short_before(storage: Storage, version: int, app_id: str, offset: int) -> bool:
    """Return whether the txn before the oldest existing entry is known to be below an offset."""
    try:
        before = deltalog.txns_at(storage, version - 1).get(app_id)
    except RefusedError:
        return False
    return before is None or before < offset
