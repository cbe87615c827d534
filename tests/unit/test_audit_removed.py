"""Rows that somebody took out of the table: by RESTORE, overwrite, DELETE, MERGE, by real delta-rs, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestor.audit import Names, Report, audit_table, marks
from ingestor.records import TopicPartition
from tests.support.rawtables import TP, FakeKafka, TableMaker, records

if TYPE_CHECKING:
    from pathlib import Path

OTHER = TopicPartition("orders", 1)
ALL = [*records(*range(6)), *records(*range(4), tp=OTHER)]


@pytest.fixture
def maker(tmp_path: Path) -> TableMaker:
    """Return the maker of a table with six records of one partition and four of another, in four commits."""
    made = TableMaker(tmp_path / "raw")
    made.flush([*records(0, 1, 2), *records(0, 1, tp=OTHER)])
    made.flush(records(3))
    made.flush([*records(4), *records(2, tp=OTHER)])
    made.flush([*records(5), *records(3, tp=OTHER)])
    return made


def audit(maker: TableMaker, kafka: FakeKafka | None = None, **options: Any) -> Report:
    """Audit the maker's table."""
    names = Names(maker.app_ids.template, maker.app_ids.app_id)
    return audit_table(maker.uri, {}, names, maker.schema, kafka=kafka, progress=lambda _: None, **options)


def removed(report: Report) -> list[tuple[str, TopicPartition | None, tuple[int, int] | None]]:
    """Return what a report says is gone."""
    return [(found.kind, found.tp, found.offsets) for found in report.findings]


def verdict(report: Report) -> str:
    """Return the last line."""
    return list(report.lines())[-1]


def table(maker: TableMaker) -> DeltaTable:
    """Open the table as another program does."""
    return DeltaTable(maker.uri)


def land_again(maker: TableMaker) -> None:
    """Do what a person does after a RESTORE to version 2: set the offsets back, and ingest."""
    maker.commit([], {TP: 3, OTHER: 1}, kind="set")
    maker.flush([*records(4, 5), *records(2, 3, tp=OTHER)])


# --- findings ---


def test_rows_that_a_restore_took_are_found(maker: TableMaker) -> None:
    """For each partition, with the version that took them."""
    table(maker).restore(2)
    report = audit(maker)
    assert removed(report) == [("removed", TP, (4, 5)), ("removed", OTHER, (2, 3))]
    assert {found.version for found in report.findings} == {5}
    assert "version 5 (RESTORE) removed 2 rows of orders:0, offsets 4 to 5" in report.findings[0].sentence
    assert "every offset once" not in verdict(report)


def test_rows_that_a_restore_took_are_found_behind_later_commits(maker: TableMaker) -> None:
    """A supervisor's restart goes on behind the hole; it is a hole for ever after."""
    table(maker).restore(2)
    maker.flush([*records(6), *records(4, tp=OTHER)])
    table(maker).optimize.compact()
    assert removed(audit(maker)) == [("removed", TP, (4, 5)), ("removed", OTHER, (2, 3))]


def test_rows_that_an_overwrite_took_are_found(maker: TableMaker) -> None:
    """Whatever it wrote instead."""
    kept = table(maker).to_pyarrow_table(filters=[("stream_offset", ">", 1)])
    write_deltalake(maker.uri, kept, mode="overwrite")
    assert removed(audit(maker)) == [("removed", TP, (0, 1)), ("removed", OTHER, (0, 1))]


def test_rows_of_a_table_that_was_emptied_are_found(maker: TableMaker) -> None:
    """A DELETE that names no rows is a truncation."""
    table(maker).delete()
    report = audit(maker)
    assert removed(report) == [("removed", TP, (0, 5)), ("removed", OTHER, (0, 3))]
    assert report.rows == 0


@pytest.mark.parametrize("operation", ["TRUNCATE", "WRITE", "CREATE OR REPLACE TABLE", "REMOVE COLUMN MAPPING", None])
def test_whatever_removes_rows_without_a_choice_is_a_finding(maker: TableMaker, operation: str | None) -> None:
    """By what it did, not by what it is called."""
    file = sorted(table(maker).file_uris())[0].rpartition("/")[2]
    info = {"commitInfo": {"operation": operation}} if operation else {"commitInfo": {}}
    maker.append_entry(info, {"remove": {"path": file, "dataChange": True, "deletionTimestamp": 1}})
    assert {found.kind for found in audit(maker).findings} == {"removed"}


def test_a_txn_that_goes_back_without_a_person_is_found_beside_the_rows(maker: TableMaker) -> None:
    """Nobody but `offsets --set` may move a txn back."""
    table(maker).restore(2)
    rewound = CommitProperties(app_transactions=[Transaction("shop/orders/0", 3, 1)])
    table(maker).create_write_transaction([], mode="append", schema=table(maker).schema(), commit_properties=rewound)
    assert {found.kind for found in audit(maker).findings} == {"removed", "txn_back"}


def test_what_is_gone_is_told_once_against_kafka(maker: TableMaker) -> None:
    """Not a second time as missing; what else is missing is told."""
    table(maker).restore(2)
    assert {found.kind for found in audit(maker, FakeKafka(ALL), from_start=True).findings} == {"removed"}
    more = FakeKafka([*ALL, *records(7)])
    maker.flush(records(8))
    findings = audit(maker, more, from_start=True).findings
    assert [found.offsets for found in findings if found.kind == "missing"] == [(7, 7)]


# --- what is back is no finding ---


def test_a_restore_that_brings_deleted_rows_back_leaves_nothing_to_say(maker: TableMaker) -> None:
    """It adds files again that were there before: that is no second landing."""
    before = table(maker).version()
    table(maker).delete("stream_offset = 1")
    table(maker).restore(before)
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert "every offset once" in verdict(report)


def test_a_restore_of_a_restore_leaves_nothing_to_say(maker: TableMaker) -> None:
    """To the version before it: all rows are there once."""
    before = table(maker).version()
    table(maker).restore(1)
    table(maker).restore(before)
    maker.flush(records(6))
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "every offset once" in verdict(report)


def test_rows_that_were_landed_again_after_a_restore_leave_nothing_to_say(maker: TableMaker) -> None:
    """A person set the offsets back; the rows stand in other files now."""
    table(maker).restore(2)
    land_again(maker)
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert report.compared == len(ALL)
    assert "every offset once" in verdict(report)


def test_a_restore_back_to_rows_that_were_landed_again_doubles_them(maker: TableMaker) -> None:
    """Then it is a fault."""
    table(maker).restore(2)
    land_again(maker)
    taken = records(5)
    maker.commit([maker.file(taken)], {})
    assert "duplicate" in {found.kind for found in audit(maker).findings}


def test_optimize_and_vacuum_take_no_rows(maker: TableMaker) -> None:
    """Nor does a RESTORE to before an OPTIMIZE, once and back."""
    before = table(maker).version()
    table(maker).optimize.compact()
    table(maker).restore(before)
    table(maker).optimize.compact()
    report = audit(maker)
    assert report.ok, list(report.lines())
    vacuum(maker)
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert "every offset once" in verdict(report)


def test_an_overwrite_with_the_same_rows_takes_none(maker: TableMaker) -> None:
    """People compact tables in this way."""
    write_deltalake(maker.uri, table(maker).to_pyarrow_table(), mode="overwrite")
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())


def test_an_entry_that_commits_a_live_file_again_is_found(maker: TableMaker) -> None:
    """A file that comes back may; one that is there may not, nor may one of ours come a second time."""
    file = maker.flush(records(6))
    maker.commit([file], {TP: 7})
    assert "added_twice" in {found.kind for found in audit(maker).findings}


def test_a_commit_of_ours_that_lands_a_removed_file_again_is_found(maker: TableMaker) -> None:
    """OPTIMIZE moved its rows on; a zombie that lands the file again doubles them."""
    file = maker.flush(records(6))
    table(maker).optimize.compact()
    maker.commit([file], {TP: 7})
    assert {found.kind for found in audit(maker).findings} >= {"added_twice", "duplicate"}


# --- what a person chose is a note ---


def test_rows_that_a_person_deleted_are_notes(maker: TableMaker) -> None:
    """With the number of rows of each partition; nobody claims that every offset is there then."""
    table(maker).delete("stream_offset >= 2 and stream_offset <= 4")
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 5 (DELETE) removed 3 rows of orders:0, offsets 2 to 4",
        "version 5 (DELETE) removed 2 rows of orders:1, offsets 2 to 3",
    )
    assert "every offset once" not in verdict(report)
    assert verdict(report).startswith("audit: OK")
    assert report.to_json()["complete"] is False


def test_scattered_rows_that_a_person_deleted_are_counted(maker: TableMaker) -> None:
    """The note says how many lie between which offsets."""
    table(maker).delete("stream_offset in (0, 3, 5)")
    told = audit(maker, FakeKafka(ALL)).notes
    assert told[0] == "version 5 (DELETE) removed 3 rows of orders:0, 3 of offsets 0 to 5"


def test_a_merge_that_deletes_is_a_note(maker: TableMaker) -> None:
    """And what it updates is no removal."""
    source = table(maker).to_pyarrow_table(filters=[("stream_offset", "=", 1)])
    merge = table(maker).merge(
        source,
        "t.stream_offset = s.stream_offset and t.stream_partition = s.stream_partition",
        source_alias="s",
        target_alias="t",
    )
    merge.when_matched_delete().execute()
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert [note.partition(" removed ")[2] for note in report.notes] == [
        "1 row of orders:0, offset 1",
        "1 row of orders:1, offset 1",
    ]
    assert "(MERGE)" in report.notes[0]


def test_an_update_takes_no_rows_but_their_content_is_compared(maker: TableMaker) -> None:
    """The rows are there; that they say something else only Kafka can tell."""
    table(maker).update(predicate="stream_offset = 2", updates={"message_timestamp": "null"})
    assert audit(maker).ok
    assert "every offset once" in verdict(audit(maker))
    assert {found.kind for found in audit(maker, FakeKafka(ALL)).findings} == {"changed"}


def test_a_row_counts_for_the_entry_that_took_it_last(maker: TableMaker) -> None:
    """A DELETE whose rows came back, and went again by an overwrite, is not to blame."""
    before = table(maker).version()
    table(maker).delete("stream_offset = 5")
    table(maker).restore(before)
    write_deltalake(maker.uri, table(maker).to_pyarrow_table(filters=[("stream_offset", "<", 5)]), mode="overwrite")
    report = audit(maker)
    assert [(found.version, found.tp, found.offsets) for found in report.findings] == [(7, TP, (5, 5))]
    assert not report.notes


def test_rows_deleted_and_read_again_are_there(maker: TableMaker) -> None:
    """docs/recovery.md says so: delete, set back, start."""
    table(maker).delete("stream_partition = 0 and stream_offset >= 3")
    maker.commit([], {TP: 2}, kind="set")
    maker.flush(records(3, 4, 5))
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert "every offset once" in verdict(report)


# --- declared removals ---


def declare(maker: TableMaker, predicate: str, *ranges: tuple[TopicPartition, int, int, int]) -> None:
    """Delete rows as `spark_jobs expire` does: the commit says which."""
    said = [
        {"topic": tp.topic, "partition": tp.partition, "first": first, "last": last, "rows": rows, "why": "expired"}
        for tp, first, last, rows in ranges
    ]
    # delta-rs writes custom metadata as text; Spark's own writers and ours write it as JSON.
    table(maker).delete(predicate)
    entry = maker.path / "_delta_log" / f"{table(maker).version():020d}.json"
    lines = [pa.json_ for pa.json_ in entry.read_text().splitlines()] if False else entry.read_text().splitlines()
    import json

    changed = [json.loads(line) for line in lines]
    for action in changed:
        if "commitInfo" in action:
            action["commitInfo"]["removed"] = said
    entry.write_text("\n".join(map(json.dumps, changed)))


def test_declared_removals_are_notes_and_their_rows_are_not_missing(maker: TableMaker) -> None:
    """`expire` and `erase` say which rows they removed for good."""
    declare(maker, "stream_offset <= 1", (TP, 0, 1, 2), (OTHER, 0, 1, 2))
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 5 declares 2 rows of orders:0 removed for good (expired)",
        "version 5 declares 2 rows of orders:1 removed for good (expired)",
    )
    assert "every offset once" not in verdict(report)
    vacuum(maker)
    assert audit(maker, FakeKafka(ALL), from_start=True).ok


def vacuum(maker: TableMaker) -> None:
    """Delete every file that no longer belongs to the table."""
    table(maker).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
