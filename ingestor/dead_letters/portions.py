"""Reads letters in portions that fit memory, however well a file compresses them.

A file may have equal payloads once, so its size says nothing about the letters' size, and a decoded column of one row
group may exceed Arrow's 2 GiB per array. So columns stay dictionary-encoded until a letter is read, and letters count
with their decoded size. A portion ends before the letter that would exceed the limit, but has at least one. Files are
read forwards in small batches; the next portion continues where the last one ended.
"""

from __future__ import annotations

import bisect
import heapq
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.dead_letters.letters import COORDINATES, FILE, INT96_UNIT, ROW, SCHEMA, DeadLetter
from ingestor.records import TIMESTAMP, Coordinate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ingestor.delta.storage import Storage

# One Kafka transaction sends a portion: it must end well within the transaction's time-out. Memory has it several
# times: as it was read, as messages (an envelope is longer), and in librdkafka's queue.
_ROWS_MAX = 5_000
_BYTES_MAX = 16 << 20
_BATCH_ROWS = 1_024
_BATCH_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
_OPEN_MAX = 8
_TIMESTAMP = "message_timestamp"
_COLUMNS = [name for name in SCHEMA.names if name not in ("processing_version", "replayed_at")]


def portions(storage: Storage, paths: Sequence[str], found: pa.Table) -> Iterator[list[DeadLetter]]:
    """Yield the letters of an index in its order, in portions."""
    files = _Files(storage, paths)
    first = 0
    try:
        while first < len(found):
            portion = files.first_of(found.slice(first, _ROWS_MAX))
            yield portion
            first += len(portion)
    finally:
        files.close()


class _Files:
    """The files with letters; a few are open at a time."""

    def __init__(self, storage: Storage, paths: Sequence[str]) -> None:
        self._storage = storage
        self._paths = paths
        self._open: dict[int, _File] = {}

    def first_of(self, wanted: pa.Table) -> list[DeadLetter]:
        """Return the first letters of an index: as many as fit, at least one."""
        files = wanted.column(FILE).to_numpy()
        rows = wanted.column(ROW).to_numpy()
        kept = _Kept(len(wanted))
        for number in np.unique(files).tolist():
            places = np.flatnonzero(files == number)
            for place in places[np.argsort(rows[places])].tolist():
                if place < kept.end:
                    kept.put(place, self._file(number).letter(int(rows[place])))
        return kept.letters()

    def _file(self, number: int) -> _File:
        file = self._open.pop(number, None)
        if file is None:
            if len(self._open) >= _OPEN_MAX:
                self._open.pop(next(iter(self._open))).close()
            file = _File(self._storage.open_input(self._paths[number]))
        self._open[number] = file  # ordered by last use
        return file

    def close(self) -> None:
        """Close all open files."""
        for file in self._open.values():
            file.close()
        self._open.clear()


class _Kept:
    """Keeps the first letters by place, as many as fit; they may be put in any order.

    Only the last ones are dropped, so after all puts every letter before `end` is there.
    """

    def __init__(self, end: int) -> None:
        self.end = end
        self._letters: dict[int, DeadLetter] = {}
        self._last_first: list[int] = []
        self._size = 0

    def put(self, place: int, letter: DeadLetter) -> None:
        """Keep a letter; drop the last ones if there is no room for all, but never the only one."""
        self._letters[place] = letter
        heapq.heappush(self._last_first, -place)
        self._size += letter.size
        while self._size > _BYTES_MAX and len(self._letters) > 1:
            self.end = -heapq.heappop(self._last_first)
            self._size -= self._letters.pop(self.end).size

    def letters(self) -> list[DeadLetter]:
        """Return the letters by place."""
        return [self._letters[place] for place in range(self.end)]


class _File:
    """One file, read forwards; reading an earlier row starts again at its row group."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        metadata = pq.read_metadata(source)
        columns = (metadata.schema.column(number) for number in range(len(metadata.schema)))
        leaves = [column for column in columns if column.path.partition(".")[0] in _COLUMNS]
        self._parquet = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=[leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"],
            buffer_size=_CHUNK_BYTES,
            coerce_int96_timestamp_unit=INT96_UNIT,
        )
        self._present = [name for name in _COLUMNS if name in self._parquet.schema_arrow.names]
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *rows]).tolist()
        self._group: int | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._first = self._end = 0
        self._columns: dict[str, pa.Array] = {}

    def letter(self, row: int) -> DeadLetter:
        """Return the letter of a row."""
        if not self._first <= row < self._end:
            self._go_to(row)
        row -= self._first
        values: dict[str, Any] = {name: column[row].as_py() for name, column in self._columns.items()}
        micros = values.get(_TIMESTAMP)
        return DeadLetter(
            origin=Coordinate(*(values[name] for name in COORDINATES)),
            timestamp_ms=None if micros is None else micros // 1000,
            value=values.get("message_payload"),
            key=values.get("message_key"),
            headers=tuple((each["key"] or "", each["value"]) for each in values.get("message_headers") or ()),
            error_reason=values.get("error_reason") or "",
            error_class=values.get("error_class") or "",
            error_message=values.get("error_message") or "",
        )

    def _go_to(self, row: int) -> None:
        group = bisect.bisect_right(self._starts, row) - 1
        if group != self._group or row < self._first:
            self._begin(group)
        while row >= self._end:
            batch = next(self._batches)
            self._first, self._end = self._end, self._end + batch.num_rows
            self._columns = {name: batch.column(name) for name in self._present}
            if _TIMESTAMP in self._columns:  # Python's datetime ends in the year 9999
                self._columns[_TIMESTAMP] = self._columns[_TIMESTAMP].cast(TIMESTAMP).cast(pa.int64())

    def _begin(self, group: int) -> None:
        metadata = self._parquet.metadata.row_group(group)
        width = metadata.total_byte_size // max(1, metadata.num_rows)
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, width)))
        self._group = group
        self._first = self._end = self._starts[group]
        self._batches = self._parquet.iter_batches(batch_size=rows, row_groups=[group], columns=self._present)

    def close(self) -> None:
        """Close the file."""
        self._batches = iter(())
        self._source.close()
