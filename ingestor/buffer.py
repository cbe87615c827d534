"""From Kafka's columns to Arrow record batches of the raw schema, without what is already in hand. Pure.

Per record it calls nothing: a batch of records is grouped by partition with a few array operations, and only where a
partition brought an offset below its position (a redelivery) are rows taken out. Offsets rise within a partition but
need not be contiguous: transaction markers, aborted records and compaction leave gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ingestor.records import HEADERS, TIMESTAMP, Columns, RawSchema, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

# Beyond this a count of milliseconds is no longer a count of microseconds that fits 64 bits (year 294247).
_MAX_TIMESTAMP_MS = 2**63 // 1000 - 1
_TIMESTAMP_TYPES = pa.array([None, "CreateTime", "LogAppendTime"], pa.string())


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch holds of one partition: `count` records, the last one at `last` and of `last_ms`, -1 if unknown."""

    last: int
    count: int
    last_ms: int = field(default=-1, compare=False)  # only ever shown to people


@dataclass(frozen=True, slots=True)
class Batch:
    """Records ready for a file, in Kafka's order within each partition."""

    records: pa.RecordBatch
    spans: Mapping[TopicPartition, Span]
    payload_bytes: int  # payloads, keys and header data, as Kafka carried them
    newest_ms: int  # the latest Kafka timestamp, -1 if no record has one


@dataclass(frozen=True, slots=True)
class Selection:
    """What was taken of some columns: a batch (None if nothing is new), and how many records were not."""

    batch: Batch | None
    duplicates: int
    strangers: int  # records of partitions that are not ours (any more)


def select(columns: Columns, positions: Mapping[TopicPartition, int], schema: RawSchema) -> Selection:
    """Return the records at or beyond their partition's position as one batch."""
    if len(columns) == 0:
        return Selection(None, 0, 0)
    order, starts = _runs(columns)
    ends = np.append(starts[1:], len(columns))
    keep = np.ones(len(columns), dtype=bool)
    spans: dict[TopicPartition, Span] = {}
    duplicates = strangers = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        at = order[start]
        tp = TopicPartition(columns.topics[columns.topic_codes[at]], int(columns.partitions[at]))
        rows = order[start:end]
        position = positions.get(tp)
        if position is None:
            keep[rows] = False
            strangers += len(rows)
            continue
        offsets = columns.offsets[rows]
        last_ms = int(columns.timestamps_ms[rows[-1]])
        fresh = _fresh(offsets, position)
        if fresh is not None:
            keep[rows] = fresh
            duplicates += int(len(rows) - np.count_nonzero(fresh))
            offsets = offsets[fresh]
        if len(offsets):
            spans[tp] = Span(int(offsets[-1]), len(offsets), last_ms)
    if not spans:
        return Selection(None, duplicates, strangers)
    kept = None if keep.all() else np.flatnonzero(keep)
    return Selection(_batch(columns, kept, spans, schema), duplicates, strangers)


def _runs(columns: Columns) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows ordered by partition, Kafka's order kept within one, and where each partition starts."""
    key = columns.partitions.astype(np.int64)
    if len(columns.topics) > 1:
        key += columns.topic_codes.astype(np.int64) << 32
    changes = np.flatnonzero(np.diff(key)) + 1
    order = np.arange(len(key))
    if len(np.unique(key[np.concatenate(([0], changes))])) != len(changes) + 1:  # a partition comes back
        order = np.argsort(key, kind="stable")
        changes = np.flatnonzero(np.diff(key[order])) + 1
    return order, np.concatenate(([0], changes))


def _fresh(offsets: npt.NDArray[np.int64], position: int) -> npt.NDArray[np.bool_] | None:
    """Return which offsets are at the position or beyond and rise; None if all are, as they nearly always are."""
    if offsets[0] >= position and bool((np.diff(offsets) > 0).all()):
        return None
    floor = np.maximum.accumulate(np.concatenate(([position - 1], offsets[:-1])))
    return offsets > floor


def _batch(
    columns: Columns,
    kept: npt.NDArray[np.int64] | None,
    spans: Mapping[TopicPartition, Span],
    schema: RawSchema,
) -> Batch:
    milliseconds = columns.timestamps_ms
    payload = pa.array(columns.values, pa.binary())
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
        arrays["message_key"] = pa.array(columns.keys, pa.binary())
        weights.append(arrays["message_key"])
    if "headers" in schema.extras and columns.headers is not None:
        arrays["message_headers"] = _headers(columns.headers)
        weights.append(arrays["message_headers"])
    if "timestamp_type" in schema.extras and columns.timestamp_types is not None:
        arrays["message_timestamp_type"] = _TIMESTAMP_TYPES.take(pa.array(columns.timestamp_types))
    names = [field.name for field in schema.file]
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in names], names=names)
    weight = sum(array.nbytes for array in weights)
    if kept is not None:
        weight = weight * len(kept) // len(columns)
        batch = batch.take(pa.array(kept))
        milliseconds = milliseconds[kept]
    return Batch(batch, dict(spans), weight, int(milliseconds.max()))


def _timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Return Kafka's milliseconds as UTC microseconds; null where Kafka has none, or no calendar reaches."""
    without = (milliseconds == -1) | (milliseconds < -_MAX_TIMESTAMP_MS) | (milliseconds > _MAX_TIMESTAMP_MS)
    if not without.any():
        return pa.array(milliseconds * 1000, pa.int64()).view(TIMESTAMP)  # a cast would load all of pyarrow.compute
    micros = np.where(without, 0, milliseconds) * 1000
    return pa.array(micros, pa.int64(), mask=without).view(TIMESTAMP)


def _headers(headers: object) -> pa.Array:
    """Return Kafka's header lists; no headers at all is an empty list, so that null never needs a meaning."""
    rows = [
        [{"key": key, "value": value.encode() if isinstance(value, str) else value} for key, value in row]
        for row in (item or () for item in headers)  # type: ignore[attr-defined]
    ]
    return pa.array(rows, HEADERS)
