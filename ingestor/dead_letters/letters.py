"""Dead letters in the quarantine table: its columns, and an index of its files' rows.

Spark writes the files, so a timestamp may be INT96 or without a time zone; everything that is read here is converted
to `SCHEMA`. `index` reads only the narrow columns and orders the rows; `portions` then reads the letters.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.records import HEADERS, TIMESTAMP, Coordinate, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingestor.delta.storage import Storage

COORDINATES = ("stream_topic", "stream_partition", "stream_offset")
SCHEMA = pa.schema(
    [
        pa.field("stream_topic", pa.string()),
        pa.field("stream_partition", pa.int32()),
        pa.field("stream_offset", pa.int64()),
        pa.field("message_timestamp", TIMESTAMP),
        pa.field("message_payload", pa.binary()),
        pa.field("message_key", pa.binary()),
        pa.field("message_headers", HEADERS),
        pa.field("message_timestamp_type", pa.string()),
        pa.field("error_reason", pa.string()),
        pa.field("error_class", pa.string()),
        pa.field("error_message", pa.string()),
        pa.field("processing_version", pa.string()),
        pa.field("replayed_at", TIMESTAMP),
    ]
)
FILE, ROW = "file", "row"  # the file's number and the row's number in it
INT96_UNIT = "us"  # nanoseconds overflow in the year 2262


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be parsed, and why."""

    origin: Coordinate
    timestamp_ms: int | None
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    error_reason: str
    error_class: str
    error_message: str

    @property
    def size(self) -> int:
        """Return its size in bytes as a message, uncompressed."""
        texts = (self.error_reason, self.error_class, self.error_message)
        own = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + own + sum(map(len, texts))


def index(storage: Storage, paths: Sequence[str], columns: Sequence[str] = ()) -> pa.Table:
    """Return the coordinates of all rows of files, with these columns, and each row's file and row number.

    The order is that of sending: by topic, partition and offset.
    """
    names = list(dict.fromkeys((*COORDINATES, *columns)))
    parts = []
    for number, path in enumerate(paths):
        with storage.open_input(path) as source:
            table = _conformed(pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT), names)
        rows = len(table)
        table = table.append_column(FILE, pa.array(np.full(rows, number, np.int32)))
        parts.append(table.append_column(ROW, pa.array(np.arange(rows, dtype=np.int64))))
    if not parts:
        fields = [*(SCHEMA.field(name) for name in names), pa.field(FILE, pa.int32()), pa.field(ROW, pa.int64())]
        return pa.schema(fields).empty_table()
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in COORDINATES])


def _conformed(parquet: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    """Read columns and convert them to `SCHEMA`; a column that the file does not have is null."""
    present = [name for name in names if name in parquet.schema_arrow.names]
    table = parquet.read(columns=present)
    arrays = []
    for name in names:
        kind = SCHEMA.field(name).type
        arrays.append(table.column(name).cast(kind) if name in present else pa.nulls(len(table), kind))
    return pa.table(dict(zip(names, arrays, strict=True)))


def ranges(offsets: Sequence[int]) -> list[list[int]]:
    """Return sorted offsets as ranges (first and last included), to note many in a commit."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return runs


def coordinates(portion: pa.Table) -> list[Coordinate]:
    """Return the coordinates of an index's rows."""
    return [Coordinate(*row) for row in zip(*(portion.column(name).to_pylist() for name in COORDINATES), strict=True)]


def by_partition(origins: Sequence[Coordinate]) -> dict[TopicPartition, list[int]]:
    """Return the sorted offsets of each partition."""
    ordered = sorted(origins)
    return {tp: [each.offset for each in group] for tp, group in itertools.groupby(ordered, key=lambda each: each.tp)}
