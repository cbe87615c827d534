"""The log of a table on a disk, written without delta-rs: entries like its own, in slots that nobody else has."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from ingestor.delta.deltalog import entry_path, fingerprint
from ingestor.delta.storage import LocalStorage
from ingestor.delta.table import RawTable
from ingestor.delta.table_log import CHECKPOINT_EVERY, DataFile, DiskLog, NewEntry, StoreLog
from ingestor.records import RawSchema

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = RawSchema(partitioned=True)
STATS = {"numRecords": 3, "minValues": {"stream_offset": 0, "stream_topic": 'ä"\\'}, "nullCount": {"stream_offset": 0}}
INFO = {"commit_id": "c1", "app_id": "shop", "topic_ids": {"a": "A" * 22}, "gaps": [{"from": 1, "to": 2}], "n": 7}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table at version 0."""
    RawTable(str(tmp_path / "t"), SCHEMA, {})
    return tmp_path / "t"


def disk(root: Path) -> DiskLog:
    return DiskLog(root, SCHEMA, 0, lambda: DeltaTable(root))


def put(log: DiskLog, version: int, **txns: int) -> None:
    log.put(version, NewEntry((), txns, {"commit_id": f"c{version}"}), after=fingerprint(log.storage, version - 1))


def entry(root: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / entry_path(version)).read_text().splitlines()]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_delta_log").iterdir())


def without_nulls_and_times(action: dict[str, Any]) -> dict[str, Any]:
    """Return an action without what differs between two programs, or two moments."""
    apart = {"timestamp", "modificationTime", "lastUpdated", "clientVersion", "engineInfo"}
    ((kind, body),) = action.items()
    return {kind: {key: value for key, value in body.items() if value is not None and key not in apart}}


def test_an_entry_says_what_that_of_delta_rs_says(root: Path) -> None:
    """Whatever characters there are in paths, values and statistics."""
    files = tuple(
        DataFile(path, 10 + number, STATS, {"ingest_date": date})
        for number, (path, date) in enumerate(
            {
                "ingest_date=2026-11-19/part-1.parquet": "2026-11-19",
                "a b%3A/ä?#[]'\"<>|{}^`~\\+&=.parquet": "2026-11-20",
                "no-date.parquet": None,
            }.items()
        )
    )
    txns = {"shop/a/0": 0, "shop/a/1": 2**62, "shop/ü/0": 5}
    written = NewEntry(files, txns, INFO)
    disk(root).put(1, written, after=fingerprint(LocalStorage(root), 0))
    StoreLog(str(root), SCHEMA, {}, DeltaTable(root)).put(2, written, after=None)
    ours, theirs = (sorted(map(without_nulls_and_times, entry(root, version)), key=str) for version in (1, 2))
    assert ours == theirs
    assert next(iter(entry(root, 1)[0])) == "commitInfo"


def test_delta_rs_reads_it(root: Path) -> None:
    """Files, statistics, txns and history."""
    file = DataFile("a b.parquet", 10, STATS, {"ingest_date": "2026-11-19"})
    disk(root).put(1, NewEntry((file,), {"shop/a/0": 4}, INFO), after=fingerprint(LocalStorage(root), 0))
    table = DeltaTable(root)
    assert table.version() == 1
    assert [uri.rpartition("/")[2] for uri in table.file_uris()] == ["a b.parquet"]
    assert table.transaction_version("shop/a/0") == 4
    assert table.history(1)[0]["commit_id"] == "c1"


def test_a_slot_that_is_taken_is_refused_and_nothing_is_left_over(root: Path) -> None:
    """Neither in the slot nor beside it."""
    put(disk(root), 1, a=1)
    before = names(root)
    with pytest.raises(FileExistsError):
        put(disk(root), 1, b=2)
    assert names(root) == before
    assert {"txn"} & entry(root, 1)[1].keys()
    assert entry(root, 1)[1]["txn"]["appId"] == "a"


def test_an_entry_is_synced_before_it_is_in_its_slot(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves all of it there or nothing."""
    monkeypatch.setattr("ingestor.delta.disk_log.os.fsync", broken)
    with pytest.raises(OSError, match="broken"):
        put(disk(root), 1)
    assert names(root) == [f"{0:020d}.json"]


def broken(_descriptor: int) -> None:
    raise OSError("broken")


@pytest.mark.parametrize("meanwhile", ["gone", "another one"])
def test_nothing_is_put_after_another_entry_than_the_one_compared(root: Path, meanwhile: str) -> None:
    """Else it would land in a log that begins with a gap, or in somebody else's table."""
    log, first = disk(root), root / entry_path(0)
    compared = fingerprint(log.storage, 0)
    if meanwhile == "gone":
        first.unlink()
    else:
        first.write_text(first.read_text() + "\n")
    with pytest.raises(FileNotFoundError):
        log.put(1, NewEntry((), {}, INFO), after=compared)
    assert names(root) == ([first.name] if first.exists() else [])


def test_the_newest_version_is_found_step_by_step(root: Path) -> None:
    """Without looking at the whole log."""
    for version in (1, 2, 3):
        put(disk(root), version)
    log = DiskLog(root, SCHEMA, 0, lambda: pytest.fail("opened"))
    assert [log.newest(seen) for seen in (0, 2, 3)] == [3, 3, 3]


def test_every_so_many_entries_the_whole_log_is_opened(root: Path) -> None:
    """A checkpoint that is damaged is nothing to us, but others can't read the table: better to stop."""
    opened: list[int] = []
    log = DiskLog(root, SCHEMA, 0, lambda: opened.append(version))
    for version in range(1, 2 * CHECKPOINT_EVERY + 1):
        put(disk(root), version)
        assert log.newest(version - 1) == version
    assert opened == [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]


def test_a_log_that_is_gone_has_no_version(root: Path) -> None:
    """Whoever knew one knows by this that it is gone."""
    log = disk(root)
    shutil.rmtree(root)
    assert log.newest(0) is None
    assert not root.exists()


@pytest.mark.parametrize("gone", [(0, 1, 2), (0, 2), (2, 3, 4)], ids=["in order", "a hole behind", "a hole and more"])
def test_a_clean_up_does_not_end_the_log_early(root: Path, gone: tuple[int, ...]) -> None:
    """Entries go in any order: an empty slot is no end while a checkpoint says that the log goes on."""
    for version in range(1, 7):
        put(disk(root), version)
    DeltaTable(root).create_checkpoint()
    for version in gone:
        (root / entry_path(version)).unlink()
    assert disk(root).newest(1) == 6


def test_a_clean_up_is_noticed_without_the_hint(root: Path) -> None:
    """People are told to remove it when a checkpoint is damaged."""
    for version in range(1, 6):
        put(disk(root), version)
    DeltaTable(root).create_checkpoint()
    for path in (entry_path(0), entry_path(2), "_delta_log/_last_checkpoint"):
        (root / path).unlink()
    assert disk(root).newest(1) == 5


def test_a_version_that_only_a_checkpoint_tells_of_counts(root: Path) -> None:
    """A log that was copied or pruned by hand may end so, and is gone on with."""
    put(disk(root), 1)
    DeltaTable(root).create_checkpoint()
    for version in (0, 1):
        (root / entry_path(version)).unlink()
    table = RawTable(str(root), SCHEMA, {})
    table.refresh()
    table.attempt((), {"a": 1}, {"commit_id": "c2"})
    assert table.slot(2) == "c2"
    table.refresh()
    assert table.version == 2


def entry_of(name: int, number: int) -> NewEntry:
    return NewEntry((DataFile(f"{name}-{number}", 1, STATS, {"ingest_date": None}),), {}, INFO)


def test_writers_with_and_without_delta_rs_take_turns(root: Path) -> None:
    """Every one of their entries is there, once, and each in a slot of its own."""
    each, barrier = 10, threading.Barrier(4)

    def ours(name: int) -> None:
        log, seen = disk(root), 0
        barrier.wait()
        for number in range(each):
            while True:
                seen = log.newest(seen) or 0
                try:
                    log.put(seen + 1, entry_of(name, number), after=fingerprint(log.storage, seen))
                    break
                except FileExistsError:
                    continue

    def theirs(name: int) -> None:
        barrier.wait()
        for number in range(each):
            while True:
                handle = DeltaTable(root)
                try:
                    StoreLog(str(root), SCHEMA, {}, handle).put(
                        handle.version() + 1, entry_of(name, number), after=None
                    )
                    break
                except Exception:  # noqa: BLE001, S112 - however a lost race is told
                    continue

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, name) for name, work in enumerate((ours, ours, theirs, theirs))]:
            done.result(timeout=50)
    table = DeltaTable(root)
    assert table.version() == 4 * each
    assert len(set(table.file_uris())) == 4 * each
