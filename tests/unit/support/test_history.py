"""The judge of the other tests sees what it is there to see."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ingestor.records import RawSchema, TopicPartition
from tests.support.judge import history
from tests.support.rawtables import TP, Record, TableMaker, records

OTHER = TopicPartition("orders", 1)
FULL = RawSchema(extras=("key", "headers"), partitioned=True)


@pytest.fixture
def maker(tmp_path: Path) -> TableMaker:
    """Return the maker of a new table."""
    return TableMaker(tmp_path / "raw")


def judge(maker: TableMaker, rows: list[Record], **options: Any) -> None:
    """Check a table against what Kafka is to have."""
    expected = {(*row.tp, row.offset): (row.timestamp_ms, row.key, row.value, list(row.headers)) for row in rows}
    history.check_table(expected, maker.path, "shop", **options)


def test_a_right_table_is_accepted(tmp_path: Path) -> None:
    """Partitions, gaps, tombstones, extra columns and a partition column are all in order."""
    maker = TableMaker(tmp_path / "raw", FULL)
    rows = [
        Record(0, None),
        Record(2, b"", key=b"k", headers=(("h", None),)),
        Record(3, timestamp_ms=-1),
        Record(0, tp=OTHER),
    ]
    maker.flush(rows)
    maker.flush(records(7))
    judge(maker, [*rows, *records(7)])


def test_a_right_table_is_accepted_after_optimize_checkpoint_and_cleanup(
    maker: TableMaker,
) -> None:
    """What the log no longer tells is judged as a whole."""
    for offset in range(4):
        maker.flush(records(offset))
    DeltaTable(maker.uri).optimize.compact()
    maker.flush(records(4))
    maker.table.checkpoint()
    maker.flush(records(5))
    maker.clean_log(before=6)
    judge(maker, records(*range(6)))


def test_a_txn_set_back_by_a_person_is_accepted(maker: TableMaker) -> None:
    """Only txns that nobody set must rise."""
    maker.commit([], {TP: 9}, kind="set")
    maker.commit([], {TP: -1}, kind="set")
    maker.flush(records(0))
    judge(maker, records(0))


def test_without_complete_records_beyond_the_txn_are_not_expected_yet(maker: TableMaker) -> None:
    """As while an ingestor still runs; up to the txn all must be there."""
    maker.flush(records(0, 1))
    judge(maker, records(0, 1, 2), complete=False)
    with pytest.raises(AssertionError, match=r"2: committed, but not in the table"):
        judge(maker, records(0, 1, 2))


def test_records_declared_lost_must_not_be_there(maker: TableMaker) -> None:
    """Declared data loss is expected to be just that."""
    maker.flush(records(0, 2))
    judge(maker, records(0, 1, 2), lost=[(*TP, 1)])
    with pytest.raises(AssertionError, match="in the table, but declared lost"):
        judge(maker, records(0, 1, 2), lost=[(*TP, 1), (*TP, 2)])


@pytest.mark.parametrize(
    ("landed", "txn", "says"),
    [
        ((0, 1, 1, 2), 2, r"\('orders', 0\) 1: more than once in the table"),
        ((0, 2, 1), 2, r"out of order at 1"),
        ((0, 1), 1, r"2: committed, but not in the table"),
        ((0, 1, 2, 3), 3, r"3: in the table, but not committed"),
        ((0, 1, 2), 1, r"has rows up to 2, beyond its txn 1"),
        ((0, 1, 2), 1, r"version 1 landed \('orders', 0\) 2, not in \(-1, 1\]"),
        ((0, 1, 2), None, r"without a txn"),
        ((0, 1, 2), None, r"has rows up to 2, and no txn"),
        ((0, 1), 2, r"version 1 sets shop/orders/0 to 2, its last row is at 1"),
    ],
)
def test_rows_that_are_wrong_in_one_commit_are_seen(
    maker: TableMaker, landed: tuple[int, ...], txn: int | None, says: str
) -> None:
    """Twice, out of order, missing, never committed, beyond the txn, without one."""
    maker.flush(records(*landed), {} if txn is None else {TP: txn})
    with pytest.raises(AssertionError, match=says):
        judge(maker, records(0, 1, 2))


def test_rows_twice_across_files_are_seen(maker: TableMaker) -> None:
    """The second commit has them outside its range as well."""
    maker.flush(records(0, 1))
    maker.flush(records(1, 2), {TP: 2})
    with pytest.raises(AssertionError) as wrong:
        judge(maker, records(0, 1, 2))
    assert "1: more than once in the table" in str(wrong.value)
    assert "version 2 landed ('orders', 0) 1, not in (1, 2]" in str(wrong.value)


def test_rows_twice_are_seen_after_optimize(maker: TableMaker) -> None:
    """A rewrite hides the commits, not the duplicate."""
    maker.flush(records(0))
    maker.flush(records(0), {TP: 0})
    DeltaTable(maker.uri).optimize.compact()
    with pytest.raises(AssertionError, match="more than once in the table"):
        judge(maker, records(0))


def test_a_txn_that_went_back_is_seen(maker: TableMaker) -> None:
    """By a flush nothing may go back, nor stay."""
    maker.flush(records(0, 1))
    maker.commit([], {TP: 0})
    with pytest.raises(AssertionError, match="moves the txn of shop/orders/0 from 1 to 0"):
        judge(maker, records(0, 1))


def test_two_txns_of_a_partition_in_one_entry_are_seen(maker: TableMaker) -> None:
    """Delta forbids it, and readers differ in which one counts."""
    maker.flush(records(0))
    txn = {"appId": "shop/orders/0", "version": 1, "lastUpdated": 1}
    maker.append_entry({"txn": txn}, {"txn": {**txn, "version": 2}})
    with pytest.raises(AssertionError, match="version 2 has two txns"):
        judge(maker, records(0))


def test_a_missing_file_is_seen(maker: TableMaker) -> None:
    """Its rows are missing too."""
    file = maker.flush(records(0))
    (maker.path / file.path).unlink()
    with pytest.raises(AssertionError, match="is not there"):
        judge(maker, records(0))


def test_a_file_of_another_size_or_with_other_rows_is_seen(maker: TableMaker) -> None:
    """The log's size and row count must be the file's."""
    file = maker.flush(records(0))
    pq.write_table(maker._columns([*records(0), Record(1, b"x" * 99)]), maker.path / file.path)
    with pytest.raises(AssertionError) as wrong:
        judge(maker, records(0))
    assert f"bytes, not {file.size}" in str(wrong.value)
    assert "has 2 rows, not 1" in str(wrong.value)


def test_a_damaged_file_is_seen(maker: TableMaker) -> None:
    """It is a problem, not a crash of the judge."""
    file = maker.flush(records(0))
    (maker.path / file.path).write_bytes(b"PAR1")
    with pytest.raises(AssertionError, match="can't be read"):
        judge(maker, records(0))


def test_a_path_added_twice_is_seen(maker: TableMaker) -> None:
    """In the whole log each file is added once."""
    file = maker.flush(records(0))
    maker.commit([file], {TP: 1})
    with pytest.raises(AssertionError, match=f"version 2 adds {file.path} again"):
        judge(maker, records(0))


def test_a_rewrite_that_loses_rows_is_seen(maker: TableMaker) -> None:
    """Whoever rewrote them, the records are not in the table."""
    old = maker.flush(records(0, 1))
    new = maker.file(records(0))
    add = {"path": new.path, "size": new.size, "partitionValues": {}, "modificationTime": 1}
    stats = json.dumps(dict(new.stats))
    maker.append_entry(
        {"remove": {"path": old.path, "dataChange": False}},
        {"add": {**add, "dataChange": False, "stats": stats}},
    )
    with pytest.raises(AssertionError, match="1: committed, but not in the table"):
        judge(maker, records(0, 1))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"value": b"other"}, "value is b'other', Kafka has b'value'"),
        ({"value": b""}, "value is b'', Kafka has b'value'"),
        ({"value": None}, "value is None, Kafka has b'value'"),
        ({"key": b""}, "key is b'', Kafka has None"),
        ({"headers": (("h", b""),)}, r"headers is \[\('h', b''\)\], Kafka has \[\]"),
        ({"timestamp_ms": -1}, "timestamp is -1, Kafka has"),
    ],
)
def test_content_that_changed_is_seen(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    """Each field counts, and empty is not null."""
    maker = TableMaker(tmp_path / "raw", FULL)
    maker.flush([Record(0)._replace(**changed)])
    with pytest.raises(AssertionError, match=says):
        judge(maker, [Record(0)])


def test_a_table_without_log_is_seen(tmp_path: Path) -> None:
    """No log is not an empty table."""
    with pytest.raises(AssertionError, match="has no log entry"):
        history.check_table({}, tmp_path, "shop")


def test_an_empty_log_entry_is_seen(maker: TableMaker) -> None:
    """Power loss leaves entries of zero bytes, which readers take for a version."""
    maker.append_entry()
    with pytest.raises(AssertionError, match="log entry 1 is empty"):
        judge(maker, [])


def test_a_long_list_of_problems_is_cut(maker: TableMaker) -> None:
    """A message that fits a screen is read."""
    maker.flush([Record(n, b"x") for n in range(30)])
    with pytest.raises(AssertionError) as wrong:
        judge(maker, [Record(n) for n in range(30)])
    assert "wrong in 30 ways" in str(wrong.value)
    assert "and 20 more" in str(wrong.value)
