"""Columns: which records are of a partition, and what is left when some are taken out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingestor.records import HEADERS, Columns, TopicPartition

PAIRS = [[("h", b"0")], [], [("h", b"2")]]


def columns(*, arrow: bool) -> Columns:
    """Return three records of two topics, as Python's objects or in Arrow's hands."""
    values: Any = [b"v0", None, b"v2"]
    keys: Any = [b"k0", b"k1", None]
    headers: Any = PAIRS
    if arrow:
        values, keys = pa.array(values, pa.binary()), pa.array(keys, pa.binary())
        headers = pa.array([[{"key": key, "value": value} for key, value in row] for row in PAIRS], HEADERS)
    return Columns(
        topics=("a", "b"),
        topic_codes=np.array([0, 1, 0], np.int32),
        partitions=np.array([5, 5, 6], np.int32),
        offsets=np.array([10, 11, 12]),
        timestamps_ms=np.array([100, 101, 102]),
        values=values,
        keys=keys,
        headers=headers,
        timestamp_types=np.array([1, 2, 1], np.int8),
    )


def test_a_record_is_of_its_topic_and_partition() -> None:
    """Not of one that shares only the one or the other."""
    found = columns(arrow=False)
    assert found.of(TopicPartition("a", 5)).tolist() == [True, False, False]
    assert found.of(TopicPartition("b", 5)).tolist() == [False, True, False]
    assert found.of(TopicPartition("b", 6)).tolist() == [False] * 3
    assert found.of(TopicPartition("c", 5)).tolist() == [False] * 3


@pytest.mark.parametrize("arrow", [False, True])
def test_what_is_left_stays_together(*, arrow: bool) -> None:
    """Every column loses the same rows."""
    left = columns(arrow=arrow).where(np.array([True, False, True]))
    assert len(left) == 2
    assert left.topic_codes.tolist() == [0, 0]
    assert left.partitions.tolist() == [5, 6]
    assert left.offsets.tolist() == [10, 12]
    assert left.timestamps_ms.tolist() == [100, 102]
    assert left.timestamp_types is not None
    assert left.timestamp_types.tolist() == [1, 1]
    found: list[Any] = [left.values, left.keys, left.headers]
    if arrow:
        values, keys, headers = (array.to_pylist() for array in found)
        headers = [[(header["key"], header["value"]) for header in row] for row in headers]
    else:
        values, keys, headers = found
    assert (values, keys) == ([b"v0", b"v2"], [b"k0", None])
    assert headers == [PAIRS[0], PAIRS[2]]


def test_where_all_stay_nothing_is_copied() -> None:
    """As in nearly every poll."""
    found = columns(arrow=True)
    assert found.where(np.ones(3, dtype=bool)) is found
