"""A record between Kafka and the table: its coordinates, its columns, the table's schema."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

COORDINATES = ("stream_topic", "stream_partition", "stream_offset")
EXTRA_COLUMNS = ("key", "headers", "timestamp_type")
INGEST_DATE = "ingest_date"
TIMESTAMP = pa.timestamp("us", "UTC")
# Delta's own writers call list members `element`; Arrow's default is `item`.
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
)

_BASE = (
    pa.field("stream_topic", pa.string(), nullable=False),
    pa.field("stream_partition", pa.int32(), nullable=False),
    pa.field("stream_offset", pa.int64(), nullable=False),
    pa.field("message_timestamp", TIMESTAMP),
    pa.field("message_payload", pa.binary()),
)
_EXTRAS = {
    "key": pa.field("message_key", pa.binary()),
    "headers": pa.field("message_headers", HEADERS),
    "timestamp_type": pa.field("message_timestamp_type", pa.string()),
}


class TopicPartition(NamedTuple):
    """A partition of a topic: the unit of order, of ownership and of txn actions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class Coordinate(NamedTuple):
    """Where a record came from; this identifies it."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def tp(self) -> TopicPartition:
        """The record's partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RawSchema:
    """The columns of one raw table: the fixed five, the configured extras, and `ingest_date` if partitioned by it."""

    extras: tuple[str, ...] = ()
    partitioned: bool = False

    @property
    def file(self) -> pa.Schema:
        """Return the columns of the Parquet files."""
        return pa.schema([*_BASE, *(_EXTRAS[name] for name in EXTRA_COLUMNS if name in self.extras)])

    @property
    def table(self) -> pa.Schema:
        """Return the columns of the Delta table; a partition column is in the log, not in the files."""
        return self.file.append(pa.field(INGEST_DATE, pa.date32())) if self.partitioned else self.file

    @property
    def partition_by(self) -> list[str]:
        """Return Delta's partition columns."""
        return [INGEST_DATE] if self.partitioned else []


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as Kafka delivered them, one array per field, all of equal length.

    `topics` names the topics; `topic_codes` holds each record's index into it. A timestamp of -1 means that Kafka has
    none. `keys`, `headers` and `timestamp_types` are None unless configured. Values of variable size are Python
    objects or, from the native intake, an Arrow array of the table's type.
    """

    topics: tuple[str, ...]
    topic_codes: npt.NDArray[np.int32]
    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]
    values: Sequence[bytes | None] | pa.Array
    keys: Sequence[bytes | None] | pa.Array | None = None
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | pa.Array | None = None
    timestamp_types: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def where(self, keep: npt.NDArray[np.bool_]) -> Columns:
        """Return the records for which `keep` is true."""
        if keep.all():
            return self
        rows = np.flatnonzero(keep)
        return replace(
            self,
            topic_codes=self.topic_codes[rows],
            partitions=self.partitions[rows],
            offsets=self.offsets[rows],
            timestamps_ms=self.timestamps_ms[rows],
            values=_rows_of(self.values, rows),
            keys=None if self.keys is None else _rows_of(self.keys, rows),
            headers=None if self.headers is None else _rows_of(self.headers, rows),
            timestamp_types=None if self.timestamp_types is None else self.timestamp_types[rows],
        )

    def of(self, tp: TopicPartition) -> npt.NDArray[np.bool_]:
        """Return which records belong to a partition."""
        if tp.topic not in self.topics:
            return np.zeros(len(self), dtype=bool)
        code = self.topics.index(tp.topic)
        both: npt.NDArray[np.bool_] = np.logical_and(self.topic_codes == code, self.partitions == tp.partition)
        return both

    def partition_keys(self) -> npt.NDArray[np.integer[Any]]:
        """Return a number per record that differs for each topic and partition."""
        if len(self.topics) == 1:
            return self.partitions
        return self.partitions + (self.topic_codes.astype(np.int64) << 32)

    def tps(self) -> set[TopicPartition]:
        """Return the partitions of all records."""
        firsts = run_starts(self.partition_keys())
        pairs = zip(self.topic_codes[firsts].tolist(), self.partitions[firsts].tolist(), strict=True)
        return {TopicPartition(self.topics[code], partition) for code, partition in pairs}


def run_starts(keys: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.intp]:
    """Return where each run of equal keys begins; `keys` must not be empty."""
    return np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))


def _rows_of(objects: Sequence[Any] | pa.Array, rows: npt.NDArray[np.intp]) -> list[Any] | pa.Array:
    if isinstance(objects, pa.Array):
        return objects.take(pa.array(rows))
    return [objects[row] for row in rows.tolist()]
