"""The audit finds each way in which a table can be wrong, and nothing in a table that is right."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from ingestor.audit import Names, Report, audit_table, marks, rows
from ingestor.audit.facts import LogFacts
from ingestor.audit.files import LiveFile
from ingestor.audit.kafka import without
from ingestor.audit.report import Findings
from ingestor.errors import ConfigError
from ingestor.ledger import DEFAULT_TEMPLATE, KDI_TEMPLATE, AppIds
from ingestor.records import RawSchema, TopicPartition
from tests.support.rawtables import TP, FakeKafka, Message, Record, TableMaker, records

if TYPE_CHECKING:
    from ingestor.delta.storage import Storage

OTHER = TopicPartition("orders", 1)
FULL = RawSchema(extras=("key", "headers", "timestamp_type"), partitioned=True)


@pytest.fixture
def maker(tmp_path: Path) -> TableMaker:
    """Return the maker of a new table."""
    return TableMaker(tmp_path / "raw")


def audit(maker: TableMaker, kafka: FakeKafka | None = None, **options: Any) -> Report:
    """Audit the maker's table."""
    return audit_table(maker.uri, {}, names(maker), maker.schema, kafka=kafka, progress=lambda _: None, **options)


def names(maker: TableMaker) -> Names:
    """Return the names of the maker's partitions, as the audit reads them."""
    ids = maker.app_ids
    return Names(ids.template, ids.app_id, ids.topics)


def kinds(report: Report) -> set[str]:
    """Return the kinds of a report's findings."""
    return {finding.kind for finding in report.findings}


# --- tables that are right ---


def test_a_clean_table_is_found_right(maker: TableMaker) -> None:
    """Commits of several partitions, each within its txns, make no finding and no note."""
    maker.flush([*records(0, 1, 2), *records(5, 7, tp=OTHER)])
    maker.flush(records(3, 6))
    report = audit(maker)
    assert report.ok
    assert not report.notes
    expected = "audit: OK — 7 rows, 2 partitions, 2 files, 2 commits: every offset once"
    assert list(report.lines()) == [expected]


def test_a_clean_table_equals_kafka_with_all_extra_columns(tmp_path: Path) -> None:
    """Tombstones, null keys, empty and binary headers and missing timestamps compare as equal."""
    maker = TableMaker(tmp_path / "raw", FULL)
    rows = [
        Record(0, None, key=b"k"),
        Record(1, b"", headers=(("h", None), ("h", b"\xff"))),
        Record(2, b"\x00", timestamp_ms=-1),
        Record(3, b"late", timestamp_ms=253_402_300_800_000),
        Record(9, b"other", OTHER),
    ]
    maker.flush(rows)
    report = audit(maker, FakeKafka(rows), from_start=True)
    assert report.ok, list(report.lines())
    assert report.compared == 5
    assert next(iter(report.lines())).endswith("every offset once, 5 equal to Kafka's")


def test_a_new_table_without_rows_is_right(maker: TableMaker) -> None:
    """Nothing was ingested yet, so nothing can be wrong, nor is anything claimed."""
    assert audit(maker, FakeKafka(records(0, 1))).ok


def test_optimize_changes_nothing(maker: TableMaker) -> None:
    """Rows that OPTIMIZE moved are checked as a whole, whatever file they are in now."""
    rows = [*records(*range(10)), *records(*range(5), tp=OTHER)]
    for row in rows:
        maker.flush([row])
    DeltaTable(maker.uri).optimize.compact()
    maker.flush(records(10))
    report = audit(maker, FakeKafka([*rows, *records(10)]), from_start=True)
    assert report.ok, list(report.lines())
    assert (report.rows, report.files, report.commits) == (16, 2, 16)


def test_a_file_with_jumbled_rows_is_right_once_optimize_made_it(maker: TableMaker) -> None:
    """A rewrite may mix the order of rows; only what one commit landed must rise."""
    old = maker.flush(records(0, 1, 2))
    new = maker.file(records(2, 0, 1))
    add = {"path": new.path, "size": new.size, "partitionValues": {}, "modificationTime": 1}
    remove = {"path": old.path, "deletionTimestamp": 1, "dataChange": False}
    maker.append_entry({"remove": remove}, {"add": {**add, "dataChange": False}})
    assert audit(maker, FakeKafka(records(0, 1, 2))).ok


def test_a_table_is_right_after_checkpoint_and_log_cleanup(maker: TableMaker) -> None:
    """What entries said that are gone is not judged; what is left must fit on to it."""
    maker.flush(records(0, 1))
    maker.flush(records(2))
    maker.table.checkpoint()
    maker.flush(records(3, 4))
    maker.clean_log(before=2)
    report = audit(maker, FakeKafka(records(*range(5))))
    assert report.ok, list(report.lines())
    assert report.commits == 2
    assert len(report.notes) == 1
    assert report.notes[0].startswith("log entries before version 2 are gone")


def test_rows_outside_their_commit_are_found_right_after_log_cleanup(maker: TableMaker) -> None:
    """The checkpoint's txn is the lower end of the first commit that is left."""
    maker.flush(records(0, 1))
    maker.flush(records(2))
    maker.table.checkpoint()
    maker.flush(records(2, 3))
    maker.clean_log(before=3)
    assert kinds(audit(maker)) == {"outside_commit", "duplicate"}


def test_declared_gaps_are_notes_and_not_compared(maker: TableMaker) -> None:
    """Offsets lost under policy skip were declared by their commit, so they are not missing."""
    gap = {"topic": "orders", "partition": 0, "first": 2, "last": 4, "reason": "truncated"}
    maker.flush(records(0, 1))
    maker.flush(records(5, 6), gaps=[gap])
    report = audit(maker, FakeKafka(records(*range(7))))
    assert report.ok
    assert report.notes == ("declared lost: orders:0 offsets 2 to 4 (truncated)",)
    assert "every offset once" not in list(report.lines())[-1]


def test_a_bootstrap_says_where_the_table_begins(maker: TableMaker) -> None:
    """Under `start: latest` records before the first commit's txn were never asked for."""
    maker.commit([], {TP: 4}, kind="bootstrap")
    maker.flush(records(6))
    kafka = FakeKafka(records(*range(7)))
    report = audit(maker, kafka, from_start=True)
    assert [(f.kind, f.offsets) for f in report.findings] == [("missing", (5, 5))]


def test_offsets_set_by_a_person_are_notes(maker: TableMaker) -> None:
    """Setting back and forth is an operator's act: where Kafka is not asked, nobody knows what it left out."""
    maker.flush(records(0, 1, 2))
    maker.commit([], {TP: 0}, kind="set")
    maker.commit([], {TP: 5}, kind="set")
    maker.flush(records(6))
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 2: `offsets --set` moved the txn of orders:0 from 2 to 0",
        "version 3: `offsets --set` moved the txn of orders:0 from 0 to 5: it passed over offsets 1 to 5",
    )
    assert "every offset once" not in list(report.lines())[-1]


def test_what_a_person_set_over_is_a_finding_while_kafka_has_it(maker: TableMaker) -> None:
    """Only what the table lacks: rows that stand in a range which was passed over are compared as any."""
    maker.flush(records(0, 1, 2))
    maker.commit([], {TP: 0}, kind="set")
    maker.commit([], {TP: 5}, kind="set")
    maker.flush(records(6))
    report = audit(maker, FakeKafka(records(*range(7))))
    assert [(f.kind, f.offsets) for f in report.findings] == [("passed_over", (3, 5))]
    assert "`offsets --set` passed over it" in report.findings[0].sentence

    expired = FakeKafka(records(6), low={TP: 6})
    assert audit(maker, expired).ok, "what Kafka has not got any more can't be landed"
    assert audit(maker, FakeKafka(records(0, 1, 2, 6))).ok, "aborted records are no loss"


def test_what_was_set_over_and_read_after_all_is_there(maker: TableMaker) -> None:
    """Setting back undoes a jump."""
    maker.flush(records(0))
    maker.commit([], {TP: 3}, kind="set")
    maker.commit([], {TP: 0}, kind="set")
    maker.flush(records(1, 2, 3, 4))
    report = audit(maker, FakeKafka(records(*range(5))), from_start=True)
    assert report.ok, list(report.lines())


def test_offsets_set_before_anything_was_committed_say_where_a_table_begins(maker: TableMaker) -> None:
    """As `start: latest` does: what lies before was never asked for."""
    maker.commit([], {TP: 1}, kind="set")
    maker.flush(records(2))
    report = audit(maker, FakeKafka(records(0, 1, 2)), from_start=True)
    assert report.ok, list(report.lines())
    assert report.notes == ("version 1: `offsets --set` let orders:0 begin at offset 2",)


def test_rows_beyond_a_txn_that_a_person_set_back_are_a_note(maker: TableMaker) -> None:
    """Until the records come again, the rows of before stand beyond the txn."""
    maker.flush(records(0, 1, 2))
    maker.commit([], {TP: 0}, kind="set")
    report = audit(maker)
    assert report.ok
    assert "a person set it back" in report.notes[-1]


def test_what_another_app_id_ingested_is_not_ours_to_judge(maker: TableMaker) -> None:
    """A table that two app_ids share is audited for ours; of the other's rows only duplicates."""
    maker.flush(records(0))
    others = TableMaker(maker.path, app_ids=AppIds(DEFAULT_TEMPLATE, "elsewhere"))
    others.flush(records(3, tp=OTHER))
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "another app_id" in report.notes[0]


def test_rows_of_an_app_id_that_was_taken_over_from_are_no_finding(maker: TableMaker) -> None:
    """`offsets --set` under a new app_id says where its own rows begin; what was there before another landed."""
    maker.flush(records(0, 1, 2))
    heir = TableMaker(maker.path, app_ids=AppIds(DEFAULT_TEMPLATE, "heir"))
    heir.commit([], {TP: 2}, kind="set")
    heir.flush(records(3, 4))
    report = audit(heir, FakeKafka(records(*range(5))), from_start=True)
    assert report.ok, list(report.lines())

    maker.flush(records(5))
    assert kinds(audit(heir)) >= {"outside_commit"}, "who was taken over from may not go on"


def test_a_table_of_kafka_delta_ingest_is_audited_as_well(tmp_path: Path) -> None:
    """Its app ids name no topic, and its commits carry nothing but their actions."""
    ids = AppIds(KDI_TEMPLATE, "kdi", ("orders",))
    maker = TableMaker(tmp_path / "raw", app_ids=ids)
    maker.flush(records(0, 1))
    maker.flush(records(2), {TP: 1})
    assert kinds(audit(maker)) >= {"beyond_txn", "outside_commit"}


def test_paths_that_the_log_spells_encoded_are_found(maker: TableMaker) -> None:
    """Other writers put blanks and colons into paths; the log has them percent-encoded."""
    file = maker.file(records(0), name="a b%3A")
    maker.commit([file], {TP: 0})
    assert audit(maker).ok


# --- the txns of guards, and where rows came from ---


def guard(text: str, version: int = 0) -> dict[str, Any]:
    """Return a txn action that remembers something for a guard."""
    return {"txn": {"appId": f"ingestor:{text}/", "version": version, "lastUpdated": 1}}


def test_the_txns_of_guards_are_no_partitions(maker: TableMaker) -> None:
    """They stand in the log and in checkpoints beside the others, and change nothing."""
    maker.flush(records(0, 1))
    removed, adopted = guard("removed/shop/orders/0", -1), guard("adopted/shop%2Forders%2F0/mall%2Forders%2F0", 9)
    info = {"commitInfo": {"commit_id": "c", "operation_kind": "refused"}}
    maker.append_entry(info, guard("origin/shop/orders/0/orders/first"), removed, adopted)
    maker.append_entry(
        {"commitInfo": {"commit_id": "d", "operation_kind": "accept"}}, guard("removed/shop/orders/0", -1)
    )
    maker.table.checkpoint()
    maker.flush(records(2))
    kafka = FakeKafka(records(0, 1, 2), topic_ids={"orders": "first"})
    for first in (0, 3):
        maker.clean_log(before=first)
        report = audit(maker, kafka, from_start=True)
        assert report.ok, list(report.lines())
        assert report.partitions == 1


def test_a_recreated_topic_is_found_by_its_origin_when_its_commits_are_cleaned_up(maker: TableMaker) -> None:
    """An idle topic's commits are forgotten; the checkpoint keeps where its rows came from."""
    maker.flush(records(0, 1))
    maker.append_entry({"commitInfo": {}}, guard("origin/shop/orders/0/orders/first"))
    maker.table.checkpoint()
    maker.clean_log(before=2)
    assert kinds(audit(maker, FakeKafka([Record(0, b"new")], topic_ids={"orders": "second"}))) == {"recreated"}


def test_a_recreated_topic_whose_loss_was_declared_is_right(maker: TableMaker) -> None:
    """`on_data_loss: skip` says what of the new topic could not land; a sibling that it found nothing for is a note."""
    maker.flush([*records(0, 1, 2), *records(0, tp=OTHER)], topic_ids={"orders": "first"})
    gap = {"topic": "orders", "partition": 0, "first": 0, "last": 2, "reason": "recreated"}
    maker.flush([Record(3, b"new")], gaps=[gap], topic_ids={"orders": "second"})
    fresh = [Record(offset, b"new") for offset in range(4)]
    report = audit(maker, FakeKafka(fresh, topic_ids={"orders": "second"}), from_start=True)
    assert report.ok, list(report.lines())
    assert report.compared == 1
    assert "orders:1 came from an earlier topic of this name: not compared" in report.notes


def test_a_renamed_topic_under_a_template_without_topic_is_found(tmp_path: Path) -> None:
    """The new topic lacks what the old one's position skipped, and no txn tells of the old one's rows."""
    maker = TableMaker(tmp_path / "raw", app_ids=AppIds(KDI_TEMPLATE, "kdi", ("v2",)))
    old, new = TopicPartition("v1", 0), TopicPartition("v2", 0)
    maker.flush(records(0, 1, tp=old))
    maker.flush(records(2, 3, tp=new))
    assert kinds(audit(maker)) >= {"no_txn"}
    assert "missing" in kinds(audit(maker, FakeKafka(records(*range(4), tp=new)), from_start=True))


def test_rows_of_another_topic_s_origin_under_one_txn_are_found(tmp_path: Path) -> None:
    """Nothing of the new topic may be read on from where the old one ended."""
    maker = TableMaker(tmp_path / "raw", app_ids=AppIds(KDI_TEMPLATE, "kdi", ("v2",)))
    old, new = TopicPartition("v1", 0), TopicPartition("v2", 0)
    maker.flush(records(0, 1, tp=old))
    maker.append_entry({"commitInfo": {}}, guard("origin/kdi-0/v1/first"))
    found = audit(maker).findings
    assert [(each.kind, each.sentence) for each in found] == [
        ("origin", "the txn kdi-0 counts rows of topic v1, not of v2"),
    ]
    maker.flush(records(2, 3, tp=new))
    assert kinds(audit(maker)) >= {"origin", "no_txn"}


def test_a_topic_that_a_person_let_take_over_a_txn_is_right(tmp_path: Path) -> None:
    """`offsets --set` is a way out: what the old topic landed stays, and the new one begins where it says."""
    maker = TableMaker(tmp_path / "raw", app_ids=AppIds(KDI_TEMPLATE, "kdi", ("v2",)))
    old, new = TopicPartition("v1", 0), TopicPartition("v2", 0)
    maker.flush(records(0, 1, tp=old))
    maker.append_entry({"commitInfo": {}}, guard("origin/kdi-0/v1/first"))
    txn = {"txn": {"appId": "kdi-0", "version": -1, "lastUpdated": 1}}
    maker.append_entry({"commitInfo": {"operation_kind": "set"}}, txn, guard("origin/kdi-0/v2/second", 1))
    maker.flush(records(0, 1, 2, tp=new))
    kafka = FakeKafka(records(0, 1, 2, tp=new), topic_ids={"v2": "second"})
    report = audit(maker, kafka, from_start=True)
    assert report.ok, list(report.lines())
    assert report.compared == 3


def test_a_topic_that_took_over_a_txn_of_which_the_log_did_not_tell_the_origin_is_right(tmp_path: Path) -> None:
    """As in a table from before origins were recorded; rows of the old topic that come later have no txn."""
    maker = TableMaker(tmp_path / "raw", app_ids=AppIds(KDI_TEMPLATE, "kdi", ("v2",)))
    old, new = TopicPartition("v1", 0), TopicPartition("v2", 0)
    maker.flush(records(0, 1, tp=old))
    txn = {"txn": {"appId": "kdi-0", "version": -1, "lastUpdated": 1}}
    maker.append_entry({"commitInfo": {"operation_kind": "set"}}, txn, guard("origin/kdi-0/v2/second"))
    maker.flush(records(0, 1, 2, tp=new))
    report = audit(maker, FakeKafka(records(0, 1, 2, tp=new)), from_start=True)
    assert report.ok, list(report.lines())
    assert "v1:0 has rows from before a person let another topic have its txn" in report.notes
    maker.commit([maker.file(records(2, tp=old))], {})
    assert kinds(audit(maker)) == {"no_txn"}


# --- one thing wrong ---


def test_a_row_twice_in_one_file_is_found(maker: TableMaker) -> None:
    """The same offset twice in a file is a duplicate, and out of order."""
    maker.flush(records(0, 1, 1, 2))
    report = audit(maker)
    assert kinds(report) == {"duplicate", "order"}
    assert {f.offsets for f in report.findings if f.kind == "duplicate"} == {(1, 1)}


def test_rows_twice_across_files_are_found_as_ranges(maker: TableMaker) -> None:
    """Two commits that landed the same records both are named, with the range they share."""
    first = maker.flush(records(0, 1, 2, 3))
    second = maker.flush(records(2, 3, 4), {TP: 4})
    duplicates = [f for f in audit(maker).findings if f.kind == "duplicate"]
    assert [f.offsets for f in duplicates] == [(2, 3)]
    assert first.path in duplicates[0].sentence
    assert second.path in duplicates[0].sentence


def test_rows_twice_are_found_after_optimize(maker: TableMaker) -> None:
    """A duplicate that OPTIMIZE moved into one file is still one."""
    maker.flush(records(0, 1))
    maker.flush(records(1, 2), {TP: 2})
    DeltaTable(maker.uri).optimize.compact()
    assert kinds(audit(maker)) == {"duplicate"}


def test_a_row_gone_is_missing_against_kafka(maker: TableMaker) -> None:
    """Records that Kafka committed and the table has not are listed as ranges."""
    maker.flush(records(0, 1, 4, 7))
    report = audit(maker, FakeKafka(records(0, 1, 2, 3, 4, 6, 7, 8)))
    missing = [(f.kind, f.offsets) for f in report.findings]
    assert missing == [("missing", (2, 3)), ("missing", (6, 6))]
    assert list(report.lines())[-1].startswith("audit: 2 findings — 4 rows, 1 partition")


def test_a_whole_window_gone_is_one_finding(maker: TableMaker) -> None:
    """Neighbouring windows that are missing as a whole are reported as one range."""
    maker.flush([*records(0), *records(200_000)])
    kafka = FakeKafka(records(0, 65_535, 65_536, 131_071, 131_072, 200_000))
    assert [f.offsets for f in audit(maker, kafka).findings] == [(65_535, 131_072)]


def test_a_head_that_never_landed_is_missing_from_the_start(maker: TableMaker) -> None:
    """Only a route that reads from the start answers for what lies before its first row."""
    maker.flush(records(3, 4))
    kafka = FakeKafka(records(*range(5)))
    assert audit(maker, kafka).ok
    assert [f.offsets for f in audit(maker, kafka, from_start=True).findings] == [(0, 2)]


def test_what_kafka_no_longer_retains_is_not_compared(maker: TableMaker) -> None:
    """Retention takes records away in time; the table keeps them."""
    maker.flush(records(0, 1, 2, 3))
    kafka = FakeKafka(records(0, 3), low={TP: 3})
    report = audit(maker, kafka)
    assert (report.ok, report.compared) == (True, 1)


def test_a_row_beyond_its_txn_is_found(maker: TableMaker) -> None:
    """A row that the txn does not cover would come again after a restart."""
    maker.flush(records(0, 1, 2), {TP: 1})
    report = audit(maker)
    assert kinds(report) == {"beyond_txn", "outside_commit"}


def test_rows_of_a_partition_without_txn_are_found(maker: TableMaker) -> None:
    """Rows without a txn would all come again."""
    maker.flush([*records(0), *records(0, tp=OTHER)], {TP: 0})
    assert [f.tp for f in audit(maker).findings] == [OTHER]
    assert kinds(audit(maker)) == {"no_txn"}


def test_a_txn_that_went_back_is_found(maker: TableMaker) -> None:
    """Nothing but a person may move a txn back."""
    maker.flush(records(0, 1, 2))
    maker.commit([], {TP: 1})
    assert kinds(audit(maker)) >= {"txn_back", "beyond_txn"}


def test_a_txn_that_stayed_is_found(maker: TableMaker) -> None:
    """The same commit twice leaves the txn where it was."""
    maker.flush(records(0))
    maker.flush(records(0))
    assert kinds(audit(maker)) == {"txn_back", "outside_commit", "duplicate"}


def test_rows_outside_their_commits_range_are_found(maker: TableMaker) -> None:
    """A commit lands what follows the txn before it, nothing older."""
    maker.flush(records(5))
    file = maker.flush(records(3, 7), {TP: 7})
    report = audit(maker)
    assert [(f.kind, f.version, f.file) for f in report.findings] == [("outside_commit", 2, file.path)]


def test_rows_appended_by_another_program_are_found(maker: TableMaker) -> None:
    """A commit that moved no txn of a partition must not hold rows of it."""
    maker.flush(records(5))
    maker.commit([maker.file(records(4))], {})
    assert kinds(audit(maker)) == {"outside_commit"}


def test_rows_out_of_order_are_found(maker: TableMaker) -> None:
    """Order within a partition is part of the guarantee."""
    maker.flush(records(0, 2, 1), {TP: 2})
    assert kinds(audit(maker)) == {"order"}


def test_a_commit_that_ends_before_its_txn_is_found(maker: TableMaker) -> None:
    """The txn names the last record landed, so a file that lost its end shows without Kafka."""
    maker.flush(records(0, 1), {TP: 2})
    report = audit(maker)
    assert [(f.kind, f.offsets) for f in report.findings] == [("short_commit", (2, 2))]


def test_a_missing_file_is_found(maker: TableMaker) -> None:
    """A live file that is not there makes the table unreadable; the audit goes on."""
    file = maker.flush(records(0))
    maker.flush(records(1))
    (maker.path / file.path).unlink()
    report = audit(maker, FakeKafka(records(0, 1)), from_start=True)
    assert [f.kind for f in report.findings] == ["file_missing", "missing"]
    assert report.rows == 1


def test_a_file_of_another_size_is_found(maker: TableMaker) -> None:
    """A file that was written again after its commit is not the one that was committed."""
    file = maker.flush(records(0, 1))
    rows = maker._columns([Record(0, b"x" * 500), Record(1)])
    pq.write_table(rows, maker.path / file.path)
    assert kinds(audit(maker)) == {"file_size"}


def test_a_file_with_other_rows_than_the_log_says_is_found(maker: TableMaker) -> None:
    """Row counts of the log feed other programs' answers."""
    maker.commit([maker.file(records(0, 1), numRecords=3)], {TP: 1})
    assert kinds(audit(maker)) == {"file_rows"}


@pytest.mark.parametrize("keep", [0, 100])
def test_a_damaged_file_is_found(maker: TableMaker, keep: int) -> None:
    """Cut-off and empty files are findings, not crashes."""
    file = maker.flush(records(*range(100)))
    target = maker.path / file.path
    target.write_bytes(target.read_bytes()[:keep])
    assert kinds(audit(maker)) == {"file_damaged"}


def test_a_file_that_rots_inside_is_found(maker: TableMaker) -> None:
    """Bytes that flip between header and footer show when the file is read."""
    file = maker.flush([Record(n, b"v" * 100) for n in range(1000)])
    target = maker.path / file.path
    data = bytearray(target.read_bytes())
    data[4:2000] = bytes(1996)
    target.write_bytes(bytes(data))
    assert "file_damaged" in kinds(audit(maker))


def test_a_file_without_coordinates_is_found(maker: TableMaker) -> None:
    """A file of another schema is damage, whatever the table's metadata says."""
    file = maker.flush(records(0))
    pq.write_table(maker._columns(records(0)).drop_columns("stream_offset"), maker.path / file.path)
    report = audit(maker)
    assert "it has no column stream_offset" in report.findings[0].sentence


def test_a_path_added_twice_is_found(maker: TableMaker) -> None:
    """A file that two entries add counts once for readers, twice for streams."""
    file = maker.flush(records(0))
    maker.commit([file], {TP: 1})
    assert "added_twice" in kinds(audit(maker))


def test_a_rewrite_that_loses_rows_is_found(maker: TableMaker) -> None:
    """OPTIMIZE must put out as many rows as it took in."""
    old = maker.flush(records(0, 1))
    new = maker.file(records(0))
    add = {"path": new.path, "size": new.size, "partitionValues": {}, "modificationTime": 1}
    stats = json.dumps(dict(new.stats))
    remove = {"path": old.path, "deletionTimestamp": 1, "dataChange": False}
    maker.append_entry({"remove": remove}, {"add": {**add, "dataChange": False, "stats": stats}})
    assert kinds(audit(maker)) == {"rewrite"}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"value": b"other"}, "payload"),
        ({"value": None}, "payload"),
        ({"key": b""}, "key"),
        ({"headers": (("h", b"1"), ("g", b"2"))}, "headers"),
        ({"timestamp_ms": 1}, "timestamp"),
        ({"timestamp_ms": -1, "key": b"k2"}, "timestamp, key"),
    ],
)
def test_content_that_changed_is_found(tmp_path: Path, changed: dict[str, Any], field: str) -> None:
    """Byte for byte: each field of a record that differs from Kafka's is named."""
    maker = TableMaker(tmp_path / "raw", FULL)
    good = Record(1, b"value", headers=(("g", b"2"), ("h", b"1")))
    maker.flush([Record(0), good._replace(**changed), Record(2)])
    report = audit(maker, FakeKafka([Record(0), good, Record(2)]))
    assert [(f.kind, f.offsets) for f in report.findings] == [("changed", (1, 1))]
    assert report.findings[0].sentence.endswith(f"not equal to Kafka's in {field}")


def test_of_two_rows_the_changed_one_is_found(maker: TableMaker) -> None:
    """A duplicate with other content is both: a duplicate, and content that changed."""
    maker.flush([Record(0), Record(1, b"changed"), Record(1), Record(2)])
    kafka = FakeKafka([Record(0), Record(1), Record(2)])
    assert kinds(audit(maker, kafka)) == {"duplicate", "order", "changed"}


def test_a_swap_of_two_payloads_is_found(maker: TableMaker) -> None:
    """The digests bind content to its offset, so that a swap does not cancel out."""
    maker.flush([Record(0, b"b"), Record(1, b"a")])
    kafka = FakeKafka([Record(0, b"a"), Record(1, b"b")])
    assert [f.offsets for f in audit(maker, kafka).findings] == [(0, 1)]


def test_an_aborted_record_that_landed_is_found(maker: TableMaker) -> None:
    """What a transaction took back must not be in the table."""
    maker.flush(records(0, 1, 2))
    report = audit(maker, FakeKafka(records(0, 2), aborted=records(1)))
    assert [(f.kind, f.offsets) for f in report.findings] == [("aborted", (1, 1))]


def test_a_row_that_kafka_never_had_is_found(maker: TableMaker) -> None:
    """In a topic that is not compacted nothing vanishes in the middle."""
    maker.flush(records(0, 1, 2))
    assert kinds(audit(maker, FakeKafka(records(0, 2)))) == {"unknown"}


def test_what_compaction_took_is_a_note(maker: TableMaker) -> None:
    """In a compacted topic older records vanish, the table keeps them."""
    maker.flush(records(0, 1, 2, 3))
    report = audit(maker, FakeKafka(records(0, 3), compacted_topics={"orders"}))
    assert report.ok
    assert report.notes == ("orders:0: Kafka compacted 2 records that the table has",)


def test_a_recreated_topic_is_found_and_not_compared(maker: TableMaker) -> None:
    """Offsets of another topic mean other records."""
    maker.flush(records(0, 1), topic_ids={"orders": "first"})
    kafka = FakeKafka([Record(0, b"new")], topic_ids={"orders": "second"})
    assert kinds(audit(maker, kafka)) == {"recreated"}
    assert not kafka.reads


def test_rows_beyond_kafkas_end_are_found(maker: TableMaker) -> None:
    """A truncated topic has other records below; a client that falls back to them changes nothing."""
    maker.flush(records(5, 6))
    report = audit(maker, FallingBack(records(0, 1)))
    assert [(f.kind, f.offsets) for f in report.findings] == [("unknown", (5, 6))]
    assert report.compared == 0


class FallingBack(FakeKafka):
    """A Kafka whose client starts at the beginning when it is asked for more than there is."""

    def read(self, tp: TopicPartition, first: int, last: int, *, aborted: bool = False) -> Iterator[list[Message]]:
        """Yield the records of a range, or from the beginning on."""
        end = (self.watermarks(tp) or (0, 0))[1]
        return super().read(tp, 0 if first > end else first, last, aborted=aborted)


def test_a_topic_that_is_gone_is_a_note(maker: TableMaker) -> None:
    """Deleting a topic takes nothing from the table."""
    maker.flush(records(0))
    report = audit(maker, FakeKafka([]))
    assert report.ok
    assert report.notes == ("orders:0 is not in Kafka: nothing to compare it with",)


def test_another_schema_is_found(maker: TableMaker) -> None:
    """A table that has not the route's columns is no table of the route."""
    maker.flush(records(0))
    report = audit_table(maker.uri, {}, names(maker), RawSchema(extras=("key",)), kafka=None, progress=lambda _: None)
    assert kinds(report) == {"schema"}


def test_another_table_at_the_same_place_is_found(maker: TableMaker) -> None:
    """An id that changes within the log means that two tables were mixed."""
    maker.flush(records(0))
    first = (maker.path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    metadata = next(json.loads(line) for line in first if "metaData" in line)
    metadata["metaData"]["id"] = "another"
    maker.append_entry(metadata)
    assert kinds(audit(maker)) == {"replaced"}


def test_no_table_at_all_is_a_configuration_error(tmp_path: Path) -> None:
    """An audit never creates a table."""
    with pytest.raises(ConfigError, match="there is no table"):
        audit_table(
            str(tmp_path / "none"),
            {},
            Names(DEFAULT_TEMPLATE, "shop"),
            RawSchema(),
            kafka=None,
            progress=lambda _: None,
        )
    assert not (tmp_path / "none").exists()


# --- duplicates by brute force, and ranges ---


class ListedFiles:
    """Data files that hold one partition's offsets, in memory."""

    def __init__(self, lists: list[list[int]]) -> None:
        """Take each list for a file."""
        self._files = {}
        for number, offsets in enumerate(lists):
            columns = {
                "stream_topic": pa.array([TP.topic] * len(offsets), pa.string()),
                "stream_partition": pa.array([TP.partition] * len(offsets), pa.int32()),
                "stream_offset": pa.array(offsets, pa.int64()),
            }
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table(columns), sink, row_group_size=3)
            self._files[str(number)] = sink.getvalue()

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file."""
        return pa.BufferReader(self._files[path])

    def duplicates(self) -> list[int]:
        """Return the offsets that an audit reports as duplicates."""
        files = [LiveFile(path, data.size, None) for path, data in self._files.items()]
        findings = Findings()
        audited = rows.RowAudit(cast("Storage", self), files, LogFacts(), findings)
        audited.scan(lambda _: None)
        audited.find_duplicates(lambda _: None)
        ranges = [found.offsets for found in findings.listed if found.offsets is not None]
        return [offset for first, last in ranges for offset in range(first, last + 1)]


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8), max_size=6))
def test_duplicates_are_found_wherever_windows_and_passes_end(lists: list[list[int]]) -> None:
    """Whatever files hold in whatever order, the repeated offsets are reported, once each."""
    counted = Counter(offset for offsets in lists for offset in offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marks, "WINDOW", 4)
        patch.setattr(marks, "MARKED", 9)
        found = ListedFiles(lists).duplicates()
    assert found == sorted(offset for offset, count in counted.items() if count > 1)


@given(
    whole=st.tuples(st.integers(0, 20), st.integers(-1, 20)),
    holes=st.lists(st.tuples(st.integers(0, 22), st.integers(-1, 22)), max_size=4),
)
def test_what_is_left_of_a_range_is_all_outside_its_holes(whole: tuple[int, int], holes: list[tuple[int, int]]) -> None:
    """Each offset that no hole covers is compared, once."""
    left = [offset for a, b in without(whole, holes) for offset in range(a, b + 1)]
    inside = range(whole[0], whole[1] + 1)
    assert left == [n for n in inside if not any(a <= n <= b for a, b in holes)]


# --- reports ---


def test_a_long_list_of_findings_is_cut(maker: TableMaker) -> None:
    """All findings count, a hundred are listed."""
    tps = [TopicPartition("orders", number) for number in range(130)]
    maker.flush([Record(0, b"v", tp) for tp in tps], {})
    report = audit(maker)
    assert len(report.findings) == 100
    assert report.findings_total == 130
    assert list(report.lines())[-2:] == [
        "and 30 more",
        "audit: 130 findings — 130 rows, 130 partitions, 1 file, 0 commits",
    ]


def test_windows_beyond_the_limit_are_reported_unseen(maker: TableMaker) -> None:
    """A table that is wrong everywhere is not read twice from end to end."""
    rows = [Record(n * 65_536) for n in range(80)]
    maker.flush([row._replace(value=b"wrong") for row in rows])
    report = audit(maker, FakeKafka(rows))
    assert [(f.kind, f.offsets) for f in report.findings] == [
        ("changed", (0, 63 * 65_536)),
        ("differs", (64 * 65_536, 80 * 65_536 - 1)),
    ]


def test_a_report_is_json(maker: TableMaker) -> None:
    """Another program reads the same report."""
    maker.flush(records(0, 1, 2), {TP: 1})
    report = json.loads(json.dumps(audit(maker).to_json()))
    assert report["ok"] is False
    assert (report["rows"], report["version"], report["findings_total"]) == (3, 1, 2)
    found = next(each for each in report["findings"] if each["kind"] == "beyond_txn")
    sentence = "orders:0 has rows up to offset 2, its txn says 1"
    assert found == {
        "kind": "beyond_txn",
        "sentence": sentence,
        "topic": "orders",
        "partition": 0,
        "offsets": [2, 2],
    }


def test_kafka_is_read_once_where_all_is_well(maker: TableMaker) -> None:
    """Only what differs is read a second time."""
    maker.flush(records(0, 1, 5))
    kafka = FakeKafka(records(0, 1, 5))
    assert audit(maker, kafka).ok
    assert kafka.reads == [(TP, 0, 5)]
