"""The audit's own reader of the Delta log: what is there, what stands for what is gone, and what is damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingestor.audit import Names, Report, audit_table
from ingestor.audit.delta import Checkpoint, DeltaLog
from ingestor.delta.storage import LocalStorage
from ingestor.errors import RefusedError
from ingestor.records import RawSchema
from tests.support.rawtables import TP, TableMaker, records

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def maker(tmp_path: Path) -> TableMaker:
    """Return the maker of a table with three commits of two rows each."""
    made = TableMaker(tmp_path / "raw", RawSchema(("key", "headers", "timestamp_type"), partitioned=True))
    for number in range(3):
        made.flush(records(2 * number, 2 * number + 1))
    return made


def audit(maker: TableMaker) -> Report:
    """Audit the maker's table."""
    names = Names(maker.app_ids.template, maker.app_ids.app_id)
    return audit_table(maker.uri, {}, names, maker.schema, kafka=None, progress=lambda _: None)


def checkpoint_of(maker: TableMaker) -> Path:
    """Write a checkpoint of the newest version; return its file."""
    table = DeltaTable(maker.uri)
    table.create_checkpoint()
    return maker.path / "_delta_log" / f"{table.version():020d}.checkpoint.parquet"


def kinds(report: Report) -> set[str]:
    """Return the kinds of a report's findings."""
    return {finding.kind for finding in report.findings}


def test_what_delta_rs_holds_to_be_the_table_is_read(maker: TableMaker) -> None:
    """From the entries, and from a checkpoint once they are gone: files, txns, metadata and protocol."""
    DeltaTable(maker.uri).delete("stream_offset = 3")
    DeltaTable(maker.uri).optimize.compact()
    maker.flush(records(6))
    checkpoint_of(maker)
    known = DeltaTable(maker.uri)
    log = DeltaLog(LocalStorage(maker.path))
    assert (log.first, log.newest, log.base()) == (0, known.version(), None)
    found = log.newest_checkpoint(None)
    assert isinstance(found, Checkpoint)
    assert sorted(found.files) == sorted(uri.removeprefix(f"{maker.uri}/") for uri in known.file_uris())
    assert found.txns == {"shop/orders/0": known.transaction_version("shop/orders/0")}
    assert found.metadata is not None
    assert found.metadata["id"] == str(known.metadata().id)
    assert found.protocol is not None
    assert found.protocol["minWriterVersion"] == 2

    before = audit(maker)
    maker.clean_log(before=known.version())
    after = audit(maker)
    assert before.ok
    assert after.ok, list(after.lines())
    assert (before.rows, before.files) == (after.rows, after.files)


def test_a_checkpoint_in_parts_counts_when_all_are_there(maker: TableMaker) -> None:
    """One that is being written, or deleted, does not."""
    whole = checkpoint_of(maker)
    rows = pq.read_table(whole)
    whole.unlink()
    parts = [whole.with_name(f"{3:020d}.checkpoint.{n:010d}.{2:010d}.parquet") for n in (1, 2)]
    for part, some in zip(parts, (rows.slice(0, 3), rows.slice(3)), strict=True):
        pq.write_table(some, part)
    maker.clean_log(before=3)
    assert audit(maker).ok
    parts[1].unlink()
    with pytest.raises(RefusedError, match="no checkpoint stands for them"):
        audit(maker)


def test_entries_that_are_missing_without_a_checkpoint_are_refused(maker: TableMaker) -> None:
    """Nobody can tell what the table holds."""
    maker.clean_log(before=2)
    with pytest.raises(RefusedError, match="no checkpoint stands for them"):
        audit(maker)


def test_an_older_checkpoint_stands_in_for_the_oldest_entries_only(maker: TableMaker) -> None:
    """The entries behind it are read; those before the hole are known by it."""
    checkpoint_of(maker)
    maker.flush(records(6))
    checkpoint_of(maker)
    maker.flush(records(7))
    maker.clean_log(before=4)
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert report.commits == 2


def test_a_checkpoint_that_was_cleaned_of_nothing_before_it_is_read_on_from(maker: TableMaker) -> None:
    """Clean-up may leave entries before the checkpoint: their commits are judged, what came before is not known."""
    checkpoint_of(maker)
    maker.clean_log(before=2)
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert report.rows == 6


def test_a_checkpoint_that_lacks_a_file_is_found(maker: TableMaker) -> None:
    """Readers begin with it, and miss rows that the entries have."""
    file = checkpoint_of(maker)
    rows = pq.read_table(file).to_pylist()
    gone = next(row for row in rows if row["add"])
    schema = pq.read_schema(file)
    pq.write_table(pa.Table.from_pylist([row for row in rows if row is not gone], schema), file)
    found = audit(maker).findings
    assert [(each.kind, each.version) for each in found] == [("checkpoint", 3)]
    assert "lacks 1 files" in found[0].sentence


def test_a_checkpoint_that_forgot_a_txn_is_found(maker: TableMaker) -> None:
    """A partition would start afresh."""
    file = checkpoint_of(maker)
    rows = pq.read_table(file)
    kept = [row for row in rows.to_pylist() if not row["txn"]]
    pq.write_table(pa.Table.from_pylist(kept, rows.schema), file)
    assert kinds(audit(maker)) == {"checkpoint"}


def test_a_checkpoint_that_can_not_be_read_is_found(maker: TableMaker) -> None:
    """The entries say the same, so the audit goes on."""
    checkpoint_of(maker).write_bytes(b"PAR1 cut off")
    assert kinds(audit(maker)) == {"checkpoint"}


@pytest.mark.parametrize(
    "text", ["", "{", '{"txn": {"appId": 5, "version": 1}}', '{"add": {"path": "x"}}', "[]", '{"add": 1}']
)
def test_a_damaged_entry_is_refused_by_name(maker: TableMaker, text: str) -> None:
    """What it did nobody can tell."""
    (maker.path / "_delta_log" / f"{2:020d}.json").write_text(text)
    with pytest.raises(RefusedError, match=r"log entry _delta_log/0{19}2\.json is damaged"):
        audit(maker)


def test_an_entry_that_was_cut_off_at_the_end_of_a_line_is_refused(maker: TableMaker) -> None:
    """It says itself how many actions it had."""
    newest = max((maker.path / "_delta_log").glob("*.json"))
    newest.write_bytes(b"".join(newest.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(RefusedError, match=r"is damaged \(\d of \d actions are there\)"):
        audit(maker)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**64) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
SAID = ("gaps", "removed", "topic_ids", "operation", "operationParameters", "operation_kind", "commit_id")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(SAID),
        VALUES
        | st.lists(st.fixed_dictionaries({"topic": VALUES, "partition": VALUES, "first": VALUES, "last": VALUES})),
    )
)
def test_whatever_a_commit_says_of_itself_crashes_no_audit(maker: TableMaker, said: dict[str, Any]) -> None:
    """Any program may write what it likes there."""
    entry = maker.path / "_delta_log" / f"{4:020d}.json"
    entry.write_text(json.dumps({"commitInfo": said}))
    assert audit(maker).rows == 6


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2_000), byte=st.integers(0, 255))
def test_a_log_of_any_damage_crashes_no_audit(maker: TableMaker, at: int, byte: int) -> None:
    """A byte that rots is refused, found, or says the same."""
    entry = maker.path / "_delta_log" / f"{3:020d}.json"
    whole = entry.read_bytes()
    try:
        entry.write_bytes(whole[: at % len(whole)] + bytes([byte]) + whole[at % len(whole) + 1 :])
        assert audit(maker).version == 3
    except RefusedError:
        pass
    finally:
        entry.write_bytes(whole)


def test_txns_of_others_in_a_checkpoint_are_kept(maker: TableMaker) -> None:
    """A table that two app_ids share keeps the txns of both."""
    others = TableMaker(maker.path, maker.schema, app_ids=maker.app_ids.__class__(maker.app_ids.template, "mall"))
    others.commit([], {TP: 9}, kind="bootstrap")
    checkpoint_of(maker)
    assert audit(maker).ok
