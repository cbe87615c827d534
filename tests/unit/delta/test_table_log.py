"""The log of a table on a disk: entries that delta-rs puts, synced, and in slots that nobody else has."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ingestor.delta import disk_log
from ingestor.delta.deltalog import entry_path, fingerprint, read_entry
from ingestor.delta.storage import LocalStorage
from ingestor.delta.table import RawTable
from ingestor.delta.table_log import CHECKPOINT_EVERY, DataFile, NewEntry, TableLog
from ingestor.errors import RefusedError
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


def log_of(root: Path) -> TableLog:
    return TableLog(str(root), SCHEMA, {}, DeltaTable(root))


def put(root: Path, version: int, **txns: int) -> None:
    log = log_of(root)
    log.put(version, NewEntry((), txns, {"commit_id": f"c{version}"}), after=fingerprint(log.storage, version - 1))


def entry(root: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / entry_path(version)).read_text().splitlines()]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_delta_log").iterdir())


def test_an_entry_says_what_it_was_given_and_how_many_actions_it_has(root: Path) -> None:
    """Whatever characters there are in paths, values and statistics."""
    paths = {
        "ingest_date=2026-11-19/part-1.parquet": "2026-11-19",
        "a b%3A/ä?#[]'\"<>|{}^`~\\+&=.parquet": "2026-11-20",
        "no-date.parquet": None,
    }
    files = tuple(DataFile(path, 10, STATS, {"ingest_date": date}) for path, date in paths.items())
    txns = {"shop/a/0": 0, "shop/a/1": 2**62, "shop/ü/0": 5}
    log_of(root).put(1, NewEntry(files, txns, INFO), after=fingerprint(LocalStorage(root), 0))
    written = read_entry(LocalStorage(root), 1)
    assert written is not None
    assert written.txns == txns
    assert [(added.stats, added.partition_values["ingest_date"]) for added in written.adds] == [
        (STATS, date) for date in paths.values()
    ]
    assert {key: written.commit_info[key] for key in (*INFO, "actions")} == {**INFO, "actions": 7}
    assert next(iter(entry(root, 1)[0])) == "commitInfo", "what is cut off is the end"
    assert sorted(uri.removeprefix(f"{root}/") for uri in DeltaTable(root).file_uris()) == sorted(paths)


def test_the_first_entry_says_how_many_actions_it_has(root: Path) -> None:
    """A cut there is seen as well."""
    assert entry(root, 0)[0]["commitInfo"]["actions"] == len(entry(root, 0)) == 3


def test_a_slot_that_is_taken_is_refused_and_nothing_is_left_over(root: Path) -> None:
    """Neither in the slot nor beside it."""
    late = log_of(root)
    put(root, 1, a=1)
    before = names(root)
    with pytest.raises(DeltaError):
        late.put(1, NewEntry((), {"b": 2}, INFO), after=fingerprint(late.storage, 0))
    assert names(root) == before
    assert entry(root, 1)[1]["txn"]["appId"] == "a"


@pytest.mark.parametrize("meanwhile", ["gone", "another one"])
def test_nothing_is_put_after_another_entry_than_the_one_compared(root: Path, meanwhile: str) -> None:
    """Else it would land in a log that begins with a gap, or in somebody else's table."""
    log, first = log_of(root), root / entry_path(0)
    compared = fingerprint(log.storage, 0)
    if meanwhile == "gone":
        first.unlink()
    else:
        first.write_text(first.read_text() + "\n")
    with pytest.raises(FileNotFoundError):
        log.put(1, NewEntry((), {}, INFO), after=compared)
    assert names(root) == ([first.name] if first.exists() else [])


def test_a_handle_is_opened_anew_every_so_many_entries(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is only ever updated grows for ever."""
    opened: list[int] = []
    log = log_of(root)

    def reopen(uri: str, _options: object) -> DeltaTable:
        opened.append(version)
        return DeltaTable(uri)

    monkeypatch.setattr("ingestor.delta.table_log.reopen_handle", reopen)
    for version in range(1, 2 * CHECKPOINT_EVERY + 3):
        put(root, version)
        assert log.newest() == version
    assert opened == [CHECKPOINT_EVERY + 1, 2 * CHECKPOINT_EVERY + 2]


def test_a_damaged_checkpoint_is_named_then(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be nothing to us, but others can't read the table: better to stop."""
    monkeypatch.setattr("ingestor.delta.table_log.CHECKPOINT_EVERY", 1)
    log = log_of(root)
    put(root, 1)
    assert log.newest() == 1
    DeltaTable(root).create_checkpoint()
    (root / f"_delta_log/{1:020d}.checkpoint.parquet").write_bytes(b"")
    with pytest.raises(RefusedError, match=f"checkpoint _delta_log/{1:020d}"):
        log.newest()


def test_a_checkpoint_is_there_only_when_what_it_contains_lasts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut could else take an entry of which the checkpoint tells."""
    put(root, 1)
    put(root, 2)
    settled: list[str] = []
    settled_by_then: list[set[str]] = []
    move = disk_log._move

    def recorded(file: Path, folder: Path) -> None:
        settled_by_then.append(set(settled))
        move(file, folder)

    monkeypatch.setattr(LocalStorage, "settle", lambda _storage, path: settled.append(path))
    monkeypatch.setattr(disk_log, "_move", recorded)
    assert log_of(root).checkpoint() == 2
    assert settled_by_then[0] == {entry_path(version) for version in range(3)}


@pytest.mark.parametrize(
    "gone", [(0, 1, 2), (0, 2), (2, 3, 4), range(7)], ids=["in order", "a hole behind", "a hole and more", "all"]
)
@pytest.mark.parametrize("hinted", [True, False])
def test_a_clean_up_does_not_end_the_log_early(root: Path, gone: tuple[int, ...], *, hinted: bool) -> None:
    """Entries go in any order: an empty slot is no end while a checkpoint says that the log goes on."""
    put(root, 1)
    log = log_of(root)
    for version in range(2, 7):
        put(root, version)
    DeltaTable(root).create_checkpoint()
    for version in gone:
        (root / entry_path(version)).unlink()
    if not hinted:  # people are told to remove it when a checkpoint is damaged
        (root / "_delta_log/_last_checkpoint").unlink()
    assert log.newest() == 6


def test_a_version_that_only_a_checkpoint_tells_of_is_refused(root: Path) -> None:
    """A log that was pruned by hand may end so, and delta-rs puts nothing behind it."""
    put(root, 1)
    DeltaTable(root).create_checkpoint()
    for version in (0, 1):
        (root / entry_path(version)).unlink()
    with pytest.raises(RefusedError, match=rf"{entry_path(1)}.* is gone"):
        RawTable(str(root), SCHEMA, {})


def test_a_log_that_is_gone_is_no_table_any_more(root: Path) -> None:
    """Nothing is made in its place."""
    table = RawTable(str(root), SCHEMA, {})
    shutil.rmtree(root)
    with pytest.raises(RefusedError, match="was replaced or its log cut off"):
        table.refresh()
    assert not root.exists()


def test_writers_take_turns(root: Path) -> None:
    """Every one of their entries is there, once, and each in a slot of its own."""
    each, writers = 10, 4
    barrier = threading.Barrier(writers)

    def write(name: int) -> None:
        log = log_of(root)
        barrier.wait()
        for number in range(each):
            file = DataFile(f"{name}-{number}", 1, STATS, {"ingest_date": None})
            while True:
                version = log.newest()
                try:
                    log.put(version + 1, NewEntry((file,), {}, INFO), after=fingerprint(log.storage, version))
                    break
                except DeltaError:
                    continue

    with ThreadPoolExecutor(writers) as pool:
        for done in [pool.submit(write, name) for name in range(writers)]:
            done.result(timeout=50)
    table = DeltaTable(root)
    assert table.version() == writers * each
    assert len(set(table.file_uris())) == writers * each


def test_entries_are_taken_in_as_a_whole_or_not_at_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a read that failed on the way nothing of them is known, or their txns would seem to go back."""
    table = RawTable(str(root), SCHEMA, {})
    put(root, 1, a=5)

    def fails_at_the_newest(files: LocalStorage, version: int) -> bytes | None:
        if version == 1:
            raise OSError("away")
        return fingerprint(files, version)

    with monkeypatch.context() as patched:
        patched.setattr("ingestor.delta.table.deltalog.fingerprint", fails_at_the_newest)
        with pytest.raises(OSError, match="away"):
            table.refresh()
    assert (table.version, table.txns) == (0, {})
    table.refresh()
    assert (table.version, table.txns, table.removal) == (1, {"a": 5}, None)
