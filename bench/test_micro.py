"""The hot steps of a record's way, one by one. Run by `python -m bench micro`; a plain `pytest` leaves them out."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from confluent_kafka import Message

from bench.payloads import payloads
from bench.tables import ROWS, OldTable
from ingestor.delta import deltalog
from ingestor.delta.storage import LocalStorage
from ingestor.ingest.budget import Budget
from ingestor.ingest.buffer import Batch, select
from ingestor.ingest.stager import Draft
from ingestor.kafka.extract import extract, extract_stamps
from ingestor.records import Columns, RawSchema, TopicPartition
from ingestor.worker import ThreadWorker

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from ingestor.ingest.stager import Staged

RECORDS = 10_000  # as many as one poll brings
DRAFT_BYTES = 64 << 20
MANY_PARTITIONS = 1_000
LOG_LENGTH = 120  # two checkpoints, and a tail of entries after the second


def _columns(values: list[bytes], *, partitions: int, mixed: bool) -> Columns:
    """Return columns as one poll brings them: the partitions in runs, or all of them mixed."""
    numbers = np.arange(len(values)) % partitions
    return Columns(
        topics=("records",),
        topic_codes=np.zeros(len(values), np.int32),
        partitions=(numbers if mixed else np.sort(numbers)).astype(np.int32),
        offsets=np.arange(len(values), dtype=np.int64),
        timestamps_ms=np.arange(len(values), dtype=np.int64) // 100 + 1_700_000_000_000,
        values=values,
    )


def _positions(partitions: int) -> dict[TopicPartition, int]:
    return {TopicPartition("records", number): 0 for number in range(partitions)}


@pytest.mark.parametrize("size", [100, 1_000])
def test_extract(benchmark: BenchmarkFixture, size: int) -> None:
    """10,000 messages to columns."""
    messages = [
        Message(topic="records", partition=0, offset=number, value=value, timestamp=(1, number))
        for number, value in enumerate(payloads(size, RECORDS))
    ]
    codes = np.zeros(RECORDS, np.int32)
    benchmark(lambda: extract(messages, extract_stamps(messages, ()), ("records",), codes, ()))


@pytest.mark.parametrize("mixed", [False, True], ids=["runs", "mixed"])
@pytest.mark.parametrize("partitions", [6, MANY_PARTITIONS])
def test_select(benchmark: BenchmarkFixture, partitions: int, *, mixed: bool) -> None:
    """10,000 records of 100 B to a batch, all of them new."""
    columns, positions, schema = (
        _columns(payloads(100, RECORDS), partitions=partitions, mixed=mixed),
        _positions(partitions),
        RawSchema(),
    )
    benchmark(lambda: select(columns, positions, schema))


@pytest.mark.parametrize("size", [100, 1_000])
def test_draft(benchmark: BenchmarkFixture, tmp_path: Path, size: int) -> None:
    """64 MB of payloads added, encoded, written, synced and sealed; batches as large as the pipeline's."""
    batches = _batches(size)
    worker, storage = ThreadWorker("bench"), LocalStorage(tmp_path)
    chain: dict[TopicPartition, int | None] = {TopicPartition("records", 0): None}

    def write() -> Staged:
        draft = Draft(
            storage,
            RawSchema(),
            compression="zstd",
            worker=worker,
            budget=Budget(1 << 40),
            opened_at=time.monotonic(),
            ingest_date=datetime.now(UTC).date(),
        )
        for batch in batches:
            draft.add(batch, chain)
        draft.finish().result()
        return draft.settle()

    benchmark.pedantic(write, rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]


def _batches(size: int) -> list[Batch]:
    """Return batches of one partition, of which no payload comes twice."""
    rows = min(RECORDS, (4 << 20) // size)
    values, found = payloads(size, DRAFT_BYTES // size), []
    for first in range(0, len(values) - rows + 1, rows):
        columns = _columns(values[first : first + rows], partitions=1, mixed=False)
        batch = select(columns, _positions(1), RawSchema()).batch
        if batch is None:
            raise RuntimeError("no record was taken")
        found.append(batch)
    return found


@pytest.fixture(scope="module")
def old_table(tmp_path_factory: pytest.TempPathFactory) -> OldTable:
    """A table with 1,000 partitions' txns in its newest checkpoint, and entries after it."""
    folder = tmp_path_factory.mktemp("old")
    return OldTable(folder, length=LOG_LENGTH, partitions=MANY_PARTITIONS, checkpoints=True)


def test_txns(benchmark: BenchmarkFixture, old_table: OldTable) -> None:
    """All txns of a snapshot, 1,000 of them, from a checkpoint and 20 entries."""
    found = benchmark(lambda: deltalog.txns_at(old_table.table.storage, LOG_LENGTH))
    if set(found.values()) != {LOG_LENGTH * ROWS - 1}:
        raise RuntimeError("these are not the txns that were committed")


def test_ledger_look_up(benchmark: BenchmarkFixture, old_table: OldTable) -> None:
    """The last landed offsets of 1,000 partitions among the table's txns: what each commit compares."""
    txns, tps = old_table.table.txns, list(_positions(MANY_PARTITIONS))
    benchmark(lambda: old_table.app_ids.look_up(txns, tps))


def test_ledger_read(benchmark: BenchmarkFixture, old_table: OldTable) -> None:
    """The table's 1,000 txns back to partitions."""
    benchmark(lambda: old_table.app_ids.read(old_table.table.txns))
