"""Reads data files of any writer in batches of bounded size, however large their row groups are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingestor.delta.failures import classify
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ingestor.delta.storage import Storage

    Offsets = npt.NDArray[np.int64]

TOPIC, PARTITION, OFFSET = COORDINATES = ("stream_topic", "stream_partition", "stream_offset")
_PACKED = ("message_payload", "message_key")  # may stand in a file once for many rows
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


class FileDamagedError(Exception):
    """A file can be read, but is no Parquet file of a raw table."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file as the log describes it."""

    path: str
    size: int
    rows: int | None
    new: bool = True  # its add action has `dataChange`: its rows are new, not only moved


def read(storage: Storage, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file; distinguish a damaged file from a storage failure.

    A column that the file does not have is left out: it may be older than the column.
    """
    try:
        with storage.open_input(path) as source:
            metadata = pq.read_metadata(source)
            present = metadata.schema.to_arrow_schema().names
            packed = [name for name in (TOPIC, *_PACKED) if name in present]
            parquet = pq.ParquetFile(source, metadata=metadata, read_dictionary=packed, buffer_size=_CHUNK_BYTES)
            _check_columns(parquet.schema_arrow)
            narrow = set(columns) <= set(COORDINATES)
            rows = _BATCH_ROWS if narrow else _batch_rows(parquet.metadata)
            for batch in parquet.iter_batches(batch_size=rows, columns=list(columns)):
                if any(batch.column(name).null_count for name in COORDINATES):
                    msg = "it has rows without topic, partition or offset"
                    raise FileDamagedError(msg)
                yield from map(_without_views, _unpacked(batch))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        _reread(storage, path)
        raise FileDamagedError(" ".join(str(error).split())[:200]) from error


def _unpacked(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of bounded size, without dictionary encoding."""
    packed = [
        name for name in _PACKED if name in batch.schema.names and pa.types.is_dictionary(batch.column(name).type)
    ]
    if not packed:
        yield batch
        return
    ends = np.cumsum(np.sum([_lengths(batch.column(name)) for name in packed], axis=0))
    cuts = (np.flatnonzero(np.diff(ends // _BATCH_BYTES)) + 1).tolist()
    for start, end in pairwise([0, *cuts, batch.num_rows]):
        piece = batch.slice(start, end - start)
        for name in packed:
            unpacked = piece.column(name).dictionary_decode()
            piece = piece.set_column(piece.schema.get_field_index(name), name, unpacked)
        yield piece


def _lengths(column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Return the bytes of each row's value; a null has none."""
    distinct = np.append(pc.binary_length(column.dictionary).to_numpy(zero_copy_only=False), 0)
    found: npt.NDArray[np.int64] = distinct[column.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)]
    return found.astype(np.int64)


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without view types, which a DELETE of delta-rs writes and few Arrow functions support."""
    plain = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
    return batch if plain == batch.schema else batch.cast(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def _check_columns(schema: pa.Schema) -> None:
    missing = [name for name in COORDINATES if name not in schema.names]
    if missing:
        msg = f"it has no column {', '.join(missing)}"
        raise FileDamagedError(msg)


def _batch_rows(metadata: pq.FileMetaData) -> int:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, widest)))


def _reread(storage: Storage, path: str) -> None:
    """Read a file's bytes to the end: if that works, its content is damaged, otherwise the storage has failed."""
    try:
        with storage.open_input(path) as source:
            while source.read(_CHUNK_BYTES):
                pass
    except FileNotFoundError:
        raise
    except OSError as error:
        raise classify(error, doing=f"reading {path}") from error


def partitions_of(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Offsets, Offsets]]:
    """Yield each partition of a batch with its row numbers and offsets, in the file's order."""
    topics = batch.column(TOPIC)
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    partitions = batch.column(PARTITION).to_numpy(zero_copy_only=False)
    offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    keys = (codes.astype(np.int64) << 32) + partitions
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(rows):
            tp = TopicPartition(names[codes[rows[0]]], int(partitions[rows[0]]))
            yield tp, rows, offsets[rows]
