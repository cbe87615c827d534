"""What a batch is counted to hold: the same as counting by hand, wherever its offsets lie."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from spark_jobs.rows.duplicates import Range
from spark_jobs.rows.parsing import REASON, TOMBSTONE
from spark_jobs.steps.batch import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = (
    f"stream_topic string, stream_partition int, stream_offset long, message_timestamp timestamp, `{REASON}` string"
)
_MARCH = datetime(2026, 3, 1, tzinfo=UTC)
_OFFSETS = {
    "around the ends of words": [0, 62, 63, 64, 65, 127, 128, 63, 64],
    "far apart": [7, 7 << 20, 7 << 40, (1 << 62) + 1, 7, (1 << 62) + 1],
    "all of some words, some of them twice": [*range(200), *range(30, 170)],
    "none twice": random.Random(1).sample(range(10_000), 500),
}


@pytest.mark.parametrize("offsets", _OFFSETS.values(), ids=_OFFSETS)
def test_offsets_that_come_twice_are_found(spark: SparkSession, offsets: list[int]) -> None:
    reasons = (None, None, "empty", TOMBSTONE)
    rows = [
        ("events", partition, offset, _MARCH + timedelta(seconds=at), reasons[at % 4])
        for at, (offset, partition) in enumerate((offset, partition) for offset in offsets for partition in (0, 1))
    ]
    counted = count(spark.createDataFrame(rows, _COLUMNS).repartition(3), times=True)
    valid = [row for row in rows if row[4] is None]
    assert (counted.rows, counted.distinct) == (len(rows), 2 * len(set(offsets)))
    assert counted.valid == len(valid)
    assert counted.tombstones == sum(row[4] == TOMBSTONE for row in rows)
    assert counted.rejected == sum(row[4] == "empty" for row in rows)
    assert set(counted.ranges) == {Range("events", number, min(offsets), max(offsets)) for number in (0, 1)}
    assert counted.times is not None
    assert list(counted.times) == [round(row[3].timestamp() * 1_000_000) for row in (valid[0], valid[-1])]


def test_an_empty_batch_holds_nothing(spark: SparkSession) -> None:
    counted = count(spark.createDataFrame([], _COLUMNS), times=True)
    assert (counted.rows, counted.distinct, counted.valid, counted.ranges, counted.times) == (0, 0, 0, (), None)
