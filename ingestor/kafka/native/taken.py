"""A batch of `intake.c` as numpy and Arrow arrays on its memory, which is freed with the last of them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from ingestor.kafka.intake import Event
from ingestor.kafka.native.library import Batch, Column, EventRow
from ingestor.records import HEADERS, Columns, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy.typing as npt

_COLUMNS = [name for name, kind in Batch._fields_ if kind is Column]  # type: ignore[misc]  # a field may have bits too
_EMPTY = pa.py_buffer(b"")


class Taken:
    """Owns every column of a batch from the start, so that all are freed, also after an error."""

    def __init__(self, batch: Batch, give_back: Callable[[int], None]) -> None:
        self._records = batch.records
        self._nulls = {name: getattr(batch, f"{name}_nulls") for name in ("payloads", "keys", "header_values")}
        self._buffers = {name: _own(getattr(batch, name), give_back) for name in _COLUMNS}

    def columns(self, extras: Collection[str]) -> Columns | None:
        """Return the records as columns, None if there are none."""
        if not self._records:
            return None
        topics, codes = self._topics()
        return Columns(
            topics=topics,
            topic_codes=codes,
            partitions=self._numbers("partitions", np.int32),
            offsets=self._numbers("offsets", np.int64),
            timestamps_ms=self._numbers("timestamps", np.int64),
            values=self._binaries("payloads"),
            keys=self._binaries("keys") if "key" in extras else None,
            headers=self._headers() if "headers" in extras else None,
            timestamp_types=self._numbers("timestamp_types", np.int8) if "timestamp_type" in extras else None,
        )

    def events(self) -> list[Event]:
        """Return the batch's events."""
        rows = self._buffers["events"]
        count = rows.size // ctypes.sizeof(EventRow)
        return [_event(row) for row in (EventRow * count).from_address(rows.address)] if count else []

    def _topics(self) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
        """Return each topic name once; librdkafka may have two topics of one name after a recreation."""
        names = [name.decode() for name in self._buffers["topic_names"].to_pybytes().split(b"\0")[:-1]]
        codes: npt.NDArray[np.int32] = self._numbers("topic_codes", np.int32)
        topics = tuple(dict.fromkeys(names))
        if len(topics) < len(names):
            codes = np.array([topics.index(name) for name in names], np.int32)[codes]
        return topics, codes

    def _numbers(self, name: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.frombuffer(self._buffers[name], kind)

    def _binaries(self, name: str) -> pa.Array:
        starts, data, valid = (self._buffers[f"{name}_{part}"] for part in ("starts", "data", "valid"))
        nulls = self._nulls[name]
        return pa.Array.from_buffers(
            pa.binary(), starts.size // 4 - 1, [valid if nulls else None, starts, data], null_count=nulls
        )

    def _headers(self) -> pa.Array:
        """Return a list of headers for each record, empty where it has none."""
        starts, data = self._buffers["header_names_starts"], self._buffers["header_names_data"]
        names = as_text(pa.Array.from_buffers(pa.string(), starts.size // 4 - 1, [None, starts, data], null_count=0))
        members = pa.StructArray.from_arrays([names, self._binaries("header_values")], fields=list(HEADERS.value_type))
        buffers = [None, self._buffers["header_starts"]]
        return pa.Array.from_buffers(HEADERS, self._records, buffers, null_count=0, children=[members])


class _Memory:
    """Memory of the library; Arrow keeps a reference for as long as it needs the memory."""

    def __init__(self, address: int, give_back: Callable[[int], None]) -> None:
        self._address, self._give_back = address, give_back

    def __del__(self) -> None:
        self._give_back(self._address)


def _own(column: Column, give_back: Callable[[int], None]) -> pa.Buffer:
    if column.bytes is None:
        return _EMPTY
    return pa.foreign_buffer(column.bytes, column.used, base=_Memory(column.bytes, give_back))


def _event(row: EventRow) -> Event:
    tp = TopicPartition(row.topic.decode(), row.partition)
    return Event(tp, row.offset, KafkaError(row.error, row.text.decode(errors="replace")))


def as_text(names: pa.Array) -> pa.Array:
    """Return header names as text; bytes that are not UTF-8 become U+FFFD, as in confluent_kafka."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        found = names.view(pa.binary()).to_pylist()
        return pa.array([name.decode(errors="replace") for name in found], pa.string())
    return names
