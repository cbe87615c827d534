"""The buffer: Kafka's columns become Arrow batches, and only what is new and ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.ingest.buffer import Selection, Span, select
from ingestor.records import Columns, RawSchema, TopicPartition
from tests.support.fakes.kafka import FakeRecord
from tests.support.fakes.source import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BARE = RawSchema()
FULL = RawSchema(("key", "headers", "timestamp_type"))


def records(*rows: tuple[TopicPartition, int]) -> Columns:
    """Return columns of these partitions and offsets, in this order."""
    return columns_of([(tp, FakeRecord(offset, f"{tp}@{offset}".encode())) for tp, offset in rows])


def one(value: bytes | None = b"v", *, timestamp_ms: int = 0, **extras: Any) -> Columns:
    """Return the columns of one record."""
    return Columns(
        topics=("a",),
        topic_codes=np.zeros(1, np.int32),
        partitions=np.zeros(1, np.int32),
        offsets=np.zeros(1, np.int64),
        timestamps_ms=np.array([timestamp_ms], np.int64),
        values=[value],
        **extras,
    )


def coordinates(selection: Selection) -> list[tuple[TopicPartition, int]]:
    """Return what was taken, row by row."""
    if selection.batch is None:
        return []
    rows = selection.batch.records.to_pylist()
    return [(TopicPartition(row["stream_topic"], row["stream_partition"]), row["stream_offset"]) for row in rows]


def row_of(columns: Columns, schema: RawSchema = BARE) -> dict[str, Any]:
    """Return the one row that these columns give."""
    batch = select(columns, {A0: 0}, schema).batch
    assert batch is not None
    rows: list[dict[str, Any]] = batch.records.to_pylist()
    assert len(rows) == 1
    return rows[0]


# --- what is taken ---


def test_new_records_are_taken_whole() -> None:
    """With their coordinates, their payload and the span of each partition."""
    selection = select(records((A0, 3), (A0, 4), (A1, 9)), {A0: 3, A1: 0}, BARE)
    assert coordinates(selection) == [(A0, 3), (A0, 4), (A1, 9)]
    assert selection.batch is not None
    assert selection.batch.spans == {A0: Span(4, 2), A1: Span(9, 1)}
    assert selection.batch.records.column("message_payload").to_pylist() == [b"a:0@3", b"a:0@4", b"a:1@9"]
    assert (selection.duplicates, selection.strangers) == (0, 0)


def test_nothing_gives_nothing() -> None:
    """An empty poll is no batch."""
    assert select(records(), {A0: 0}, BARE) == Selection(None, 0, 0)


def test_offsets_below_the_position_were_had_before() -> None:
    """The position itself is new."""
    selection = select(records((A0, 3), (A0, 4), (A0, 5)), {A0: 5}, BARE)
    assert coordinates(selection) == [(A0, 5)]
    assert selection.duplicates == 2


def test_an_offset_that_comes_twice_is_taken_once() -> None:
    """Also when a whole run comes back within one poll."""
    selection = select(records((A0, 0), (A0, 1), (A0, 0), (A0, 1), (A0, 2), (A0, 2)), {A0: 0}, BARE)
    assert coordinates(selection) == [(A0, 0), (A0, 1), (A0, 2)]
    assert selection.duplicates == 3


def test_gaps_are_no_news() -> None:
    """Markers, aborted and compacted records leave them."""
    selection = select(records((A0, 10), (A0, 700), (A0, 2**62)), {A0: 0}, BARE)
    assert selection.batch is not None
    assert selection.batch.spans == {A0: Span(2**62, 3)}
    assert selection.duplicates == 0


def test_a_partition_without_a_position_is_a_stranger() -> None:
    """Its records are not taken: it is not ours, or not any more."""
    selection = select(records((A0, 0), (B0, 0), (B0, 1)), {A0: 0}, BARE)
    assert coordinates(selection) == [(A0, 0)]
    assert selection.strangers == 2
    assert select(records((B0, 0)), {}, BARE) == Selection(None, 0, 1)


def test_the_position_0_is_a_position() -> None:
    """Not to be taken for none."""
    assert coordinates(select(records((A0, 0)), {A0: 0}, BARE)) == [(A0, 0)]


def test_partitions_of_the_same_number_are_two_if_their_topics_are() -> None:
    """The topic is part of the name."""
    selection = select(records((A0, 0), (B0, 0), (A0, 1), (B0, 1)), {A0: 1, B0: 0}, BARE)
    assert coordinates(selection) == [(B0, 0), (A0, 1), (B0, 1)]


def naive(
    rows: Sequence[tuple[TopicPartition, int]], positions: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, list[int]], int, int]:
    """Do the same record by record."""
    taken: dict[TopicPartition, list[int]] = {}
    duplicates = strangers = 0
    for tp, offset in rows:
        if tp not in positions:
            strangers += 1
        elif offset < positions[tp] or (tp in taken and offset <= max(taken[tp])):
            duplicates += 1
        else:
            taken.setdefault(tp, []).append(offset)
    return taken, duplicates, strangers


ROWS = st.lists(st.tuples(st.sampled_from([A0, A1, B0, TopicPartition("b", 7)]), st.integers(0, 12)), max_size=40)
RUNS = st.lists(
    st.tuples(st.sampled_from([A0, A1, B0]), st.integers(0, 15), st.integers(1, 6)).map(
        lambda run: [(run[0], run[1] + at) for at in range(run[2])]
    ),
    max_size=8,
).map(lambda runs: [row for run in runs for row in run])
POSITIONS = st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 12))


@given(rows=st.one_of(ROWS, RUNS), positions=POSITIONS)
def test_it_takes_what_looking_at_each_record_would_take(
    rows: list[tuple[TopicPartition, int]], positions: dict[TopicPartition, int]
) -> None:
    """Runs that come back, duplicates within a poll, strangers in between: all the same."""
    selection = select(records(*rows), positions, BARE)
    taken, duplicates, strangers = naive(rows, positions)
    found: dict[TopicPartition, list[int]] = {}
    for tp, offset in coordinates(selection):
        found.setdefault(tp, []).append(offset)
    assert found == taken
    assert (selection.duplicates, selection.strangers) == (duplicates, strangers)
    if selection.batch is not None:
        spans = {tp: Span(max(offsets), len(offsets)) for tp, offsets in taken.items()}
        assert selection.batch.spans == spans
        payloads = selection.batch.records.column("message_payload").to_pylist()
        assert payloads == [f"{tp}@{offset}".encode() for tp, offset in coordinates(selection)]


# --- what becomes of a record ---


@pytest.mark.parametrize("value", [b"", b"\x00", b"text", bytes(range(256)), b"\xff\xfe" * 1000, None])
def test_a_payload_is_never_changed(value: bytes | None) -> None:
    """A tombstone is null, an empty payload is empty: two things."""
    assert row_of(one(value))["message_payload"] == value


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (-1, None),
        (0, EPOCH),
        (1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        (-2, EPOCH - timedelta(milliseconds=2)),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)),
        (2**63 - 1, None),
        (-(2**63), None),
        (2**63 // 1000, None),
    ],
)
def test_a_timestamp_is_kafkas_or_null(timestamp_ms: int, expected: datetime | None) -> None:
    """-1 is Kafka's way to say none; what does not fit a calendar of microseconds is null, not a wrong date."""
    assert row_of(one(timestamp_ms=timestamp_ms))["message_timestamp"] == expected


def test_a_timestamp_beyond_the_year_9999_keeps_its_value() -> None:
    """Python can't show it, the column can."""
    batch = select(one(timestamp_ms=253_402_300_800_000), {A0: 0}, BARE).batch
    assert batch is not None
    assert batch.records.column("message_timestamp").cast(pa.int64()).to_pylist() == [253_402_300_800_000_000]


def test_a_missing_timestamp_does_not_touch_its_neighbours() -> None:
    """Null is per record."""
    rows = [(A0, FakeRecord(0, b"", 5)), (A0, FakeRecord(1, b"", -1)), (A0, FakeRecord(2, b"", 7))]
    batch = select(columns_of(rows), {A0: 0}, BARE).batch
    assert batch is not None
    found = batch.records.column("message_timestamp").cast(pa.int64()).to_pylist()
    assert found == [5000, None, 7000]
    assert batch.newest_ms == 7


def test_the_newest_timestamp_is_of_what_was_taken() -> None:
    """A redelivered record must not make the batch look newer than it is."""
    rows = [(A0, FakeRecord(0, b"", 900)), (A0, FakeRecord(1, b"", 5))]
    batch = select(columns_of(rows), {A0: 1}, BARE).batch
    assert batch is not None
    assert batch.newest_ms == 5


def test_the_times_of_a_span_are_of_what_was_taken() -> None:
    """In whatever order the partitions come."""
    rows = [(A1, FakeRecord(0, b"", 3)), (A0, FakeRecord(0, b"", 9)), (A0, FakeRecord(1, b"", 5))]
    rows += [(A0, FakeRecord(2, b"", 7)), (A1, FakeRecord(1, b"", 4))]
    batch = select(columns_of(rows), {A0: 1, A1: 0}, BARE).batch
    assert batch is not None
    assert {tp: (span.first_ms, span.last_ms) for tp, span in batch.spans.items()} == {A0: (5, 7), A1: (3, 4)}


@pytest.mark.parametrize("key", [None, b"", b"\x00\xff", b"k"])
def test_a_key_is_kept_as_it_is(key: bytes | None) -> None:
    """A record without a key differs from one with an empty key."""
    extras: dict[str, Any] = {"keys": [key], "headers": [None], "timestamp_types": np.array([1], np.int8)}
    assert row_of(one(**extras), FULL)["message_key"] == key


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, []),
        ([], []),
        ([("h", b"v")], [("h", b"v")]),
        ([("h", b"1"), ("h", b"2"), ("g", b""), ("h", b"1")], [("h", b"1"), ("h", b"2"), ("g", b""), ("h", b"1")]),
        (
            [("none", None), ("empty", b""), ("bin", b"\x00\xff")],
            [("none", None), ("empty", b""), ("bin", b"\x00\xff")],
        ),
        ([("", b"v"), ("ü", "text")], [("", b"v"), ("ü", b"text")]),
    ],
)
def test_headers_are_kept_in_order_with_duplicates(
    headers: list[tuple[str, bytes | None]] | None, expected: list[tuple[str, bytes | None]]
) -> None:
    """No headers at all is an empty list, so that null never needs a meaning."""
    extras: dict[str, Any] = {"keys": [None], "headers": [headers], "timestamp_types": np.array([1], np.int8)}
    found = row_of(one(**extras), FULL)["message_headers"]
    assert [(header["key"], header["value"]) for header in found] == expected


@pytest.mark.parametrize(("code", "name"), [(0, None), (1, "CreateTime"), (2, "LogAppendTime")])
def test_a_timestamp_type_is_told_by_its_name(code: int, name: str | None) -> None:
    """Kafka's own names."""
    extras: dict[str, Any] = {"keys": [None], "headers": [None], "timestamp_types": np.array([code], np.int8)}
    assert row_of(one(**extras), FULL)["message_timestamp_type"] == name


def test_extras_stay_beside_their_records_when_rows_are_taken_out() -> None:
    """A filter that forgot one column would mix records up."""
    columns = Columns(
        topics=("a",),
        topic_codes=np.zeros(3, np.int32),
        partitions=np.zeros(3, np.int32),
        offsets=np.array([0, 1, 2]),
        timestamps_ms=np.array([10, 11, 12]),
        values=[b"v0", b"v1", b"v2"],
        keys=[b"k0", None, b"k2"],
        headers=[[("n", b"0")], None, [("n", b"2")]],
        timestamp_types=np.array([1, 2, 1], np.int8),
    )
    batch = select(columns, {A0: 1}, FULL).batch
    assert batch is not None
    rows = batch.records.to_pylist()
    assert [row["message_payload"] for row in rows] == [b"v1", b"v2"]
    assert [row["message_key"] for row in rows] == [None, b"k2"]
    assert [row["message_headers"] for row in rows] == [[], [{"key": "n", "value": b"2"}]]
    assert [row["message_timestamp_type"] for row in rows] == ["LogAppendTime", "CreateTime"]


@pytest.mark.parametrize("schema", [BARE, RawSchema(("key",)), FULL, RawSchema(("headers",), partitioned=True)])
def test_a_batch_has_the_columns_of_the_file(schema: RawSchema) -> None:
    """In the schema's order, whatever Kafka delivered beside them."""
    extras: dict[str, Any] = {"keys": [b"k"], "headers": [[("h", b"v")]], "timestamp_types": np.array([1], np.int8)}
    batch = select(one(**extras), {A0: 0}, schema).batch
    assert batch is not None
    assert batch.records.schema.names == schema.file.names


def test_the_weight_is_what_kafka_carried() -> None:
    """Payloads and keys of what was taken, about; what was not taken has none."""
    rows = [(A0, FakeRecord(at, b"x" * 1000)) for at in range(100)]
    batch = select(columns_of(rows), {A0: 0}, BARE).batch
    half = select(columns_of(rows), {A0: 50}, BARE).batch
    assert batch is not None
    assert half is not None
    assert 100_000 <= batch.payload_bytes < 102_000
    assert 50_000 <= half.payload_bytes < 51_000
