"""The fields that must be equal in Kafka and in the table, in one form and reduced to digests."""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from ingestor.audit.files import COORDINATES
from ingestor.records import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from ingestor.audit.files import Offsets
    from ingestor.records import TopicPartition

_PRINT_BYTES = 8
_MICROS_MAX = (1 << 63) - 1
_TIMESTAMP_TYPES = {1: b"CreateTime", 2: b"LogAppendTime"}
# marshal's version 2 is a plain, prefix-free encoding of numbers, bytes, None and tuples of them.
_PLAIN = 2


class Message(Protocol):
    """A record of Kafka's client."""

    def offset(self) -> int | None:
        """Return the offset."""

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and its milliseconds, -1 for none."""

    def value(self) -> Any:  # noqa: ANN401 - bytes, or None; the client's own types are wider
        """Return the payload."""

    def key(self) -> Any:  # noqa: ANN401 - same
        """Return the key."""

    def headers(self) -> Any:  # noqa: ANN401 - pairs of text and bytes, or None
        """Return the headers."""


class RecordReader(Protocol):
    """What the audit needs of Kafka."""

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id, None if it is unknown."""

    def compacted(self, topic: str) -> bool:
        """Return whether the topic is compacted, so that records may vanish in the middle."""

    def watermarks(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return the first retained and the next offset; None if there is no such partition."""

    def read(self, tp: TopicPartition, first: int, last: int, *, aborted: bool = False) -> Iterator[Sequence[Message]]:
        """Yield the committed records of a range, both ends included, in order.

        With `aborted` also aborted records and those of open transactions. It begins and ends where Kafka does, if
        that is within the range, and does not wait for more; it raises if Kafka does not answer.
        """

    def read_all(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Iterator[tuple[TopicPartition, Sequence[Message]]]:
        """Yield the committed records of a range of each partition, in order within a partition."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one partition: their offsets, and a sequence of equal length for each compared field."""

    offsets: Offsets
    fields: Mapping[str, Sequence[object]]

    def within(self, first: int, last: int) -> Rows:
        """Return the rows of a range: a client may start elsewhere if Kafka does not have the offset."""
        return self.where((self.offsets >= first) & (self.offsets <= last))

    def where(self, wanted: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows for which `wanted` is true."""
        if wanted.all():
            return self
        chosen = wanted.tolist()
        fields = {name: list(compress(values, chosen)) for name, values in self.fields.items()}
        return Rows(self.offsets[wanted], fields)

    def digests(self) -> npt.NDArray[np.uint64]:
        """Return 128 bits per record, as two numbers that can be summed."""
        rows = zip(self.offsets.tolist(), *self.fields.values(), strict=True)
        found = (blake2b(marshal.dumps(row, _PLAIN), digest_size=16).digest() for row in rows)
        return np.frombuffer(b"".join(found), np.uint64).reshape(-1, 2)

    def prints(self) -> Iterator[tuple[int, bytes]]:
        """Yield each offset with a few bytes per field."""
        for offset, *row in zip(self.offsets.tolist(), *self.fields.values(), strict=True):
            yield offset, b"".join(map(_print, row))


def _print(value: Any) -> bytes:  # noqa: ANN401 - any field's value
    return blake2b(marshal.dumps(value, _PLAIN), digest_size=_PRINT_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Content:
    """The compared fields of one table, read from either side."""

    extras: tuple[str, ...]
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        extras = (name for name in ("key", "headers", "timestamp_type") if name in self.extras)
        object.__setattr__(self, "names", ("timestamp", "payload", *extras))

    @property
    def columns(self) -> list[str]:
        """Return the table's columns to read."""
        return [*COORDINATES, *(f"message_{name}" for name in self.names)]

    def of_table(self, batch: pa.RecordBatch, offsets: Offsets) -> Rows:
        """Return the rows of a batch with these offsets."""
        fields = {name: self._column(batch, name) for name in self.names}
        return Rows(offsets, fields)

    def _column(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        if f"message_{name}" not in batch.schema.names:  # written before the column was added
            return [() if name == "headers" else None] * batch.num_rows
        column = batch.column(f"message_{name}")
        if name == "timestamp":
            return list(column.cast(TIMESTAMP).cast(pa.int64()).to_pylist())
        values = column.to_pylist()
        if name == "headers":
            return [tuple((h["key"].encode(), h["value"]) for h in row or ()) for row in values]
        if name == "timestamp_type":
            return [None if kind is None else kind.encode() for kind in values]
        return list(values)

    def of_kafka(self, messages: Sequence[Message]) -> Rows:
        """Return messages of Kafka's client as rows."""
        offsets = np.array([message.offset() for message in messages], np.int64)
        taken: dict[str, Callable[[Message], object]] = {
            "timestamp": lambda message: _micros(message.timestamp()[1]),
            "payload": lambda message: message.value(),
            "key": lambda message: message.key(),
            "headers": lambda message: _headers(message.headers()),
            "timestamp_type": lambda message: _TIMESTAMP_TYPES.get(message.timestamp()[0]),
        }
        return Rows(offsets, {name: list(map(taken[name], messages)) for name in self.names})

    def difference(self, ours: bytes, theirs: bytes) -> str:
        """Return the names of the fields whose prints differ, "" if none does."""
        starts = range(0, len(ours), _PRINT_BYTES)
        cuts = [slice(start, start + _PRINT_BYTES) for start in starts]
        pairs = zip(self.names, cuts, strict=True)
        return ", ".join(name.replace("_", " ") for name, at in pairs if ours[at] != theirs[at])


def _headers(row: Sequence[tuple[str, bytes | str | None]] | None) -> tuple[Any, ...]:
    """Return headers for comparison; None equals an empty list."""
    return tuple((key.encode(), value.encode() if isinstance(value, str) else value) for key, value in row or ())


def _micros(milliseconds: int) -> int | None:
    """Return the table's value of a timestamp: null for none, and for one that overflows 64 bits."""
    micros = milliseconds * 1000
    return None if milliseconds == -1 or abs(micros) > _MICROS_MAX else micros
