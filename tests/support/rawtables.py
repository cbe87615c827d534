"""Raw tables made by hand, right or wrong in one point, and an in-memory Kafka to hold them against."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.delta.table import RawTable
from ingestor.delta.table_log import DataFile
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import RawSchema, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

TP = TopicPartition("orders", 0)
SEPTEMBER_2001_MS = 1_000_000_000_000


class Record(NamedTuple):
    """A record as Kafka has it."""

    offset: int
    value: bytes | None = b"value"
    tp: TopicPartition = TP
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = SEPTEMBER_2001_MS


def records(*offsets: int, tp: TopicPartition = TP) -> list[Record]:
    """Return records at these offsets, each with a value of its own."""
    return [Record(offset, b"%d of %d" % (offset, tp.partition), tp) for offset in offsets]


@dataclass
class TableMaker:
    """Writes commits as the ingestor does, or with one thing wrong."""

    path: Path
    schema: RawSchema = field(default_factory=RawSchema)
    app_ids: AppIds = field(default_factory=lambda: AppIds(DEFAULT_TEMPLATE, "shop"))

    def __post_init__(self) -> None:
        self.uri = str(self.path)
        self.table = RawTable(self.uri, self.schema, {})

    def file(self, rows: Sequence[Record], *, name: str = "", **stats: Any) -> DataFile:
        """Write a data file; `stats` are what the log is to say of it instead of the truth."""
        day = "2001-09-09"
        folder = f"ingest_date={day}/" if self.schema.partitioned else ""
        path = f"{folder}{name or uuid.uuid4().hex}.parquet"
        with self.table.storage.create(path) as sink:
            pq.write_table(self._columns(rows), sink)
        offsets = [row.offset for row in rows]
        partitions = [row.tp.partition for row in rows]
        truth = {
            "numRecords": len(rows),
            "minValues": {"stream_offset": min(offsets), "stream_partition": min(partitions)},
            "maxValues": {"stream_offset": max(offsets), "stream_partition": max(partitions)},
        }
        values = {"ingest_date": day} if self.schema.partitioned else {}
        return DataFile(path, (self.path / path).stat().st_size, truth | stats, values)

    def _columns(self, rows: Sequence[Record]) -> pa.Table:
        every = {
            "stream_topic": [row.tp.topic for row in rows],
            "stream_partition": [row.tp.partition for row in rows],
            "stream_offset": [row.offset for row in rows],
            "message_timestamp": [_micros(row.timestamp_ms) for row in rows],
            "message_payload": [row.value for row in rows],
            "message_key": [row.key for row in rows],
            "message_headers": [[{"key": k, "value": v} for k, v in row.headers] for row in rows],
            "message_timestamp_type": ["CreateTime" for _ in rows],
        }
        wanted = self.schema.file
        return pa.table({name: every[name] for name in wanted.names}, schema=wanted)

    def commit(
        self,
        files: Sequence[DataFile],
        txns: Mapping[TopicPartition, int],
        *,
        kind: str = "flush",
        **info: Any,
    ) -> int:
        """Commit files and txns as one entry, whatever the ingestor would say to it; return its version."""
        now_ms = int(time.time() * 1000)
        marks: dict[str, Any] = {
            "commit_id": uuid.uuid4().hex,
            "app_id": "shop",
            "operation_kind": kind,
            "gaps": [],
            "topic_ids": {},
        }
        marks["actions"] = 1 + len(txns) + len(files)
        said = {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
        moved = {self.app_ids.of(tp): txn for tp, txn in txns.items()}
        return self.append_entry(
            {"commitInfo": said | marks | info},
            *({"txn": {"appId": name, "version": txn, "lastUpdated": now_ms}} for name, txn in moved.items()),
            *({"add": _added(file, now_ms)} for file in files),
        )

    def flush(
        self,
        rows: Sequence[Record],
        txns: Mapping[TopicPartition, int] | None = None,
        **info: Any,
    ) -> DataFile:
        """Commit rows as one file; the txns are those of its last rows, unless others are given."""
        file = self.file(rows)
        last = {row.tp: row.offset for row in rows}
        self.commit([file], last if txns is None else txns, **info)
        return file

    def append_entry(self, *actions: Mapping[str, Any]) -> int:
        """Write a log entry as it is, as another program might: whole at once, and never over another one."""
        log = self.path / "_delta_log"
        version = max(int(path.stem) for path in log.glob("*.json")) + 1
        aside = log / f"{uuid.uuid4().hex}.tmp"
        aside.write_text("\n".join(map(json.dumps, actions)))
        (log / f"{version:020d}.json").hardlink_to(aside)
        aside.unlink()
        return version

    def clean_log(self, *, before: int) -> None:
        """Remove the log entries before a version, as log cleanup does after a checkpoint."""
        for version in range(before):
            (self.path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


def _added(file: DataFile, now_ms: int) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe="/="),
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": json.dumps(file.stats),
    }


def _micros(milliseconds: int) -> int | None:
    return None if milliseconds == -1 else milliseconds * 1000


@dataclass
class FakeKafka:
    """An in-memory Kafka with a few records to a batch; `aborted` ones only for those who ask."""

    records: list[Record]
    aborted: list[Record] = field(default_factory=list)
    low: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    compacted_topics: set[str] = field(default_factory=set)
    reads: list[tuple[TopicPartition, int, int]] = field(default_factory=list)

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id, if the test gave it one."""
        return self.topic_ids.get(topic)

    def compacted(self, topic: str) -> bool:
        """Tell whether the test made the topic a compacted one."""
        return topic in self.compacted_topics

    def watermarks(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return where the partition begins and ends."""
        offsets = [each.offset for each in (*self.records, *self.aborted) if each.tp == tp]
        return (self.low.get(tp, 0), max(offsets) + 1) if offsets else None

    def read(self, tp: TopicPartition, first: int, last: int, *, aborted: bool = False) -> Iterator[list[Message]]:
        """Yield the records of a range."""
        self.reads.append((tp, first, last))
        start = max(first, self.low.get(tp, 0))
        there = [*self.records, *(self.aborted if aborted else [])]
        found = sorted(each for each in there if each.tp == tp and start <= each.offset <= last)
        for at in range(0, len(found), 3):
            yield [Message(record) for record in found[at : at + 3]]

    def read_all(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Iterator[tuple[TopicPartition, list[Message]]]:
        """Yield the records of a range of each partition."""
        for tp, (first, last) in ranges.items():
            for part in self.read(tp, first, last):
                yield tp, part


class Message:
    """A record as Kafka's client gives it."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def offset(self) -> int:
        """Return the offset."""
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        """Return type and milliseconds: the producer's."""
        return 1, self._record.timestamp_ms

    def value(self) -> bytes | None:
        """Return the payload."""
        return self._record.value

    def key(self) -> bytes | None:
        """Return the key."""
        return self._record.key

    def headers(self) -> list[tuple[str, bytes | str | None]] | None:
        """Return the headers, None where there are none."""
        return list(self._record.headers) or None
