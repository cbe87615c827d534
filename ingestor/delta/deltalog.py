"""Reads the Delta log itself: one entry at a time, and all txn actions of a snapshot in one pass.

delta-rs answers what the newest snapshot holds; it can't say what one entry holds, and it looks up one txn at a time
(27 s for 1,000 partitions on a long log). Both are needed here, and both are plain reads of small files.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.delta.commit_info import missing
from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LOG_DIR = "_delta_log"


class Files(Protocol):
    """The files of one table, by path relative to its root."""

    def read(self, path: str) -> bytes | None:
        """Return the whole file, or None if it does not exist."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reading here and there; FileNotFoundError if it does not exist."""

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder of the table; empty if there is no such folder."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """An `add` action: a data file that became part of the table."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    stats: Mapping[str, Any]
    data_change: bool = True

    @property
    def rows(self) -> int | None:
        """Return the number of rows, where the statistics tell."""
        rows = self.stats.get("numRecords")
        return rows if type(rows) is int else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log: everything that one commit did."""

    version: int
    commit_info: Mapping[str, Any] = field(default_factory=dict)
    adds: tuple[AddedFile, ...] = ()
    removes: tuple[str, ...] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    takes_data: bool = False  # a file is removed whose rows are not in another file of the same entry

    @property
    def commit_id(self) -> str | None:
        """Return the id under which an ingestor wrote this entry, None if another program did."""
        value = self.commit_info.get("commit_id")
        return value if isinstance(value, str) else None


def entry_path(version: int) -> str:
    """Return where the log entry of a version stands."""
    return f"{LOG_DIR}/{version:020d}.json"


def parse_entry(version: int, text: bytes) -> Entry:
    """Parse one log entry; refuse one that is empty or cut off, as power loss leaves it (see `commit_info`)."""
    try:
        return _entry(version, [json.loads(line) for line in text.splitlines() if line.strip()])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"log entry {entry_path(version)} is damaged ({error})"
        raise RefusedError(msg, hint=_DAMAGED_HINT) from error


_DAMAGED_HINT = (
    "if a power cut tore the newest entry, its commit was never acknowledged: `ingestor repair CONFIG` proves that and "
    "sets it aside; else restore it from a backup"
)


def _entry(version: int, actions: list[dict[str, Any]]) -> Entry:
    if not actions:
        raise ValueError("it is empty")
    one: dict[str, Any] = {}
    txns: dict[str, int] = {}
    adds: list[AddedFile] = []
    removes: list[str] = []
    takes_data = False
    for action in actions:
        for kind, body in action.items():
            if kind == "txn":
                txns[_text(body["appId"])] = _whole(body["version"])
            elif kind == "add":
                adds.append(_added(body))
            elif kind == "remove":
                removes.append(_text(body["path"]))
                takes_data |= body.get("dataChange", True) is not False
            else:
                one[kind] = _mapping(body)
    info = one.get("commitInfo", {})
    if lacking := missing(info, actions=len(actions), txns=len(txns)):
        raise ValueError(lacking)
    return Entry(
        version=version,
        commit_info=info,
        adds=tuple(adds),
        removes=tuple(removes),
        txns=txns,
        metadata=one.get("metaData"),
        protocol=one.get("protocol"),
        takes_data=takes_data,
    )


def _added(body: Mapping[str, Any]) -> AddedFile:
    return AddedFile(
        path=_text(body["path"]),
        size=_whole(body["size"]),
        partition_values=_mapping(body.get("partitionValues") or {}),
        stats=_mapping(json.loads(body.get("stats") or "{}")),
        data_change=body.get("dataChange", True) is not False,
    )


# A damaged value is refused where it is read: later it would look like a bug, or like another position.


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, found {type(value).__name__}")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number expected, found {type(value).__name__}")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(value, dict):
        raise TypeError(f"an object expected, found {type(value).__name__}")
    return value


def read_entry(files: Files, version: int) -> Entry | None:
    """Return the entry of a version, or None if the log has none."""
    text = files.read(entry_path(version))
    return None if text is None else parse_entry(version, text)


def fingerprint(files: Files, version: int) -> bytes | None:
    """Return what tells a log entry from any other that may take its place, None if there is no entry."""
    text = files.read(entry_path(version))
    return None if text is None else hashlib.blake2b(text, digest_size=16).digest()


def newest_version(files: Files) -> int | None:
    """Return the newest version that an entry or a checkpoint tells of, by listing them all; None if there is none."""
    entries, checkpoints = versions(files)
    return max((*entries, *checkpoints), default=None)


def versions(files: Files) -> tuple[list[int], list[int]]:
    """Return the versions of all entries and of all checkpoints that there are."""
    names = files.list(LOG_DIR)
    return _versions(names), [found[0] for found in map(_checkpoint_name, names) if found is not None]


def checkpointed(files: Files) -> int | None:
    """Return the version of the checkpoint that the hint file names, None if it names none or there is none."""
    return _hint(files)[0]


def _versions(names: Iterable[str]) -> list[int]:
    return [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)]


def _hint(files: Files) -> tuple[int | None, int | None]:
    """Return version and number of parts of the checkpoint that the hint file names; a torn one names none."""
    try:
        hint = json.loads(files.read(f"{LOG_DIR}/_last_checkpoint") or b"{}")
    except ValueError:
        return None, None
    version = hint.get("version") if isinstance(hint, dict) else None
    return (version, hint.get("parts")) if isinstance(version, int) else (None, None)


def refuse_damage(files: Files) -> None:
    """Refuse a log whose newest entry or checkpoint is damaged, and name it: for when a table can't be opened."""
    newest = max(_versions(files.list(LOG_DIR)), default=None)
    if newest is None:
        return
    read_entry(files, newest)
    for _, paths in _checkpoints(files, newest):
        try:
            _checkpoint_txns(files, paths)
        except (pa.ArrowException, FileNotFoundError) as error:
            msg = f"checkpoint {paths[0]} is damaged ({' '.join(str(error).split())[:100]})"
            raise RefusedError(msg, hint=_CHECKPOINT_HINT) from error
        return


_CHECKPOINT_HINT = (
    f"remove that file and {LOG_DIR}/_last_checkpoint, for the log's entries say the same, and start again; "
    "if older entries were cleaned up and no older checkpoint is left, restore it from a backup"
)


def entries(files: Files, first: int, last: int) -> Iterator[Entry]:
    """Yield the entries of a range of versions; raise LookupError at one that is gone."""
    for version in range(first, last + 1):
        entry = read_entry(files, version)
        if entry is None:
            raise LookupError(entry_path(version))
        yield entry


def tail(files: Files, version: int) -> Iterator[Entry]:
    """Yield the entries after the last checkpoint, up to a version; those that are cleaned up are left out."""
    for found in range((checkpointed(files) or -1) + 1, version + 1):
        entry = read_entry(files, found)
        if entry is not None:
            yield entry


def txns_at(files: Files, version: int) -> dict[str, int]:
    """Return every txn of the snapshot at a version: those of the last checkpoint, then the entries after it."""
    for checkpoint, paths in _checkpoints(files, version):
        try:
            found = _checkpoint_txns(files, paths)
        except (pa.ArrowException, LookupError, OSError):
            continue  # a damaged or half-removed checkpoint: an older one, or the log from its start, will do
        return _replay(files, found, checkpoint + 1, version)
    return _replay(files, {}, 0, version)


def _replay(files: Files, txns: dict[str, int], first: int, last: int) -> dict[str, int]:
    try:
        for entry in entries(files, first, last):
            txns.update(entry.txns)
    except LookupError as gone:
        msg = f"the log can't be read up to version {last}: {gone.args[0]} is missing"
        raise RefusedError(msg, hint="restore the file; without it nobody can tell where ingestion ended") from gone
    return txns


def _checkpoints(files: Files, version: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the checkpoints at or before a version, newest first: the hint file's, then what a listing shows."""
    hinted, hinted_parts = _hint(files)
    if hinted is not None and hinted <= version:
        yield hinted, _checkpoint_paths(hinted, hinted_parts)
    if hinted is None and files.read(entry_path(0)) is not None:
        return  # never checkpointed: no need to list a log that may be long
    present = set(files.list(LOG_DIR))
    for found, parts in sorted(filter(None, map(_checkpoint_name, present)), key=lambda key: key[0], reverse=True):
        paths = _checkpoint_paths(found, parts)
        if found <= version and present.issuperset(path.removeprefix(f"{LOG_DIR}/") for path in paths):
            yield found, paths


def _checkpoint_name(name: str) -> tuple[int, int | None] | None:
    """Return version and number of parts (None: one file) of a checkpoint file's name, None for any other name."""
    match = re.fullmatch(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet", name)
    return None if match is None else (int(match[1]), None if match[2] is None else int(match[2]))


def _checkpoint_paths(version: int, parts: int | None) -> list[str]:
    if parts is None:
        return [f"{LOG_DIR}/{version:020d}.checkpoint.parquet"]
    return [f"{LOG_DIR}/{version:020d}.checkpoint.{n:010d}.{parts:010d}.parquet" for n in range(1, parts + 1)]


def _checkpoint_txns(files: Files, paths: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in paths:
        with files.open_input(path) as source:
            parquet = pq.ParquetFile(source)
            if "txn" not in parquet.schema_arrow.names:
                continue
            for batch in parquet.iter_batches(columns=["txn.appId", "txn.version"]):
                txns = (row for row in batch.column("txn").drop_null().to_pylist() if row["appId"] is not None)
                found.update((row["appId"], row["version"]) for row in txns)
    return found
