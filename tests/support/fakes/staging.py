"""Data files of a few rows, staged the way the lane does it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from ingestor.ingest.budget import Budget
from ingestor.ingest.buffer import select
from ingestor.ingest.stager import Draft, Staged
from ingestor.records import RawSchema, TopicPartition
from tests.support.fakes.kafka import FakeRecord
from tests.support.fakes.source import columns_of
from tests.support.fakes.worker import InstantWorker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ingestor.delta.storage import Storage


def stage(
    storage: Storage,
    rows: Iterable[tuple[TopicPartition, int]],
    *,
    chain: Mapping[TopicPartition, int | None] | None = None,
    value: bytes = b"v",
) -> Staged:
    """Write a file with these rows; `chain` holds the txns that it builds on, None for each by default."""
    found = [(tp, FakeRecord(offset, value)) for tp, offset in rows]
    positions = {tp: 0 for tp, _ in found}
    before: dict[TopicPartition, int | None] = {**dict.fromkeys(positions), **(chain or {})}
    schema = RawSchema()
    draft = Draft(
        storage,
        schema,
        compression="zstd",
        worker=InstantWorker(),
        budget=Budget(1 << 30),
        opened_at=0.0,
        ingest_date=date(2026, 1, 31),
    )
    batch = select(columns_of(found), positions, schema).batch
    assert batch is not None, "a file has rows"
    draft.add(batch, before)
    draft.finish()
    return draft.settle()
