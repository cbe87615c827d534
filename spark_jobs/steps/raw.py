"""The raw table as parsing reads it: what each version added, in batches, without the rows that are deleted by then.

Reading begins with the files that are live, then follows the log. Compaction moves rows and adds none, so it is passed
over. An entry that removes files as well as it adds some (a DELETE, a MERGE, an overwrite) is a batch of its own: new
are those of its rows whose coordinates are not in the files that it removes. Rows that a later version deleted or
changed are read from that version: what is gone there does not reach silver, what was blanked there stays blank.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ingestor.errors import DataLossError, RefusedError
from ingestor.records import COORDINATES
from spark_jobs.rows.duplicates import Range, within
from spark_jobs.rows.parsing import EXTRAS
from spark_jobs.runtime.places import Files, TableLog, spark_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

BATCH_BYTES = 1 << 30  # of raw files per batch: what is parsed waits in memory and on disk for two writes
BATCH_FILES = 10_000  # a claim names them all
_READER_MAX = 1
_IDLE_ENTRIES_MAX = 20  # that add no rows, before the reading position moves past them
_ABSOLUTE = ("/", "file:", "s3", "hdfs:", "abfs", "gs:", "wasb")
_RAW = (*COORDINATES, "message_timestamp", "message_payload")


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading goes on: at which file of which version; `snapshot`: of all files that were live in it."""

    version: int
    index: int = 0
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step reads."""

    files: tuple[str, ...]  # as the log names them
    version: int  # the newest one when the batch was cut
    deleted: bool  # whether rows may have been deleted between the files and that version
    end: Position
    replaced: tuple[str, ...] = ()  # files whose rows were there before: the others of `files` are new


@dataclass(frozen=True, slots=True)
class _Entry:
    """What an entry of the log changes; what only moves rows is not in it."""

    adds: tuple[tuple[str, int], ...]  # path and bytes
    removes: tuple[str, ...]

    @property
    def rewrites(self) -> bool:
        """Tell whether rows of the added files may have been there before."""
        return bool(self.adds and self.removes)


class Raw:
    """One route's raw table."""

    def __init__(self, session: SparkSession, table: str, keep: str) -> None:
        """Take a folder to keep the list of files in that a first parse of several batches begins with."""
        self._session = session
        self._files = Files(session)
        self._keep = keep
        self._entries: dict[int, _Entry] = {}
        self.table = table
        self.log = TableLog(session, table)

    def require_readable(self) -> None:
        """Refuse a table that is not laid out as the ingestor lays it out, and one whose newest entry is torn."""
        self.log.require_whole()
        snapshot = self.log.snapshot()
        reader = int(snapshot.protocol().minReaderVersion())
        if reader > _READER_MAX:
            msg = f"raw table {self.table} needs Delta reader version {reader}, the ingestor's has {_READER_MAX}"
            raise RefusedError(msg, hint="drop the table feature that somebody has added to it")
        missing = [name for name in _RAW if name not in self._schema().names]
        if missing:
            hint = "name the table that the ingestor writes as routes.….table"
            raise RefusedError(f"table {self.table} is no raw table: {missing[0]} is missing", hint=hint)

    def next(self, begin: Position | None, head: int) -> Batch | None:
        """Return what to read from a position on, up to a version; None if there is nothing."""
        if begin is None or begin.snapshot:
            return self._of_snapshot(begin)
        if begin.version > head:
            return None
        files: list[str] = []
        replaced: tuple[str, ...] = ()
        size, at = 0, begin
        for version in range(begin.version, head + 1):
            entry = self._entry(version)
            if files and (replaced or entry.rewrites):
                break
            replaced = entry.removes if entry.rewrites else ()
            start = begin.index if version == begin.version else 0
            for index in range(start, len(entry.adds)):
                if files and (size >= BATCH_BYTES or len(files) >= BATCH_FILES):
                    return self._batch(files, begin.version, Position(version, index), replaced)
                files.append(entry.adds[index][0])
                size += entry.adds[index][1]
            at = Position(version + 1)
        if not files and at.version - begin.version < _IDLE_ENTRIES_MAX:
            return None
        return self._batch(files, begin.version, at, replaced)

    def deleted_since(self, version: int) -> bool:
        """Tell whether the log says that rows were deleted or changed after a version."""
        later = range(version + 1, self.log.version + 1)
        return any(_read(text).removes for text in map(self.log.entry, later) if text is not None)

    def _of_snapshot(self, begin: Position | None) -> Batch:
        version, index, listed = self._live(begin)
        files: list[str] = []
        size = 0
        for path, length in listed[index:]:
            if files and (size >= BATCH_BYTES or len(files) >= BATCH_FILES):
                break
            files.append(path)
            size += length
        index += len(files)
        whole = index == len(listed)
        if not whole and begin is None:
            self._files.create(self._list_path(version), json.dumps(listed))
        return self._batch(files, version + 1, Position(version + 1) if whole else Position(version, index, True))

    def _live(self, begin: Position | None) -> tuple[int, int, list[tuple[str, int]]]:
        """Return a version, where in its files to go on, and its files with their bytes."""
        if begin is not None:
            text = self._files.read(self._list_path(begin.version))
            if not text:
                msg = f"the list of raw files, {self._list_path(begin.version)}, is gone from the checkpoint"
                raise RefusedError(msg, hint="bring it back, or run `spark_jobs reset`")
            return begin.version, begin.index, [(path, size) for path, size in json.loads(text)]
        snapshot = self.log.snapshot()
        rows = DataFrame(snapshot.allFiles().toDF(), self._session).select("path", "size").collect()
        return int(snapshot.version()), 0, sorted((row["path"], row["size"]) for row in rows)

    def _list_path(self, version: int) -> str:
        return f"{self._keep}/files-{self.log.table_id}-{version}.json"

    def _batch(self, files: Sequence[str], since: int, end: Position, replaced: tuple[str, ...] = ()) -> Batch:
        newest = self.log.version
        deleted = any(self._entry(version).removes for version in range(since, newest + 1)) if files else False
        return Batch(tuple(files), newest, deleted, end, replaced)

    def _entry(self, version: int) -> _Entry:
        """Return what an entry adds; refuse to pass over one that is gone."""
        if version not in self._entries:
            text = self.log.entry(version)
            if text is None:
                msg = f"log entries of {self.table} from version {version} on are gone, but not parsed yet"
                raise DataLossError(msg, hint="`spark_jobs reset` reads what is left from the table's start")
            self._entries[version] = _read(text)
        return self._entries[version]

    def rows(self, batch: Batch) -> DataFrame:
        """Return a batch's rows."""
        rows = self._rows_of(batch.files)
        if batch.replaced:
            before = self._rows_of(batch.replaced).select(*COORDINATES)
            rows = rows.join(before, list(COORDINATES), "left_anti").select(*rows.columns)
        return self._left(rows, batch.version) if batch.deleted else rows

    def _rows_of(self, files: Sequence[str]) -> DataFrame:
        folder = spark_path(self.table)
        paths = [unquote(each) for each in files]
        whole = [path if path.startswith(_ABSOLUTE) else f"{folder}/{path}" for path in paths]
        reader = self._session.read.schema(self._schema())
        return reader.option("__globPaths__", "false").parquet(*whole)  # names are names, not patterns

    def _left(self, rows: DataFrame, version: int) -> DataFrame:
        """Return those of the rows that a version has, as they are there."""
        parts = rows.groupBy("stream_topic", "stream_partition").agg(F.min("stream_offset"), F.max("stream_offset"))
        ranges = [Range(*part) for part in parts.collect()]
        there = within(self.log.at(version).select(*rows.columns), ranges)
        return there.join(rows.select(*COORDINATES).distinct(), list(COORDINATES), "left_semi").select(*rows.columns)

    def _schema(self) -> StructType:
        """Return the table's columns as far as parsing reads them; files that lack one have nulls there."""
        told: dict[str, Any] = json.loads(str(self.log.snapshot().schema().json()))
        fields = [{**field, "nullable": True, "metadata": {}} for field in told["fields"]]
        wanted = [field for field in fields if field["name"] in (*_RAW, *EXTRAS)]
        return StructType.fromJson({"type": "struct", "fields": wanted})


def _read(text: str) -> _Entry:
    """Return what an entry of the log changes."""
    adds, removes = [], []
    for line in text.splitlines():
        if line.startswith('{"add"'):
            add = json.loads(line)["add"]
            if add.get("dataChange", True):
                adds.append((str(add["path"]), int(add.get("size") or 0)))
        elif line.startswith('{"remove"'):
            remove = json.loads(line)["remove"]
            if remove.get("dataChange", True):
                removes.append(str(remove["path"]))
    return _Entry(tuple(adds), tuple(removes))
