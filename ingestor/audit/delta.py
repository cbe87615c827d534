"""Reads the Delta log for an audit: every existing entry, and checkpoints in place of removed ones.

The ingestor reads its positions by another reader (`deltalog`). They share no code, so a fault of that one shows here.
The log has percent-encoded paths; they are decoded when read.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from ingestor.audit.files import LiveFile
from ingestor.delta.failures import classify
from ingestor.delta.storage import local_root, open_storage, with_defaults
from ingestor.errors import RefusedError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ingestor.delta.storage import Storage

_FOLDER = "_delta_log"
_ENTRY = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint(?:\.[0-9]{10}\.([0-9]{10}))?\.parquet")
_NAMED = ("txn", "metaData", "protocol")
T = TypeVar("T")


@dataclass(slots=True)
class Entry:
    """The actions of one version."""

    version: int
    info: Mapping[str, Any] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    adds: list[LiveFile] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    takes_rows: bool = False  # a remove action has `dataChange`: rows were removed, not only moved
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    @property
    def operation(self) -> str:
        """Return the operation's name."""
        return str(self.info.get("operation") or "unnamed operation")


@dataclass(slots=True)
class Checkpoint:
    """The whole table at one version; readers need no older entries."""

    version: int
    files: dict[str, LiveFile] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None


def open_table(uri: str, storage_options: Mapping[str, str]) -> Storage:
    """Return a table's files; options have the same meaning as in delta-rs."""
    options = dict(storage_options) if local_root(uri) is not None else with_defaults(storage_options)
    try:
        return open_storage(uri, lambda: pafs.PyFileSystem(DeltaStorageHandler(uri, options)))
    except (DeltaError, OSError, ValueError) as error:
        raise classify(error, doing=f"opening table {uri}") from error


class DeltaLog:
    """The log as of the start of the audit; later commits are ignored."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        with _reading("the list of log entries"):
            names = storage.list(_FOLDER)
        entries = {int(found[1]) for found in map(_ENTRY.fullmatch, names) if found}
        self._parts = _whole_checkpoints(names)
        self.newest = max((*entries, *self._parts), default=-1)
        self.first = self.newest + 1  # no entry from here on is missing
        while self.first - 1 in entries:
            self.first -= 1

    def entries(self) -> Iterator[Entry]:
        """Yield every entry from the first to the newest."""
        for version in range(self.first, self.newest + 1):
            path = f"{_FOLDER}/{version:020d}.json"
            with _reading(path):
                text = self._storage.read(path)
            if text is None:
                raise Unavailable(f"{path} was cleaned up while the log was being read; read it again")
            yield _parsed(version, path, text)

    def base(self) -> Checkpoint | None:
        """Return the oldest checkpoint before which no needed entry is missing; None if all entries exist."""
        if self.first == 0:
            return None
        for version in sorted(version for version in self._parts if version >= self.first - 1):
            found = self._checkpoint(version)
            if isinstance(found, Checkpoint):
                return found
        msg = f"the log's entries before version {self.first} are gone, and no checkpoint stands for them"
        raise RefusedError(msg, hint=f"restore {_FOLDER} from a backup; without it the table's content is unknown")

    def newest_checkpoint(self, base: Checkpoint | None) -> Checkpoint | str | None:
        """Return the checkpoint that readers begin with, or its problem; None if `base` is the newest."""
        newest = max(self._parts, default=None)
        return None if newest is None or (base and base.version == newest) else self._checkpoint(newest)

    def _checkpoint(self, version: int) -> Checkpoint | str:
        found = Checkpoint(version)
        try:
            for name in self._parts[version]:
                with _reading(f"{_FOLDER}/{name}"), self._storage.open_input(f"{_FOLDER}/{name}") as source:
                    _take_in(found, source)
        except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
            return f"checkpoint {self._parts[version][0]} can't be read ({' '.join(str(error).split())[:100]})"
        return found


def _whole_checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """Return the files of each checkpoint that is complete."""
    parts: dict[int, list[str]] = {}
    total: dict[int, int] = {}
    for found in filter(None, map(_CHECKPOINT.fullmatch, sorted(names))):
        parts.setdefault(int(found[1]), []).append(found[0])
        total[int(found[1])] = int(found[2] or 1)
    return {version: files for version, files in parts.items() if len(files) >= total[version]}


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        if isinstance(error, pa.ArrowException):
            raise  # a problem of the content, though also an OSError
        raise classify(error, doing=f"reading {what}") from error


def _parsed(version: int, path: str, text: bytes) -> Entry:
    entry = Entry(version)
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        for action in actions:
            for kind, body in action.items():
                _apply(entry, kind, body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        actions, wrong = [], str(error)
    else:
        wrong = "it is empty"
    if not actions:
        msg = f"log entry {path} is damaged ({wrong})"
        hint = (
            "if it is the newest entry, its commit was never acknowledged: remove that file and start again; "
            "else restore it from a backup"
        )
        raise RefusedError(msg, hint=hint)
    return entry


def _apply(entry: Entry, kind: str, body: Any) -> None:  # noqa: ANN401 - any JSON
    if kind == "add":
        entry.adds.append(_file(body))
    elif kind == "remove":
        entry.removes.append(unquote(_a(str, body["path"])))
        entry.takes_rows |= body.get("dataChange") is not False
    elif kind == "txn":
        entry.txns[_a(str, body["appId"])] = _a(int, body["version"])
    elif kind == "commitInfo":
        entry.info = dict(body)
    elif kind == "metaData":
        entry.metadata = dict(body)
    elif kind == "protocol":
        entry.protocol = dict(body)


def _file(body: Mapping[str, Any]) -> LiveFile:
    rows = json.loads(body.get("stats") or "{}").get("numRecords")
    new = body.get("dataChange") is not False
    return LiveFile(unquote(_a(str, body["path"])), _a(int, body["size"]), rows if type(rows) is int else None, new)


def _a(kind: type[T], value: object) -> T:
    """Return a value of the log if it has exactly this type: True and 1.5 are no integers."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _take_in(checkpoint: Checkpoint, source: pa.NativeFile) -> None:
    parquet = pq.ParquetFile(source)
    present = set(parquet.schema_arrow.names)
    adds = [f"add.{name}" for name in ("path", "size", "stats")] if "add" in present else []
    for batch in parquet.iter_batches(1 << 14, columns=[*adds, *(name for name in _NAMED if name in present)]):
        for kind in batch.schema.names:
            for body in batch.column(kind).drop_null().to_pylist():
                if kind == "add" and body["path"] is not None:
                    file = _file(body)
                    checkpoint.files[file.path] = file
                elif kind == "txn" and body["appId"] is not None:
                    checkpoint.txns[body["appId"]] = int(body["version"])
                elif kind == "metaData" and body["id"] is not None:
                    checkpoint.metadata = body
                elif kind == "protocol" and body["minReaderVersion"] is not None:
                    checkpoint.protocol = body
