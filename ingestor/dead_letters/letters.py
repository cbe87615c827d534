"""Dead letters as the quarantine table holds them: its columns, and how its files are read.

Spark writes the files, so a timestamp may be INT96 and a column may come without its time zone; whatever was written,
what comes out of here is `SCHEMA`. Payloads are read only for the rows that are wanted: `index` finds these and their
order from the narrow columns, `batches` fetches them in portions that fit into memory.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.records import HEADERS, TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ingestor.storage import Storage

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
# A portion is what one Kafka transaction sends: it has to be through well within the transaction's time-out.
_ROWS_MAX = 5_000
_BYTES_MAX = 32 << 20
_HEADERS = "message_headers"
_FLAT = [name for name in SCHEMA.names if name not in (_HEADERS, "replayed_at")]
_FILE, _ROW = "file", "row"  # where a row lies


class Coordinate(NamedTuple):
    """Where a record came from: what makes it that record and no other."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def tp(self) -> TopicPartition:
        """The partition it came from."""
        return TopicPartition(self.topic, self.partition)


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


def index(storage: Storage, paths: Sequence[str], columns: Sequence[str] = ()) -> pa.Table:
    """Return the coordinates of all rows of some files, with more columns if wanted, and where each row lies.

    They come in the order in which they are sent: by topic, partition and offset.
    """
    names = list(dict.fromkeys((*COORDINATES, *columns)))
    parts = []
    for number, path in enumerate(paths):
        with storage.open_input(path) as source:
            table = _conformed(_parquet(source), names)
        rows = len(table)
        table = table.append_column(_FILE, pa.array(np.full(rows, number, np.int32)))
        parts.append(table.append_column(_ROW, pa.array(np.arange(rows, dtype=np.int64))))
    if not parts:
        fields = [*(SCHEMA.field(name) for name in names), pa.field(_FILE, pa.int32()), pa.field(_ROW, pa.int64())]
        return pa.schema(fields).empty_table()
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in COORDINATES])


def portions(storage: Storage, paths: Sequence[str], found: pa.Table) -> list[pa.Table]:
    """Cut an index into portions that one transaction can send and memory can hold."""
    rows = encoded = 0
    for path in paths if len(found) else ():
        with storage.open_input(path) as source:
            metadata = pq.ParquetFile(source).metadata
        rows += metadata.num_rows
        encoded += sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    size = max(1, min(_ROWS_MAX, _BYTES_MAX * max(rows, 1) // max(encoded, 1)))
    return [found.slice(first, size) for first in range(0, len(found), size)]


def fetch(storage: Storage, paths: Sequence[str], portion: pa.Table) -> list[DeadLetter]:
    """Return the letters that a portion of an index names, in its order; row groups without any are not read."""
    files = portion.column(_FILE).to_numpy()
    rows = portion.column(_ROW).to_numpy()
    letters: dict[tuple[int, int], DeadLetter] = {}
    for number in np.unique(files).tolist():
        wanted = np.sort(rows[files == number])
        with storage.open_input(paths[number]) as source:
            for row, letter in _rows_of(_parquet(source), wanted):
                letters[number, row] = letter
    return [letters[place] for place in zip(files.tolist(), rows.tolist(), strict=True)]


def _rows_of(parquet: pq.ParquetFile, wanted: Any) -> Iterator[tuple[int, DeadLetter]]:  # noqa: ANN401 - numpy
    first = 0
    for group in range(parquet.metadata.num_row_groups):
        end = first + parquet.metadata.row_group(group).num_rows
        here = wanted[(wanted >= first) & (wanted < end)]
        if len(here):
            places = pa.array(here - first)
            table = _conformed(parquet, _FLAT, group=group).take(places)
            yield from zip(here.tolist(), _letters(table, _headers(parquet, group, here - first)), strict=True)
        first = end


def _headers(parquet: pq.ParquetFile, group: int, places: Any) -> list[Any]:  # noqa: ANN401 - numpy
    """Return the headers of some rows; one by one, for Arrow can't take from all that its writers nest in a list."""
    if _HEADERS not in parquet.schema_arrow.names:
        return [None] * len(places)
    column = parquet.read_row_group(group, columns=[_HEADERS]).column(_HEADERS)
    return [column[place].as_py() for place in places.tolist()]


def _letters(table: pa.Table, headers: Sequence[Any]) -> Iterator[DeadLetter]:
    micros = table.column("message_timestamp").cast(pa.int64()).to_pylist()  # Python's datetime ends at 9999
    columns = table.drop_columns(["message_timestamp"]).to_pylist()
    for row, micro, own in zip(columns, micros, headers, strict=True):
        yield DeadLetter(
            origin=Coordinate(*(row[name] for name in COORDINATES)),
            timestamp_ms=None if micro is None else micro // 1000,
            value=row["message_payload"],
            key=row["message_key"],
            headers=tuple((each["key"] or "", each["value"]) for each in own or ()),
            error_reason=row["error_reason"] or "",
            error_class=row["error_class"] or "",
            error_message=row["error_message"] or "",
        )


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")  # nanoseconds would end in the year 2262


def _conformed(parquet: pq.ParquetFile, names: Sequence[str], *, group: int | None = None) -> pa.Table:
    """Read columns and make them what `SCHEMA` says; one that the file has not got is null."""
    present = [name for name in names if name in parquet.schema_arrow.names]
    table = parquet.read(columns=present) if group is None else parquet.read_row_group(group, columns=present)
    arrays = []
    for name in names:
        kind = SCHEMA.field(name).type
        if name not in present:
            arrays.append(pa.nulls(len(table), kind))
        else:
            arrays.append(table.column(name).cast(kind))
    return pa.table(dict(zip(names, arrays, strict=True)))


def ranges(offsets: Sequence[int]) -> list[list[int]]:
    """Return sorted offsets as ranges, first and last included: what a commit can note of many."""
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
