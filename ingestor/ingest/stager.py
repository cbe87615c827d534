"""Writes a draft's batches into one open Parquet file while they come, on a worker thread.

Encoding and compression release the GIL, so they run beside the poll thread; rows leave memory row group by row group,
so a file's size does not show in the process's. `Draft` is the poll thread's view of what `parquet.FileWriter` does.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingestor.ingest.parquet import FileWriter
from ingestor.ingest.policy import DraftStats
from ingestor.records import INGEST_DATE, RawSchema, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from datetime import date

    from ingestor.delta.guards import Answer
    from ingestor.delta.storage import Storage
    from ingestor.delta.table_log import DataFile
    from ingestor.ingest.budget import Budget
    from ingestor.ingest.buffer import Batch
    from ingestor.worker import Worker


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished file and what its commit has to say: the batch on its way to the log."""

    commit_id: str
    files: tuple[DataFile, ...]
    expected: Mapping[TopicPartition, int | None]  # the txn that each partition's rows were built on
    last: Mapping[TopicPartition, int]  # the offset of each partition's last row
    counts: Mapping[TopicPartition, int] = field(default_factory=dict)
    payload_bytes: int = 0
    newest_ms: int = -1
    last_ms: Mapping[TopicPartition, int] = field(default_factory=dict)  # the timestamp of each partition's last row
    write_seconds: float = 0.0  # spent on encoding and writing the files
    marks: Mapping[str, int] = field(default_factory=dict)  # what guards are to remember: txns of no partition
    answer: Answer | None = None  # a person moves the txns, and thereby answers what the guards refuse


def set_positions(
    txns: Mapping[TopicPartition, int],
    expected: Mapping[TopicPartition, int | None] | None = None,
    *,
    marks: Mapping[str, int] | None = None,
    answer: Answer | None = None,
) -> Staged:
    """Return a batch without rows that only moves txns."""
    before = dict.fromkeys(txns) if expected is None else expected
    return Staged(uuid.uuid4().hex, (), before, dict(txns), marks=marks or {}, answer=answer)


class Draft:
    """A file that is still being written, and what it will have to say in its commit."""

    def __init__(
        self,
        storage: Storage,
        schema: RawSchema,
        *,
        compression: str,
        worker: Worker,
        budget: Budget,
        opened_at: float,
        ingest_date: date,
    ) -> None:
        self.commit_id = uuid.uuid4().hex
        self.expected: dict[TopicPartition, int | None] = {}
        self.last: dict[TopicPartition, int] = {}
        self.first_ms: dict[TopicPartition, int] = {}  # the timestamp of each partition's first row
        self._counts: dict[TopicPartition, int] = {}
        self._last_ms: dict[TopicPartition, int] = {}
        self._opened_at = opened_at
        self._ingest_date = ingest_date
        self._payload_bytes = 0
        self._newest_ms = -1
        self._worker = worker
        self._budget = budget
        partition_values = {INGEST_DATE: ingest_date.isoformat()} if schema.partitioned else {}
        folder = f"{INGEST_DATE}={ingest_date.isoformat()}/" if schema.partitioned else ""
        path = f"{folder}part-{self.commit_id}.{compression.partition(':')[0]}.parquet"
        self._writer = FileWriter(storage, schema, path, compression, partition_values, budget)

    @property
    def stats(self) -> DraftStats:
        """Return how full and how old the draft is."""
        return DraftStats(sum(self._counts.values()), self._payload_bytes, self._opened_at, self._ingest_date)

    @property
    def failure(self) -> BaseException | None:
        """Return why the file can't be written, None while it can."""
        return self._writer.failure

    def add(self, batch: Batch, chain: Mapping[TopicPartition, int | None]) -> None:
        """Queue a batch for writing; `chain` holds the txns that its partitions will have before this draft."""
        for tp, span in batch.spans.items():
            self.expected.setdefault(tp, chain[tp])
            self.last[tp] = span.last
            self.first_ms.setdefault(tp, span.first_ms)
            self._last_ms[tp] = span.last_ms
            self._counts[tp] = self._counts.get(tp, 0) + span.count
        self._payload_bytes += batch.payload_bytes
        self._newest_ms = max(self._newest_ms, batch.newest_ms)
        self._budget.take(batch.memory_bytes)
        self._worker.submit(lambda: self._writer.write(batch))

    def finish(self) -> Future[None]:
        """Finish the file once all batches are written; nothing may be added any more, and `settle` is to come."""
        return self._worker.submit(self._writer.finish)

    def settle(self) -> Staged:
        """Make the finished file durable, and return what there is to commit; raise if it could not be written.

        For the thread that commits it, so that the worker encodes the next file meanwhile.
        """
        file = self._writer.settle()
        return Staged(
            commit_id=self.commit_id,
            files=(file,),
            expected=self.expected,
            last=self.last,
            counts=self._counts,
            payload_bytes=self._payload_bytes,
            newest_ms=self._newest_ms,
            last_ms=self._last_ms,
            write_seconds=self._writer.seconds,
        )

    def abort(self) -> None:
        """Throw the file away; no commit has named it, and none will."""
        self._writer.abandon()
        self._worker.submit(self._writer.abort)
