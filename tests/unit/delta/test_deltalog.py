"""Reading the Delta log: one entry at a time, and all txns of a snapshot."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingestor.delta import deltalog
from ingestor.delta.storage import LocalStorage
from ingestor.errors import RefusedError
from tests.support.rawtables import TP, TableMaker, records

APP_ID = "shop/orders/0"


class MemoryFiles:
    """A table's files as a dict, which counts what is read."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}
        self.listed = 0

    def read(self, path: str) -> bytes | None:
        """Return a file, None if there is none."""
        return self.files.get(path)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.files[path])

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        self.listed += 1
        start = f"{folder}/"
        return [path.removeprefix(start) for path in self.files if path.startswith(start)]

    def entry(self, version: int, *actions: dict[str, Any]) -> None:
        """Put a log entry."""
        text = "\n".join(map(json.dumps, actions))
        self.files[deltalog.entry_path(version)] = text.encode()


def txn(version: int, app_id: str = APP_ID) -> dict[str, Any]:
    """Return a txn action."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": 1}}


def local(maker: TableMaker) -> LocalStorage:
    """Return the files of a maker's table."""
    return LocalStorage(maker.path)


# --- one entry ---


def test_an_entry_says_all_that_its_commit_did() -> None:
    """Every kind of action that the ingestor or an audit asks about is there."""
    files = MemoryFiles()
    stats = json.dumps({"numRecords": 3, "minValues": {"stream_offset": 1}})
    add = {"path": "a.parquet", "size": 9, "partitionValues": {"d": None}, "dataChange": True}
    files.entry(
        7,
        {"commitInfo": {"commit_id": "c", "operation": "WRITE"}},
        {"metaData": {"id": "t"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"add": {**add, "stats": stats}},
        {"remove": {"path": "b.parquet"}},
        txn(5),
        txn(-1, "shop/orders/1"),
    )
    entry = deltalog.read_entry(files, 7)
    assert entry is not None
    assert (entry.version, entry.commit_id) == (7, "c")
    assert entry.txns == {APP_ID: 5, "shop/orders/1": -1}
    assert entry.removes == ("b.parquet",)
    assert entry.metadata == {"id": "t"}
    assert entry.protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    (added,) = entry.adds
    assert (added.path, added.size, added.rows, added.data_change) == ("a.parquet", 9, 3, True)
    assert added.partition_values == {"d": None}


@pytest.mark.parametrize("stats", [{}, {"stats": None}, {"stats": ""}, {"stats": "{}"}])
def test_a_file_without_statistics_has_an_unknown_number_of_rows(stats: dict[str, Any]) -> None:
    """Unknown is None, not 0; a missing dataChange means that there is new data."""
    files = MemoryFiles()
    files.entry(1, {"add": {"path": "a", "size": 1, **stats}})
    entry = deltalog.read_entry(files, 1)
    assert entry is not None
    assert (entry.adds[0].rows, entry.adds[0].data_change) == (None, True)


def test_an_entry_of_another_program_has_no_commit_id() -> None:
    """Only an ingestor writes commit ids, and they are texts."""
    files = MemoryFiles()
    files.entry(0, {"commitInfo": {"operation": "OPTIMIZE"}})
    files.entry(1, {"commitInfo": {"commit_id": 7}})
    files.entry(2, txn(1))
    found = [deltalog.read_entry(files, version) for version in range(3)]
    assert [entry.commit_id for entry in found if entry is not None] == [None, None, None]


def test_an_entry_that_is_not_there_is_none() -> None:
    """The slot of a commit whose answer was lost may be empty."""
    assert deltalog.read_entry(MemoryFiles(), 3) is None


@pytest.mark.parametrize(
    "text",
    [b"", b"\n \n", b'{"add": {"pa', b"[1]", b'{"add": {}}', b'{"txn": {"appId": "a"}}', b"\xff"],
)
def test_a_damaged_entry_is_refused_with_a_way_out(text: bytes) -> None:
    """Power loss leaves empty and cut-off entries; taking one for a commit would lose rows."""
    files = MemoryFiles({deltalog.entry_path(3): text})
    with pytest.raises(RefusedError, match="damaged") as refused:
        deltalog.read_entry(files, 3)
    assert deltalog.entry_path(3) in refused.value.message
    assert "`ingestor repair CONFIG`" in refused.value.hint


def test_a_range_of_entries_ends_at_one_that_is_gone() -> None:
    """The caller decides what a missing entry means; none is skipped."""
    files = MemoryFiles()
    files.entry(1, txn(1))
    files.entry(3, txn(3))
    found = deltalog.entries(files, 1, 3)
    assert next(found).version == 1
    with pytest.raises(LookupError):
        next(found)


# --- txns of a snapshot ---


def test_txns_are_read_from_the_entries_of_a_young_table() -> None:
    """Without a checkpoint the log is read from its start, and not even listed."""
    files = MemoryFiles()
    files.entry(0, {"metaData": {}})
    files.entry(1, txn(5), txn(0, "other"))
    files.entry(2, txn(3))
    assert deltalog.txns_at(files, 2) == {APP_ID: 3, "other": 0}
    assert deltalog.txns_at(files, 1) == {APP_ID: 5, "other": 0}
    assert files.listed == 0


def test_txns_are_read_from_the_last_checkpoint_on(tmp_path: Path) -> None:
    """Entries before it may be gone; those after it count on top."""
    maker = TableMaker(tmp_path / "raw")
    maker.flush(records(0, 1))
    maker.table.checkpoint()
    maker.clean_log(before=1)
    maker.flush(records(2))
    assert deltalog.txns_at(local(maker), 2) == {APP_ID: 2}
    assert deltalog.txns_at(local(maker), 1) == {APP_ID: 1}


def test_a_checkpoint_is_found_without_its_hint_file(tmp_path: Path) -> None:
    """`_last_checkpoint` is a hint; a torn or missing one costs a listing."""
    for number, spoil in enumerate((b"", b'{"version": ', None)):
        maker = TableMaker(tmp_path / str(number))
        maker.flush(records(0))
        maker.table.checkpoint()
        maker.clean_log(before=1)
        hint = maker.path / "_delta_log" / "_last_checkpoint"
        hint.unlink()
        if spoil is not None:
            hint.write_bytes(spoil)
        assert deltalog.txns_at(local(maker), 1) == {APP_ID: 0}


def test_a_checkpoint_beyond_the_version_is_left_alone(tmp_path: Path) -> None:
    """A snapshot of before must not know what came after."""
    maker = TableMaker(tmp_path / "raw")
    maker.flush(records(0))
    maker.table.checkpoint()
    maker.flush(records(1))
    maker.table.refresh()
    maker.table.checkpoint()
    maker.clean_log(before=1)
    assert deltalog.txns_at(local(maker), 1) == {APP_ID: 0}
    assert deltalog.txns_at(local(maker), 2) == {APP_ID: 1}


@pytest.mark.parametrize("spoil", ["cut off", "empty", "gone"])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(tmp_path: Path, spoil: str) -> None:
    """An older checkpoint or the log from its start says the same."""
    maker = TableMaker(tmp_path / "raw")
    maker.flush(records(0))
    maker.table.checkpoint()
    maker.flush(records(1))
    maker.table.checkpoint()
    newest = maker.path / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    if spoil == "gone":
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[: 100 if spoil == "cut off" else 0])
    assert deltalog.txns_at(local(maker), 2) == {APP_ID: 1}


def test_an_unreadable_log_is_refused(tmp_path: Path) -> None:
    """A hole that no checkpoint covers means that nobody knows where ingestion ended."""
    maker = TableMaker(tmp_path / "raw")
    for offset in range(3):
        maker.flush(records(offset))
    (maker.path / deltalog.entry_path(2)).unlink()
    with pytest.raises(RefusedError, match=r"0002\.json is missing"):
        deltalog.txns_at(local(maker), 3)


def test_a_checkpoint_in_parts_counts_only_when_all_are_there(tmp_path: Path) -> None:
    """Spark writes large checkpoints as several files, which appear one by one."""
    maker = TableMaker(tmp_path / "raw")
    maker.flush(records(0))
    maker.table.checkpoint()
    log = maker.path / "_delta_log"
    whole = log / f"{1:020d}.checkpoint.parquet"
    parts = [log / f"{1:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    parts[0].write_bytes(whole.read_bytes())
    parts[1].write_bytes(whole.read_bytes())
    whole.unlink()
    (log / "_last_checkpoint").unlink()
    maker.clean_log(before=1)
    assert deltalog.txns_at(local(maker), 1) == {APP_ID: 0}
    maker.clean_log(before=2)
    assert deltalog.txns_at(local(maker), 1) == {APP_ID: 0}
    parts[1].unlink()
    with pytest.raises(RefusedError):
        deltalog.txns_at(local(maker), 1)


def test_many_txns_are_read_in_one_pass(tmp_path: Path) -> None:
    """As many partitions as there are, one checkpoint tells them all."""
    maker = TableMaker(tmp_path / "raw")
    tps = {TP._replace(partition=number): number for number in range(1000)}
    maker.commit([], tps, kind="set")
    maker.table.checkpoint()
    maker.clean_log(before=1)
    found = deltalog.txns_at(local(maker), 1)
    assert len(found) == 1000
    assert found["shop/orders/999"] == 999
