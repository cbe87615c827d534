"""The stager: drafts become Parquet files that any reader understands, in bounded memory."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingestor.delta.storage import LocalStorage
from ingestor.ingest import parquet
from ingestor.ingest.budget import Budget
from ingestor.ingest.buffer import Batch, select
from ingestor.ingest.policy import DraftStats
from ingestor.ingest.stager import Draft
from ingestor.records import HEADERS, Columns, RawSchema, TopicPartition
from tests.support.fakes.kafka import FakeRecord
from tests.support.fakes.source import columns_of
from tests.support.fakes.storage import MemoryStorage
from tests.support.fakes.worker import ManualWorker

if TYPE_CHECKING:
    from pathlib import Path

    from ingestor.delta.storage import Storage
    from ingestor.ingest.stager import Staged

A0, B7 = TopicPartition("a", 0), TopicPartition("b", 7)
TODAY = date(2026, 1, 31)
FULL = RawSchema(("key", "headers", "timestamp_type"))


class Desk:
    """A draft and all that it needs."""

    def __init__(
        self,
        *,
        schema: RawSchema | None = None,
        compression: str = "zstd",
        root: Path | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.memory = MemoryStorage()
        self.storage: Storage = self.memory if root is None else LocalStorage(root)
        self.worker = ManualWorker()
        self.budget = budget or Budget(1 << 40)
        self.schema = schema or RawSchema()
        self.draft = Draft(
            self.storage,
            self.schema,
            compression=compression,
            worker=self.worker,
            budget=self.budget,
            opened_at=7.0,
            ingest_date=TODAY,
        )

    def add(self, *rows: tuple[TopicPartition, int], size: int = 10, chain: int | None = None) -> None:
        found = [(tp, FakeRecord(offset, bytes([offset % 256]) * size, 1000 + offset)) for tp, offset in rows]
        self.add_columns(columns_of(found), chain)

    def add_columns(self, columns: Columns, chain: int | None = None) -> None:
        self.draft.add(self.select(columns), {A0: chain, B7: chain})

    def select(self, columns: Columns) -> Batch:
        batch = select(columns, {A0: 0, B7: 0}, self.schema).batch
        assert batch is not None
        return batch

    def seal(self) -> Staged:
        finished = self.draft.finish()
        self.worker.run()
        finished.result(timeout=0)
        return self.draft.settle()

    def read(self, staged: Staged) -> pa.Table:
        return self.parquet(staged).read()

    def parquet(self, staged: Staged) -> pq.ParquetFile:
        data = self.storage.read(staged.files[0].path)
        assert data is not None
        return pq.ParquetFile(pa.BufferReader(data))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def full_columns() -> Columns:
    """Return two records with everything that a record can have."""
    return Columns(
        topics=("a",),
        topic_codes=np.zeros(2, np.int32),
        partitions=np.zeros(2, np.int32),
        offsets=np.array([0, 1]),
        timestamps_ms=np.array([1000, -1]),
        values=[b"", None],
        keys=[b"k", None],
        headers=[[("h", b"1"), ("h", None)], None],
        timestamp_types=np.array([1, 0], np.int8),
    )


def with_values(values: list[bytes | None], *, keys: list[bytes | None] | None = None, at: int = 0) -> Columns:
    """Return records with these payloads and keys."""
    count = len(values)
    return Columns(
        topics=("a",),
        topic_codes=np.zeros(count, np.int32),
        partitions=np.zeros(count, np.int32),
        offsets=np.arange(at, at + count),
        timestamps_ms=np.arange(count),
        values=values,
        keys=keys,
    )


def test_a_sealed_draft_says_what_there_is_to_commit(desk: Desk) -> None:
    """One file; for each partition what it was built on, its last offset and its number of rows."""
    desk.add((A0, 3), (A0, 5), chain=2)
    desk.add((B7, 0), (A0, 6), chain=None)
    staged = desk.seal()
    assert staged.commit_id == desk.draft.commit_id
    assert staged.expected == {A0: 2, B7: None}
    assert staged.last == {A0: 6, B7: 0}
    assert staged.counts == {A0: 3, B7: 1}
    assert staged.newest_ms == 1006
    assert 40 <= staged.payload_bytes <= 100
    assert len(staged.files) == 1


def test_the_rows_stand_in_the_file_in_the_order_they_came(desk: Desk) -> None:
    """Order within a partition is kept."""
    desk.add((A0, 0), (B7, 4))
    desk.add((A0, 1), (A0, 2))
    rows = desk.read(desk.seal()).to_pylist()
    assert [(row["stream_topic"], row["stream_partition"], row["stream_offset"]) for row in rows] == [
        ("a", 0, 0),
        ("b", 7, 4),
        ("a", 0, 1),
        ("a", 0, 2),
    ]
    assert rows[1]["message_payload"] == b"\x04" * 10


def test_topics_that_come_later_are_no_trouble(desk: Desk) -> None:
    """Each poll has its own list of topics; the file has one column of names."""
    desk.add((A0, 0))
    desk.add((B7, 0), (A0, 1))
    assert desk.read(desk.seal()).column("stream_topic").to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize("schema", [RawSchema(), FULL])
def test_any_reader_finds_plain_types(schema: RawSchema) -> None:
    """No Arrow schema hides in the file that would call the topic a dictionary."""
    desk = Desk(schema=schema)
    desk.add_columns(full_columns())
    read = desk.read(desk.seal()).schema
    assert [field.name for field in read] == schema.file.names
    types = {field.name: field.type for field in read}
    assert types["stream_topic"] == pa.string()
    assert types["stream_partition"] == pa.int32()
    assert types["stream_offset"] == pa.int64()
    assert types["message_timestamp"] == pa.timestamp("us", "UTC")
    assert types["message_payload"] == pa.binary()
    if schema is FULL:
        assert types["message_key"] == pa.binary()
        assert types["message_headers"] == HEADERS
        assert types["message_timestamp_type"] == pa.string()


def test_everything_of_a_record_survives() -> None:
    """Empty and null apart, headers twice, no timestamp."""
    desk = Desk(schema=FULL)
    desk.add_columns(full_columns())
    one, two = desk.read(desk.seal()).to_pylist()
    assert (one["message_payload"], two["message_payload"]) == (b"", None)
    assert (one["message_key"], two["message_key"]) == (b"k", None)
    assert one["message_headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert two["message_headers"] == []
    assert two["message_timestamp"] is None
    assert (one["message_timestamp_type"], two["message_timestamp_type"]) == ("CreateTime", None)


def test_row_groups_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows leave memory before the file is full: the budget never holds much more than one row group."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    held = []
    for at in range(40):
        desk.add((A0, at), size=1_000)
        desk.worker.run()
        held.append(desk.budget.used)
    metadata = desk.parquet(desk.seal()).metadata
    assert max(held) < 12_000
    assert metadata.num_row_groups >= 4
    assert max(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)) <= 10
    assert metadata.num_rows == 40


@pytest.mark.parametrize(("size", "rows"), [(3_900, 1), (2_600, 2), (900, 4)])
def test_a_row_group_has_the_batches_that_come_nearest_to_its_size(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, size: int, rows: int
) -> None:
    """Polls bring a little less than that; two of them would take twice the memory."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 4_000)
    for at in range(12):
        desk.add((A0, at), size=size)
        desk.worker.run()
    metadata = desk.parquet(desk.seal()).metadata
    assert {metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)} == {rows}


def test_many_drafts_never_gather_more_than_half_of_the_budget(tmp_path: Path) -> None:
    """Else all would wait for more to come, and nothing could come because the budget is used up."""
    budget = Budget(80_000, writers=4)
    desks = [Desk(root=tmp_path / str(number), budget=budget) for number in range(4)]
    held = []
    for at in range(30):
        for desk in desks:
            desk.add((A0, at), size=1_000)
            desk.worker.run()
            held.append(budget.used)
    assert 30_000 < max(held) <= 40_000
    assert sum(desk.parquet(desk.seal()).metadata.num_rows for desk in desks) == 120


def test_row_groups_are_not_tiny(desk: Desk) -> None:
    """Small polls are gathered."""
    for at in range(100):
        desk.add((A0, at))
        desk.worker.run()
    assert desk.parquet(desk.seal()).metadata.num_row_groups == 1


def test_the_budget_counts_what_waits_and_what_is_gathered(desk: Desk) -> None:
    """And nothing once the file is closed."""
    desk.add((A0, 0), size=5_000)
    before = desk.budget.used
    assert before > 5_000
    desk.worker.run()
    assert desk.budget.used == before
    desk.seal()
    assert desk.budget.used == 0


def test_statistics_tell_the_ranges_of_the_coordinates(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all row groups; not of payloads, which would bloat the log and leak."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    for row in ((B7, 300), (A0, 5), (A0, 9)):
        desk.add(row)
        desk.worker.run()
    staged = desk.seal()
    assert staged.files[0].stats == {
        "numRecords": 3,
        "minValues": {
            "stream_topic": "a",
            "stream_partition": 0,
            "stream_offset": 5,
            "message_timestamp": "1970-01-01T00:00:01.005Z",
        },
        "maxValues": {
            "stream_topic": "b",
            "stream_partition": 7,
            "stream_offset": 300,
            "message_timestamp": "1970-01-01T00:00:01.300Z",
        },
        "nullCount": {"stream_topic": 0, "stream_partition": 0, "stream_offset": 0, "message_timestamp": 0},
    }


def test_statistics_count_nulls_and_leave_out_what_has_no_range() -> None:
    """Keys, headers and payloads have none at all."""
    desk = Desk(schema=FULL)
    desk.add_columns(full_columns())
    stats = desk.seal().files[0].stats
    assert stats["nullCount"]["message_timestamp"] == 1
    assert stats["nullCount"]["message_timestamp_type"] == 1
    assert stats["minValues"]["message_timestamp_type"] == "CreateTime"
    for bounds in (stats["minValues"], stats["maxValues"], stats["nullCount"]):
        assert not {"message_payload", "message_key", "message_headers"} & bounds.keys()


@pytest.mark.parametrize(
    ("timestamps", "bounds"),
    [
        ([-1, -1], (None, None)),
        ([0, -1], ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z")),
        ([5, 253_402_300_799_999], ("1970-01-01T00:00:00.005Z", "9999-12-31T23:59:59.999Z")),
        ([5, 253_402_300_800_000], ("1970-01-01T00:00:00.005Z", None)),
        ([-5, 5], (None, "1970-01-01T00:00:00.005Z")),
    ],
)
def test_statistics_of_odd_timestamps_are_left_out(
    desk: Desk, timestamps: list[int], bounds: tuple[str | None, str | None]
) -> None:
    """Before 1970 and after 9999 readers don't agree; a bound that is missing is never wrong."""
    desk.add_columns(columns_of([(A0, FakeRecord(at, b"", ms)) for at, ms in enumerate(timestamps)]))
    stats = desk.seal().files[0].stats
    assert (stats["minValues"].get("message_timestamp"), stats["maxValues"].get("message_timestamp")) == bounds


def test_the_size_is_the_files_own(desk: Desk) -> None:
    """Readers rely on it to find the footer."""
    desk.add((A0, 0))
    file = desk.seal().files[0]
    assert file.size == len(desk.memory.files[file.path])


def column_chunks(file: pq.ParquetFile) -> dict[str, pq.ColumnChunkMetaData]:
    """Return the columns of the first row group."""
    group = file.metadata.row_group(0)
    return {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}


def test_columns_are_encoded_as_they_compress_best(desk: Desk) -> None:
    """Offsets and timestamps as differences, names by dictionary; all of it compressed."""
    desk.add(*[(A0, at) for at in range(100)])
    columns = column_chunks(desk.parquet(desk.seal()))
    assert "DELTA_BINARY_PACKED" in columns["stream_offset"].encodings
    assert "DELTA_BINARY_PACKED" in columns["message_timestamp"].encodings
    assert "RLE_DICTIONARY" in columns["stream_topic"].encodings
    assert {column.compression for column in columns.values()} == {"ZSTD"}


REPEATING: list[bytes | None] = [None, b"", *(b"%d" % number + b"x" * 100 for number in range(48))] * 20
UNIQUE: list[bytes | None] = [b"%d" % number + b"x" * 100 for number in range(1_000)]


@pytest.mark.parametrize(
    ("values", "by_dictionary"),
    [
        (REPEATING, True),
        (UNIQUE, False),
        (UNIQUE[:600] + [None] * 200 + UNIQUE[:200], True),
        (UNIQUE[:700] + [None] * 300, False),
        (UNIQUE[:800] + [b""] * 200, False),
        ([None] * 1_000, True),
    ],
)
@pytest.mark.parametrize("column", ["message_payload", "message_key"])
def test_what_repeats_is_packed_by_dictionary(column: str, values: list[bytes | None], by_dictionary: bool) -> None:  # noqa: FBT001
    """Payloads and keys, each for itself: where values do not repeat it would cost more."""
    desk = Desk(schema=RawSchema(("key",)))
    of_payloads = column == "message_payload"
    desk.add_columns(with_values(values, keys=UNIQUE) if of_payloads else with_values(UNIQUE, keys=values))
    staged = desk.seal()
    chunks = column_chunks(desk.parquet(staged))
    assert ("RLE_DICTIONARY" in chunks[column].encodings) == by_dictionary
    assert "RLE_DICTIONARY" not in chunks["message_key" if of_payloads else "message_payload"].encodings
    assert desk.read(staged).column(column).to_pylist() == values


def test_payloads_that_stop_to_repeat_stay_what_they_are(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first rows decide how all are packed, and memory is bounded all the same."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 20_000)
    values = [*REPEATING, None, *(b"%d" % number * 250 for number in range(1_000))]
    held = []
    for at in range(0, len(values), 100):
        desk.add_columns(with_values(values[at : at + 100], at=at))
        desk.worker.run()
        held.append(desk.budget.used)
    staged = desk.seal()
    chunks = desk.parquet(staged).metadata
    assert chunks.num_row_groups > 5
    assert max(held) <= 20_000 + 100 * 1_000
    assert desk.budget.used == 0
    assert [row["message_payload"] for row in desk.read(staged).to_pylist()] == values


def test_many_polls_of_a_row_each_do_not_pile_up(desk: Desk) -> None:
    """Each batch takes some KB that nobody counts; their rows stay what they are."""
    for at in range(1_000):
        desk.add_columns(with_values([None if at % 3 else b"x"], at=at))
        desk.worker.run()
    assert len(desk.draft._writer._batches) < 100
    rows = desk.read(desk.seal())
    assert rows.column("stream_offset").to_pylist() == list(range(1_000))
    assert rows.column("message_payload").to_pylist() == [None if at % 3 else b"x" for at in range(1_000)]


@pytest.mark.parametrize("written", [0, 1])
def test_a_draft_that_finds_no_memory_leaves_nothing_behind(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Nor does it need any to be thrown away: no file, no memory that stays counted."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    for at in range(0, 1_000 * written, 100):
        desk.add_columns(with_values(REPEATING[at : at + 100], at=at))
        desk.worker.run()

    def no_memory(_writer: object) -> None:
        raise MemoryError

    monkeypatch.setattr(parquet.FileWriter, "_write_row_group", no_memory)
    for at in range(1_000, 2_000, 100):
        desk.add_columns(with_values(REPEATING[:100], at=at))
        desk.worker.run()
    with pytest.raises(MemoryError):
        desk.seal()
    assert len(desk.memory.discarded) == written
    assert desk.memory.files == {}
    assert desk.budget.used == 0


@pytest.mark.parametrize(
    ("compression", "codec", "ending"),
    [("zstd", "ZSTD", "zstd"), ("zstd:7", "ZSTD", "zstd"), ("snappy", "SNAPPY", "snappy"), ("gzip", "GZIP", "gzip")],
)
def test_compression_is_the_routes_choice(compression: str, codec: str, ending: str) -> None:
    """And the file's name tells it, as everybody's does."""
    desk = Desk(compression=compression)
    desk.add((A0, 0))
    staged = desk.seal()
    assert desk.parquet(staged).metadata.row_group(0).column(0).compression == codec
    assert staged.files[0].path == f"part-{staged.commit_id}.{ending}.parquet"


def test_a_partitioned_file_stands_in_its_dates_folder() -> None:
    """The date lives in the log, not in the file."""
    desk = Desk(schema=RawSchema(partitioned=True))
    desk.add((A0, 0))
    file = desk.seal().files[0]
    assert file.path.startswith("ingest_date=2026-01-31/part-")
    assert file.partition_values == {"ingest_date": "2026-01-31"}
    assert "ingest_date" not in pq.read_schema(pa.BufferReader(desk.memory.files[file.path])).names


def test_two_drafts_never_share_a_name() -> None:
    """Whatever was written before must not be overwritten."""
    assert Desk().draft.commit_id != Desk().draft.commit_id


def test_a_draft_tells_how_full_it_is(desk: Desk) -> None:
    """At once, not only when its rows are written."""
    desk.add((A0, 0), (A0, 1))
    desk.add((A0, 2))
    stats = desk.draft.stats
    assert stats == DraftStats(rows=3, bytes=stats.bytes, opened_at=7.0, ingest_date=TODAY)
    assert 30 <= stats.bytes <= 60


@pytest.mark.parametrize("begun", [True, False])
def test_an_aborted_draft_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """No file, no memory; also when part of it was written already."""
    if begun:
        monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    desk = Desk(root=tmp_path)
    desk.add((A0, 0))
    desk.worker.run()
    assert len(list(tmp_path.iterdir())) == int(begun)
    desk.add((A0, 1))
    desk.draft.abort()
    desk.worker.run()
    assert list(tmp_path.iterdir()) == []
    assert desk.budget.used == 0


def test_an_aborted_draft_skips_what_still_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the encoding of rows that are thrown away."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    for at in range(5):
        desk.add((A0, at))
    desk.draft.abort()
    desk.worker.run()
    assert desk.memory.discarded == []
    assert desk.budget.used == 0


@pytest.mark.parametrize("step", ["create", "settle"])
def test_a_failure_surfaces_in_the_draft(desk: Desk, step: str) -> None:
    """The poll thread sees it without waiting, and sealing says it too; no memory stays counted."""
    desk.add((A0, 0))
    if step == "settle":
        desk.worker.run()
    desk.memory.failures.append(OSError("disk gone"))
    with pytest.raises(OSError, match="disk gone"):
        desk.seal()
    assert "disk gone" in str(desk.draft.failure)
    desk.draft.abort()
    desk.worker.run()
    assert desk.budget.used == 0
    assert desk.memory.files == {}


def test_rows_after_a_failure_are_counted_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that can't be written takes no memory, however much still comes."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    desk.memory.failures.append(OSError("disk gone"))
    for at in range(5):
        desk.add((A0, at))
        desk.worker.run()
    assert desk.draft.failure is not None
    assert desk.budget.used == 0


def test_a_finished_file_needs_the_worker_no_more(desk: Desk) -> None:
    """Whoever commits it waits for the disk or the store, while the worker encodes the next one."""
    desk.add((A0, 0))
    desk.draft.finish()
    desk.worker.run()
    assert desk.memory.files == {}
    staged = desk.draft.settle()
    assert len(desk.worker) == 0
    assert list(desk.memory.files) == [staged.files[0].path]


def test_a_local_file_is_there_when_it_is_sealed(tmp_path: Path) -> None:
    """On disk, with the folders above it."""
    desk = Desk(root=tmp_path, schema=RawSchema(partitioned=True))
    desk.add((A0, 0))
    path = tmp_path / desk.seal().files[0].path
    assert pq.read_table(path, partitioning=None).num_rows == 1


def test_the_budget_knows_when_it_is_used_up() -> None:
    """At the limit, and not below; waiting tells whether there is room again."""
    budget = Budget(100)
    budget.take(99)
    assert not budget.exhausted
    assert budget.wait(0)
    budget.take(1)
    assert budget.exhausted
    assert not budget.wait(0.01)
    budget.give_back(1)
    assert budget.wait(0)
    assert budget.used == 99


def test_writers_that_gather_leave_room_for_more() -> None:
    """Each writes when it has its share; else all would wait, with memory full, for a flush that only time brings."""
    budget = Budget(60_000, writers=3)
    desks = [Desk(budget=budget) for _ in range(3)]
    for at in range(100):
        for desk in desks:
            desk.add((A0, at), size=1_000)
            desk.worker.run()
    assert budget.used < budget.limit // 2
    assert [desk.parquet(desk.seal()).metadata.num_row_groups > 5 for desk in desks] == [True] * 3
