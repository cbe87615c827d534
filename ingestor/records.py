"""What a record is on its way from Kafka to the table: its coordinates, its columns, the table's schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

EXTRA_COLUMNS = ("key", "headers", "timestamp_type")
INGEST_DATE = "ingest_date"
TIMESTAMP = pa.timestamp("us", "UTC")
# `element` and not Arrow's `item`: the name that Delta's own writers give to list members.
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


@dataclass(frozen=True, slots=True)
class RawSchema:
    """The columns of one raw table: the fixed five, the extras asked for, and `ingest_date` if it partitions."""

    extras: tuple[str, ...] = ()
    partitioned: bool = False

    @property
    def file(self) -> pa.Schema:
        """Return the columns that stand in the Parquet files."""
        return pa.schema([*_BASE, *(_EXTRAS[name] for name in EXTRA_COLUMNS if name in self.extras)])

    @property
    def table(self) -> pa.Schema:
        """Return the columns of the Delta table; a partition column lives in the log, not in the files."""
        return self.file.append(pa.field(INGEST_DATE, pa.date32())) if self.partitioned else self.file

    @property
    def partition_by(self) -> list[str]:
        """Return Delta's partition columns."""
        return [INGEST_DATE] if self.partitioned else []


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as Kafka delivered them, one array per field, all of equal length.

    `topics` names the topics; `topic_codes` holds each record's index into it. A timestamp of -1 means
    that Kafka has none. `keys`, `headers` and `timestamp_types` are None where nobody asked for them.
    """

    topics: tuple[str, ...]
    topic_codes: npt.NDArray[np.int32]
    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    timestamps_ms: npt.NDArray[np.int64]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None = None
    timestamp_types: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.offsets)
