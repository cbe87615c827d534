"""Turns Kafka's columns into Arrow record batches of the raw schema, without redelivered records. Pure.

No Python code runs per record: a few array operations group the records by partition. Rows are removed only where a
partition has an offset below its position (a redelivery). Offsets rise within a partition but need not be contiguous:
transaction markers, aborted records and compaction leave gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ingestor.records import HEADERS, TIMESTAMP, Columns, RawSchema, TopicPartition, run_starts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

# More milliseconds than this overflow 64 bits as microseconds (year 294247).
_MAX_TIMESTAMP_MS = 2**63 // 1000 - 1
_TIMESTAMP_TYPES = pa.array([None, "CreateTime", "LogAppendTime"], pa.string())


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch holds of one partition: `count` records up to `last`, and when the first and last were written.

    The times are Kafka's, -1 where it has none; they are only ever shown.
    """

    last: int
    count: int
    first_ms: int = field(default=-1, compare=False)
    last_ms: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records ready for a file, in Kafka's order within each partition."""

    records: pa.RecordBatch
    spans: Mapping[TopicPartition, Span]
    payload_bytes: int  # payloads, keys and headers, uncompressed
    memory_bytes: int  # the columns' size in memory until they are written
    newest_ms: int  # the latest Kafka timestamp, -1 if no record has one


@dataclass(frozen=True, slots=True)
class Selection:
    """What was taken from columns: a batch (None if nothing is new), and how many records were left out."""

    batch: Batch | None
    duplicates: int
    strangers: int  # records of partitions that have no position here


def select(columns: Columns, positions: Mapping[TopicPartition, int], schema: RawSchema) -> Selection:
    """Return the records at or above their partition's position as one batch."""
    if len(columns) == 0:
        return Selection(None, 0, 0)
    order, starts = _runs(columns)
    offsets = columns.offsets if order is None else columns.offsets[order]
    all_rise = _all_rise(offsets, starts)
    spans: dict[TopicPartition, Span] = {}
    keep: npt.NDArray[np.bool_] | None = None  # None: every record
    duplicates = strangers = 0
    for tp, start, end, first, span in _spans(columns, order, offsets, starts):
        position = positions.get(tp)
        if all_rise and position is not None and first >= position:
            spans[tp] = span
            continue
        fresh = _fresh(offsets[start:end], position)
        if keep is None:
            keep = np.ones(len(columns), dtype=bool)
        keep[slice(start, end) if order is None else order[start:end]] = fresh
        taken = int(np.count_nonzero(fresh))
        if position is None:
            strangers += span.count
        else:
            duplicates += span.count - taken
        if taken:
            first_row = start + int(fresh.argmax())
            first_ms = int(columns.timestamps_ms[first_row if order is None else order[first_row]])
            spans[tp] = Span(int(offsets[start:end][fresh][-1]), taken, first_ms, span.last_ms)
    if not spans:
        return Selection(None, duplicates, strangers)
    kept = None if keep is None or keep.all() else np.flatnonzero(keep)
    return Selection(_batch(columns, kept, spans, schema), duplicates, strangers)


def _runs(columns: Columns) -> tuple[npt.NDArray[np.intp] | None, npt.NDArray[np.intp]]:
    """Return an order that makes each partition one run of rows (None: the rows are so already), and the runs' starts.

    The order within a partition is Kafka's.
    """
    keys = columns.partition_keys()
    starts = run_starts(keys)
    if len(set(keys[starts].tolist())) == len(starts):
        return None, starts
    order = np.argsort(keys, kind="stable")
    return order, run_starts(keys[order])


def _all_rise(offsets: npt.NDArray[np.int64], starts: npt.NDArray[np.intp]) -> bool:
    """Return whether offsets rise within each run, as they nearly always do."""
    rising = offsets[1:] > offsets[:-1]
    rising[starts[1:] - 1] = True  # the next run is another partition
    return bool(rising.all())


def _spans(
    columns: Columns,
    order: npt.NDArray[np.intp] | None,
    offsets: npt.NDArray[np.int64],
    starts: npt.NDArray[np.intp],
) -> Iterator[tuple[TopicPartition, int, int, int, Span]]:
    """Yield each run: its partition, start, end, first offset, and its span if all of it is taken."""
    ends = np.append(starts[1:], len(columns))
    first_rows, last_rows = (starts, ends - 1) if order is None else (order[starts], order[ends - 1])
    for start, end, code, partition, first, last, first_ms, last_ms in zip(
        starts.tolist(),
        ends.tolist(),
        columns.topic_codes[first_rows].tolist(),
        columns.partitions[first_rows].tolist(),
        offsets[starts].tolist(),
        offsets[ends - 1].tolist(),
        columns.timestamps_ms[first_rows].tolist(),
        columns.timestamps_ms[last_rows].tolist(),
        strict=True,
    ):
        span = Span(last, end - start, first_ms, last_ms)
        yield TopicPartition(columns.topics[code], partition), start, end, first, span


def _fresh(offsets: npt.NDArray[np.int64], position: int | None) -> npt.NDArray[np.bool_]:
    """Return which of a partition's offsets are at or above its position and above all earlier ones."""
    if position is None:
        return np.zeros(len(offsets), dtype=bool)
    return offsets > np.maximum.accumulate(np.concatenate(([position - 1], offsets[:-1])))


def _batch(
    columns: Columns,
    kept: npt.NDArray[np.int64] | None,
    spans: Mapping[TopicPartition, Span],
    schema: RawSchema,
) -> Batch:
    milliseconds = columns.timestamps_ms
    payload = _array(columns.values, pa.binary())
    arrays = {
        "stream_topic": pa.DictionaryArray.from_arrays(
            pa.array(columns.topic_codes, pa.int32()), pa.array(columns.topics, pa.string())
        ),
        "stream_partition": pa.array(columns.partitions, pa.int32()),
        "stream_offset": pa.array(columns.offsets, pa.int64()),
        "message_timestamp": _timestamps(milliseconds),
        "message_payload": payload,
    }
    weights = [payload]
    if "key" in schema.extras and columns.keys is not None:
        arrays["message_key"] = _array(columns.keys, pa.binary())
        weights.append(arrays["message_key"])
    if "headers" in schema.extras and columns.headers is not None:
        arrays["message_headers"] = _headers(columns.headers)
        weights.append(arrays["message_headers"])
    if "timestamp_type" in schema.extras and columns.timestamp_types is not None:
        arrays["message_timestamp_type"] = _TIMESTAMP_TYPES.take(pa.array(columns.timestamp_types))
    names = schema.file.names
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in names], names=names)
    weight = sum(array.nbytes for array in weights)
    if kept is not None:
        weight = weight * len(kept) // len(columns)
        batch = batch.take(pa.array(kept))
        milliseconds = milliseconds[kept]
    return Batch(batch, spans, weight, batch.nbytes, int(milliseconds.max()))


def _timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Return Kafka's milliseconds as UTC microseconds; null where Kafka has none or the value overflows."""
    if milliseconds.min() >= 0 and milliseconds.max() <= _MAX_TIMESTAMP_MS:
        return pa.array(milliseconds * 1000, pa.int64()).view(TIMESTAMP)  # a cast would import pyarrow.compute
    without = (milliseconds == -1) | (milliseconds < -_MAX_TIMESTAMP_MS) | (milliseconds > _MAX_TIMESTAMP_MS)
    micros = np.where(without, 0, milliseconds) * 1000
    return pa.array(micros, pa.int64(), mask=without).view(TIMESTAMP)


def _array(objects: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - a list of bytes, or an Arrow array
    return objects if isinstance(objects, pa.Array) else pa.array(objects, kind)


def _headers(headers: object) -> pa.Array:
    """Return the header lists; a record without headers has an empty list, never null."""
    if isinstance(headers, pa.Array):
        return headers
    rows = [
        [{"key": key, "value": value.encode() if isinstance(value, str) else value} for key, value in row]
        for row in (item or () for item in headers)  # type: ignore[attr-defined]
    ]
    return pa.array(rows, HEADERS)
