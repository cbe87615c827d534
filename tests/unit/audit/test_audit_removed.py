"""Rows that real RESTORE, overwrite, DELETE and MERGE of delta-rs took out of a table, and those that came back."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
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
    file = min(table(maker).file_uris()).rpartition("/")[2]
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


def test_rows_that_come_back_beside_those_that_were_landed_again_are_doubled(maker: TableMaker) -> None:
    """Who puts files back that a RESTORE took, after their records were read again, doubles rows."""
    table(maker).restore(2)
    actions = json.loads((maker.path / "_delta_log" / f"{4:020d}.json").read_text().splitlines()[-1])
    land_again(maker)
    maker.append_entry({"commitInfo": {"operation": "RESTORE"}}, actions)
    assert {(found.kind, found.offsets) for found in audit(maker).findings} == {
        ("duplicate", (5, 5)),
        ("duplicate", (3, 3)),
    }


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
    assert told[0] == "version 5 (DELETE) removed 3 rows of orders:0 between offsets 0 and 5"


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


def declare(maker: TableMaker, predicate: str, *ranges: tuple[TopicPartition, int, int, int], why: str) -> None:
    """Delete rows as `expire` and `erase` do: the commit says which, and that it is for good."""
    said = [
        {"topic": tp.topic, "partition": tp.partition, "first": first, "last": last, "rows": rows, "why": why}
        for tp, first, last, rows in ranges
    ]
    table(maker).delete(predicate, commit_properties=CommitProperties(custom_metadata={"removed": json.dumps(said)}))


def test_declared_removals_are_notes_and_their_rows_are_not_missing(maker: TableMaker) -> None:
    """Nor are they when VACUUM has deleted the files that held them."""
    declare(maker, "stream_offset <= 1", (TP, 0, 1, 2), (OTHER, 0, 1, 2), why="expired")
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 5 declares 2 rows of orders:0 removed for good (expired)",
        "version 5 declares 2 rows of orders:1 removed for good (expired)",
    )
    assert "every offset once" not in verdict(report)
    vacuum(maker)
    assert audit(maker, FakeKafka(ALL), from_start=True).ok


def test_rows_that_a_declared_range_spans_and_that_stayed_are_compared(maker: TableMaker) -> None:
    """A range says what may be gone, not what may be wrong."""
    declare(maker, "stream_partition = 0 and stream_offset in (1, 3)", (TP, 0, 4, 2), why="erased")
    assert audit(maker, FakeKafka(ALL), from_start=True).ok
    other = [record._replace(value=b"other") if record.offset == 2 else record for record in ALL]
    found = audit(maker, FakeKafka(other), from_start=True).findings
    assert {(each.kind, each.tp, each.offsets) for each in found} == {
        ("changed", TP, (2, 2)),
        ("changed", OTHER, (2, 2)),
    }


def test_rows_that_went_beyond_what_was_declared_are_found(maker: TableMaker) -> None:
    """Whoever declares has to say it all."""
    declare(maker, "stream_offset <= 2", (TP, 0, 1, 2), (OTHER, 0, 2, 3), why="expired")
    assert removed(audit(maker)) == [("removed", TP, (2, 2))]


def test_a_declaration_that_nobody_can_read_is_found(maker: TableMaker) -> None:
    """It declares nothing, so what went is found too."""
    declare(maker, "stream_partition = 0 and stream_offset = 1", (TP, 1, 1, 1), why="expired")
    entry = maker.path / "_delta_log" / f"{5:020d}.json"
    text = entry.read_text()
    entry.write_text(text.replace(r"\"first\"", r"\"from\"").replace('"DELETE"', '"EXPIRE"'))
    assert {found.kind for found in audit(maker).findings} == {"declared", "removed"}


def test_a_declaration_in_json_is_read_as_one_in_text(maker: TableMaker) -> None:
    """delta-rs writes text there, other writers what they mean."""
    declare(maker, "stream_partition = 0 and stream_offset = 1", (TP, 1, 1, 1), why="erased")
    entry = maker.path / "_delta_log" / f"{5:020d}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["removed"] = json.loads(action["commitInfo"]["removed"])
    entry.write_text("\n".join(map(json.dumps, actions)))
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert report.notes == ("version 5 declares 1 row of orders:0 removed for good (erased)",)


# --- when files or entries are deleted ---


def vacuum(maker: TableMaker) -> None:
    """Delete every file that no longer belongs to the table."""
    table(maker).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_rows_whose_files_are_deleted_are_counted_by_the_commit_that_landed_them(maker: TableMaker) -> None:
    """Of which partition they were nobody can tell then, but how many they are."""
    table(maker).restore(2)
    vacuum(maker)
    found = audit(maker).findings
    assert [(each.kind, each.version) for each in found] == [("removed", 5), ("removed", 5)]
    assert "2 of the rows orders:0 offset 4, orders:1 offset 2, whose file is deleted" in found[0].sentence
    land_again(maker)
    assert audit(maker, FakeKafka(ALL), from_start=True).ok


def test_rows_that_a_person_deleted_stay_a_note_when_their_files_are_deleted(maker: TableMaker) -> None:
    """Against Kafka too."""
    table(maker).delete("stream_partition = 0 and stream_offset = 3")
    vacuum(maker)
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert report.notes == ("version 5 (DELETE) removed 1 of the rows orders:0 offset 3, whose file is deleted",)


def test_a_file_that_took_over_rows_and_is_deleted_held_no_others(maker: TableMaker) -> None:
    """The files that were rewritten into it are live again, so nothing of it is gone."""
    before = table(maker).version()
    table(maker).optimize.compact()
    table(maker).restore(before)
    vacuum(maker)
    report = audit(maker, FakeKafka(ALL), from_start=True)
    assert report.ok, list(report.lines())
    assert "every offset once" in verdict(report)


def test_files_of_which_nothing_tells_any_more_are_a_note(maker: TableMaker) -> None:
    """Their entries were cleaned up and they are deleted: whether their rows are back nobody knows."""
    table(maker).create_checkpoint()
    table(maker).restore(2)
    vacuum(maker)
    maker.clean_log(before=5)
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "version 5 (RESTORE) removed 2 files of which nothing tells any more what they held" in report.notes
    assert "every offset once" not in verdict(report)
    assert {found.kind for found in audit(maker, FakeKafka(ALL), from_start=True).findings} == {"missing"}


def test_rows_taken_before_the_oldest_entry_are_told_by_kafka_only(maker: TableMaker) -> None:
    """A note says what could not be looked at."""
    table(maker).restore(2)
    table(maker).create_checkpoint()
    maker.clean_log(before=5)
    maker.commit([maker.file(records(6))], {TP: 6})
    maker.clean_log(before=6)
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "rows that they removed are not known" in report.notes[0]
    assert {found.offsets for found in audit(maker, FakeKafka([*ALL, *records(6)])).findings} == {(4, 5), (2, 3)}


# --- by brute force ---

STEPS = st.one_of(
    st.tuples(st.just("land"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("delete"), st.integers(0, 12), st.integers(0, 4)),
    st.tuples(st.just("overwrite"), st.integers(0, 12), st.integers(0, 4)),
    st.tuples(st.just("restore"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("optimize"), st.just(0), st.just(0)),
)


class Model:
    """What the rows of one partition are after some steps, and which version took those that are gone."""

    def __init__(self, maker: TableMaker) -> None:
        """Begin with an empty table."""
        self.maker = maker
        self.live: set[int] = set()
        self.history = [set[int]()]
        self.taker: dict[int, int] = {}
        self.chosen: set[int] = set()
        self.next = 0

    def step(self, kind: str, at: int, width: int) -> None:
        """Do one thing to the table."""
        handle, before = table(self.maker), set(self.live)
        if kind == "land":
            new = range(self.next, self.next + at)
            self.next += at
            self.maker.flush(records(*new))
            self.live |= set(new)
        elif kind == "delete":
            self.live -= set(range(at, at + width))
            handle.delete(f"stream_offset >= {at} and stream_offset < {at + width}")
        elif kind == "overwrite":
            self.live -= set(range(at, at + width))
            rows = handle.to_pyarrow_table(filters=[("stream_offset", "in", sorted(self.live))])
            write_deltalake(self.maker.uri, rows, mode="overwrite")
        elif kind == "restore":
            to = at % len(self.history)
            self.live = set(self.history[to])
            handle.restore(to)
        else:
            handle.optimize.compact()
        version = table(self.maker).version()
        self.history += [set(self.live)] * (version - len(self.history) + 1)
        for offset in before - self.live:
            self.taker[offset] = version
        if kind == "delete" and before != self.live:
            self.chosen.add(version)

    def expected(self) -> dict[int, set[int]]:
        """Return what each version took that is gone."""
        gone: dict[int, set[int]] = {}
        for offset, version in self.taker.items():
            if offset not in self.live:
                gone.setdefault(version, set()).add(offset)
        return gone


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, min_size=2, max_size=8))
def test_what_is_gone_is_told_by_brute_force(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Whatever was done in whatever order: each row that is gone counts once, for the version that took it last."""
    maker = TableMaker(tmp_path_factory.mktemp("model") / "raw")
    model = Model(maker)
    model.step("land", 3, 0)
    for step in steps:
        with contextlib.suppress(DeltaError):  # a RESTORE to the newest version
            model.step(*step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marks, "WINDOW", 4)
        patch.setattr(marks, "MARKED", 9)
        report = audit(maker, FakeKafka(records(*range(model.next))), from_start=True)
    gone = model.expected()
    found = {each.version: each.sentence for each in report.findings}
    assert found.keys() == gone.keys() - model.chosen, list(report.lines())
    told = [*found.values(), *report.notes]
    assert len(told) == len(gone), told
    for version, offsets in gone.items():
        rows = "1 row" if len(offsets) == 1 else f"{len(offsets)} rows"
        said = next(each for each in told if each.startswith(f"version {version} "))
        assert f" removed {rows} of orders:0" in said
        assert str(min(offsets)) in said
        assert str(max(offsets)) in said
    assert (report.compared, report.ok) == (len(model.live), gone.keys() <= model.chosen)
