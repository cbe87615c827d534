"""What the committer may rely on, whatever the table is: one suite over the fake and over real Delta tables.

Those lie on a local disk, in moto and, where go is there to build it, in versitygw.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from ingestor.delta.deltalog import entry_path
from ingestor.delta.storage import LocalStorage
from ingestor.delta.table import RawTable
from ingestor.errors import RefusedError, Unavailable
from ingestor.records import RawSchema, TopicPartition
from tests.support.fakes.staging import stage
from tests.support.fakes.storage import MemoryStorage
from tests.support.fakes.table import FakeLog, FakeTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestor.delta.storage import Storage
    from ingestor.delta.table import Table
    from ingestor.delta.table_log import DataFile
    from tests.support.stores.stores import Store

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Backend(Protocol):
    """A place for one table, which several handles can share."""

    @property
    def storage(self) -> Storage:
        """Where its data files go."""

    def open(self) -> Table:
        """Open a handle, or create the table."""

    def replace(self) -> None:
        """Delete the table, and create it again at the same place."""

    def remove(self) -> None:
        """Delete the table."""


class Fake:
    """The tests' own."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.storage = MemoryStorage()

    def open(self) -> Table:
        return FakeTable(self.log, self.storage)

    def replace(self) -> None:
        self.log.replace()

    def remove(self) -> None:
        self.log.remove()


class LocalDisk:
    """delta-rs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "table"

    @property
    def storage(self) -> Storage:
        return self._open().storage

    def open(self) -> Table:
        return self._open()

    def replace(self) -> None:
        self.remove()
        self._open()

    def remove(self) -> None:
        shutil.rmtree(self._root)

    def _open(self) -> RawTable:
        return RawTable(str(self._root), RawSchema(), {})


class InStore:
    """delta-rs in an S3 store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bucket = store.make_bucket()

    @property
    def storage(self) -> Storage:
        return self._open().storage

    def open(self) -> Table:
        return self._open()

    def replace(self) -> None:
        self.remove()
        self._open()

    def remove(self) -> None:
        client = self._store.client()
        for key in self._store.objects(self._bucket):
            client.delete_object(Bucket=self._bucket, Key=key)

    def _open(self) -> RawTable:
        return RawTable(self._store.url(self._bucket), RawSchema(), self._store.storage_options)


@pytest.fixture(params=["fake", "disk", "moto", "versity"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "fake":
        return Fake()
    if request.param == "disk":
        return LocalDisk(tmp_path)
    return InStore(request.getfixturevalue(request.param))


def put(table: Table, txns: dict[str, int], *, by: str = "", files: tuple[DataFile, ...] = (), **info: Any) -> None:
    """Commit on a handle, as an ingestor if it has an id, else as a foreign program."""
    table.attempt(files, txns, {**info, "commit_id": by} if by else info)


def test_a_new_table_has_a_version_and_nothing_else(backend: Backend) -> None:
    """The first handle creates the table; it holds no txn, no removal and no row."""
    table = backend.open()
    assert table.version == 0
    assert table.txns == {}
    assert table.removal is None
    assert table.holding([A0]) == set()


def test_an_attempt_lands_right_after_the_handles_version(backend: Backend) -> None:
    """What a handle at version 0 puts stands at version 1, and the next at version 2."""
    table = backend.open()
    put(table, {"app/a/0": 4}, by="one")
    assert table.slot(1) == "one"
    table.refresh()
    put(table, {"app/a/0": 9}, by="two")
    assert [table.slot(1), table.slot(2), table.slot(3)] == ["one", "two", None]


def test_an_attempt_does_not_move_its_handle(backend: Backend) -> None:
    """Only a refresh does; so the same attempt again goes for the same slot."""
    table = backend.open()
    put(table, {"app/a/0": 4}, by="one")
    assert table.version == 0
    assert table.txns == {}
    with pytest.raises(Exception, match=r"."):
        put(table, {"app/a/0": 4}, by="one")
    assert table.slot(2) is None


def test_a_stale_handle_never_lands(backend: Backend) -> None:
    """Its slot is taken, and it must not be moved to the next one, even with other txns."""
    stale, other = backend.open(), backend.open()
    put(other, {"app/a/0": 4}, by="other")
    with pytest.raises(Exception, match=r"."):
        put(stale, {"app/b/0": 7}, by="stale")
    assert stale.slot(1) == "other"
    assert stale.slot(2) is None


def test_a_stale_handle_never_lands_behind_a_foreign_append(backend: Backend) -> None:
    """A commit that conflicts with nothing is no reason to rebase either."""
    stale, other = backend.open(), backend.open()
    put(other, {})
    with pytest.raises(Exception, match=r"."):
        put(stale, {"app/a/0": 7}, by="stale")
    assert stale.slot(1) == ""
    assert stale.slot(2) is None


def test_many_handles_race_for_one_slot_and_one_wins(backend: Backend) -> None:
    """Put-if-absent: of eight handles at version 0 one lands, and the log says which."""
    handles = {f"writer-{n}": backend.open() for n in range(8)}
    won: list[str] = []
    barrier = threading.Barrier(len(handles))

    def race(name: str, table: Table) -> None:
        barrier.wait()
        try:
            put(table, {f"app/a/{name[-1]}": 1}, by=name)
        except Exception:  # noqa: BLE001 - all losers, however they are told
            return
        won.append(name)

    with ThreadPoolExecutor(len(handles)) as pool:
        list(pool.map(race, handles, handles.values()))
    last = backend.open()
    assert [last.version, last.slot(1)] == [1, won[0]]
    assert len(won) == 1


def test_a_refresh_sees_the_txns_of_others(backend: Backend) -> None:
    """Whoever wrote them, and however many commits there were."""
    table, other = backend.open(), backend.open()
    put(other, {"app/a/0": 4}, by="one")
    other.refresh()
    put(other, {"app/a/0": 9, "somebody-else": 3})
    assert table.txns == {}
    table.refresh()
    assert table.version == 2
    assert table.txns == {"app/a/0": 9, "somebody-else": 3}


def test_a_new_handle_knows_every_txn(backend: Backend) -> None:
    """A process that starts reads the same ledger as one that was there all the time."""
    table = backend.open()
    for last in range(3):
        put(table, {f"app/a/{last % 2}": last}, by=f"c{last}")
        table.refresh()
    assert backend.open().txns == table.txns == {"app/a/0": 2, "app/a/1": 1}


def test_none_and_minus_one_and_zero_are_three_things(backend: Backend) -> None:
    """No txn, position 0 set by a person, and the first record landed must not be taken for each other."""
    table = backend.open()
    put(table, {"app/a/0": -1, "app/a/1": 0}, by="one")
    for seen in (table, backend.open()):
        seen.refresh()
        assert [seen.txns.get(f"app/a/{n}") for n in range(3)] == [-1, 0, None]


def test_a_commit_may_move_txns_alone(backend: Backend) -> None:
    """That is how positions are set: no file, no row."""
    table = backend.open()
    put(table, {"app/a/0": 41}, by="one")
    table.refresh()
    assert table.txns == {"app/a/0": 41}
    assert table.holding([A0]) == set()


def test_the_slot_tells_ours_from_foreign_from_absent(backend: Backend) -> None:
    """A commit id of an ingestor, "" for any other program, None for an empty slot."""
    table = backend.open()
    put(table, {}, by="ours")
    table.refresh()
    put(table, {"other-app": 1})
    assert [table.slot(1), table.slot(2), table.slot(3)] == ["ours", "", None]


def test_the_slot_tells_what_a_raised_attempt_left_behind(backend: Backend) -> None:
    """After any exception the log itself says whose the slot is, also through a handle that is behind."""
    table, other = backend.open(), backend.open()
    put(table, {}, by="landed")
    with pytest.raises(Exception, match=r"."):
        put(table, {}, by="landed")
    assert table.slot(1) == "landed"
    with pytest.raises(Exception, match=r"."):
        put(other, {}, by="late")
    assert other.slot(1) == "landed"


def test_a_settled_entry_can_be_settled_again(backend: Backend) -> None:
    """The answer of the first time may have been lost."""
    table = backend.open()
    put(table, {}, by="one")
    table.settle(1)
    table.settle(1)
    table.refresh()
    assert table.version == 1


def test_holding_names_the_partitions_that_have_rows(backend: Backend) -> None:
    """Asked for some partitions, it names those of them that have rows, and no others."""
    table = backend.open()
    staged = stage(backend.storage, [(A0, 0), (A0, 1), (B0, 7)])
    put(table, {"app/a/0": 1, "app/b/0": 7}, by="one", files=staged.files)
    table.refresh()
    assert table.holding([A0, A1]) == {A0}
    assert table.holding([A0, A1, B0]) == {A0, B0}
    assert table.holding([A1]) == set()
    assert table.holding([]) == set()


def test_holding_needs_no_refresh(backend: Backend) -> None:
    """It looks at the newest version, not at the handle's: rows that just landed are the point of asking."""
    table, other = backend.open(), backend.open()
    put(other, {"app/a/0": 0}, by="one", files=stage(backend.storage, [(A0, 0)]).files)
    assert table.holding([A0]) == {A0}


def test_a_replaced_table_is_refused(backend: Backend) -> None:
    """A table that was deleted and created again is another one, though it stands at the same place."""
    table = backend.open()
    backend.replace()
    with pytest.raises(RefusedError):
        table.refresh()


def test_a_replaced_table_is_refused_also_when_it_has_more_versions(backend: Backend) -> None:
    """Versions alone don't tell."""
    table = backend.open()
    put(table, {"app/a/0": 1}, by="one")
    table.refresh()
    backend.replace()
    new = backend.open()
    for number in range(3):
        put(new, {}, by=f"new-{number}")
        new.refresh()
    with pytest.raises(RefusedError):
        table.refresh()


def test_an_empty_slot_of_a_replaced_table_is_refused(backend: Backend) -> None:
    """Whoever waits for that slot to be free or taken would wait for ever."""
    table = backend.open()
    put(table, {"app/a/0": 1}, by="one")
    table.refresh()
    assert table.slot(2) is None
    backend.replace()
    with pytest.raises(RefusedError):
        table.slot(2)


@pytest.mark.parametrize("reopened", [False, True], ids=["followed", "reopened"])
def test_a_table_that_is_gone_is_refused(backend: Backend, reopened: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """Whatever is asked of it: it would not come back by waiting, and is not made anew."""
    monkeypatch.setattr("ingestor.delta.table_log.CHECKPOINT_EVERY", 1 if reopened else 50)
    table = backend.open()
    put(table, {"app/a/0": 1}, by="one")
    table.refresh()
    backend.remove()
    for ask in (table.refresh, lambda: table.slot(2), lambda: table.holding([A0])):
        with pytest.raises(RefusedError):
            ask()


def test_a_log_that_was_cut_off_is_refused(backend: Backend) -> None:
    """A handle that is ahead of its table must not commit: its txns are of commits that are no more."""
    table = backend.open()
    for number in range(2):
        put(table, {"app/a/0": number}, by=f"c{number}")
        table.refresh()
    backend.replace()
    with pytest.raises(RefusedError):
        table.refresh()


def test_a_txn_that_goes_back_is_a_removal(backend: Backend) -> None:
    """Nobody but a person who sets offsets may do that. Every handle tells of it, also one that is opened later."""
    table, other = backend.open(), backend.open()
    put(table, {"app/a/0": 9}, by="one")
    table.refresh()
    other.refresh()
    put(other, {"app/a/0": 4})
    table.refresh()
    for seen in (table, backend.open()):
        assert seen.removal is not None
        assert seen.removal.version == 2


def test_a_removal_is_told_until_a_txn_remembers_it(backend: Backend) -> None:
    """Then the refusal stands in the log, and no handle has to look for it any more."""
    table = backend.open()
    put(table, {"app/a/0": 9}, by="one")
    table.refresh()
    put(table, {"app/a/0": 4})
    table.refresh()
    put(table, {"ingestor:removed/app/a/0/": 2}, by="two")
    table.refresh()
    for seen in (table, backend.open()):
        assert seen.removal is None
        assert seen.txns["ingestor:removed/app/a/0/"] == 2


def test_offsets_that_a_person_set_may_go_back(backend: Backend) -> None:
    """`ingestor offsets --set` says so in its commit."""
    table, other = backend.open(), backend.open()
    put(table, {"app/a/0": 9}, by="one")
    table.refresh()
    other.refresh()
    put(other, {"app/a/0": 4}, by="two", operation_kind="set")
    table.refresh()
    assert table.txns == {"app/a/0": 4}


# --- only real tables: what else can be wrong with them ---


def create(
    root: Path,
    schema: pa.Schema | None = None,
    *,
    partition_by: list[str] | None = None,
    configuration: dict[str, str | None] | None = None,
) -> Path:
    """Create a table that another program might have made."""
    arrow = RawSchema().table if schema is None else schema
    DeltaTable.create(
        str(root), Schema.from_arrow(arrow), partition_by=partition_by, configuration=configuration, mode="error"
    )
    return root


def log_of(root: Path) -> dict[str, bytes]:
    """Return the whole log, to see that nobody wrote to it."""
    return {path.name: path.read_bytes() for path in sorted((root / "_delta_log").iterdir()) if path.is_file()}


def test_a_table_as_we_would_make_it_is_taken(tmp_path: Path) -> None:
    """Whoever created it."""
    assert RawTable(str(create(tmp_path / "t")), RawSchema(), {}).version == 0


BASE = RawSchema().table
OTHER_TABLES = {
    "a column is missing": {"schema": BASE.remove(4)},
    "a column is not ours": {"schema": BASE.append(pa.field("mine", pa.string()))},
    "a column has another type": {"schema": BASE.set(2, pa.field("stream_offset", pa.int32(), nullable=False))},
    "it has columns that the route does not want": {"schema": RawSchema(("key",)).table},
    "nulls are forbidden where Kafka has none": {
        "schema": BASE.set(4, pa.field("message_payload", pa.binary(), nullable=False))
    },
    "it is partitioned": {"partition_by": ["stream_topic"]},
    "it has deletion vectors": {"configuration": {"delta.enableDeletionVectors": "true"}},
    "it has a change data feed": {"configuration": {"delta.enableChangeDataFeed": "true"}},
    "its txns expire": {"configuration": {"delta.setTransactionRetentionDuration": "interval 7 days"}},
}


@pytest.mark.parametrize("made", OTHER_TABLES.values(), ids=OTHER_TABLES.keys())
def test_another_table_is_refused_and_left_alone(tmp_path: Path, made: dict[str, Any]) -> None:
    """A table that we would damage, or that would make us forget, with exit code 4."""
    root = create(tmp_path / "t", **made)
    before = log_of(root)
    with pytest.raises(RefusedError) as refused:
        RawTable(str(root), RawSchema(), {})
    assert refused.value.exit_code == 4
    assert str(root) in refused.value.message
    assert log_of(root) == before


@pytest.mark.parametrize(
    "property_", ["delta.setTransactionRetentionDuration", "delta.enableChangeDataFeed"], ids=["retention", "protocol"]
)
def test_a_property_set_between_two_commits_is_refused(tmp_path: Path, property_: str) -> None:
    """What holds at the start must hold at every commit."""
    root = tmp_path / "t"
    table = RawTable(str(root), RawSchema(), {})
    value = "true" if "enable" in property_ else "interval 7 days"
    DeltaTable(str(root)).alter.set_table_properties({property_: value}, raise_if_not_exists=False)
    with pytest.raises(RefusedError):
        table.refresh()


def test_a_column_added_between_two_commits_is_refused(tmp_path: Path) -> None:
    """Someone else's schema change is no reason to adapt."""
    root = tmp_path / "t"
    table = RawTable(str(root), RawSchema(), {})
    added = Schema.from_arrow(pa.schema([pa.field("mine", pa.string())])).fields
    DeltaTable(str(root)).alter.add_columns(added)
    with pytest.raises(RefusedError, match="mine is not ours"):
        table.refresh()


TAKES_ROWS_AWAY: dict[str, Callable[[DeltaTable], object]] = {
    "restore": lambda table: table.restore(0),
    "delete without a predicate": lambda table: table.delete(),
    "overwrite": lambda table: write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="overwrite"),
}
LEAVES_ROWS: dict[str, Callable[[DeltaTable], object]] = {
    "optimize": lambda table: table.optimize.compact(),
    "delete with a predicate": lambda table: table.delete("stream_offset = 0"),
    "update": lambda table: table.update(updates={"message_payload": "null"}),
    "append": lambda table: write_deltalake(table, table.to_pyarrow_table(), mode="append"),
}


@pytest.mark.parametrize("what", [*TAKES_ROWS_AWAY, *LEAVES_ROWS])
def test_what_other_programs_do_to_the_rows(tmp_path: Path, what: str) -> None:
    """RESTORE, overwrite and truncation take rows away whose txns still count. A person's DELETE may."""
    root = tmp_path / "t"
    table = RawTable(str(root), RawSchema(), {})
    for number in range(2):
        files = stage(table.storage, [(A0, number)], chain={A0: number - 1}).files
        put(table, {"app/a/0": number}, by=f"c{number}", files=files)
        table.refresh()
    {**TAKES_ROWS_AWAY, **LEAVES_ROWS}[what](DeltaTable(str(root)))
    table.refresh()
    for seen in (table, RawTable(str(root), RawSchema(), {})):
        assert (seen.removal is not None) == (what in TAKES_ROWS_AWAY)


def test_one_table_by_two_paths_is_one(tmp_path: Path) -> None:
    """What opened is compared, not what was written."""
    (tmp_path / "link").symlink_to(tmp_path / "t")
    by_path, by_link = (RawTable(str(tmp_path / name), RawSchema(), {}) for name in ("t", "link"))
    other = RawTable(str(tmp_path / "other"), RawSchema(), {})
    assert by_path.identity == by_link.identity != other.identity


def test_a_file_is_not_settled_if_its_folder_was_swapped(tmp_path: Path) -> None:
    """What is synced is what was written, and it must stand at the path that the commit will name."""
    table = RawTable(str(tmp_path / "t"), RawSchema(), {})
    storage = table.storage
    with storage.create("x.parquet") as sink:
        held = storage.hold("x.parquet")
        sink.write(b"first")
        sink.flush()
        shutil.copytree(tmp_path / "t", tmp_path / "copy")
        (tmp_path / "t").rename(tmp_path / "old")
        (tmp_path / "copy").rename(tmp_path / "t")
        sink.write(b" and more")
    with pytest.raises(Unavailable, match=r"x\.parquet is not the one that was written"):
        held.settle(14)


def test_a_settled_file_stands_until_another_takes_its_place(tmp_path: Path) -> None:
    """Be it one with the same bytes: nobody has synced that."""
    table = RawTable(str(tmp_path / "t"), RawSchema(), {})
    with table.storage.create("x.parquet") as sink:
        held = table.storage.hold("x.parquet")
        sink.write(b"whole")
    held.settle(5)
    assert held.standing()
    shutil.copy2(tmp_path / "t" / "x.parquet", tmp_path / "y")
    (tmp_path / "y").rename(tmp_path / "t" / "x.parquet")
    assert not held.standing()


def test_a_file_where_the_table_should_be_is_refused(tmp_path: Path) -> None:
    """It is nobody's table, and stays as it is."""
    (tmp_path / "t").write_text("mine")
    with pytest.raises(RefusedError):
        RawTable(str(tmp_path / "t"), RawSchema(), {})
    assert (tmp_path / "t").read_text() == "mine"


def test_a_handle_survives_checkpoints_and_being_reopened(tmp_path: Path) -> None:
    """A long life with checkpoints in between changes nothing: not the txns, not where a commit lands."""
    root = tmp_path / "t"
    table = RawTable(str(root), RawSchema(), {})
    for number in range(120):
        put(table, {"app/a/0": number}, by=f"c{number}")
        table.refresh()
        if number % 50 == 0:
            table.checkpoint()
    assert table.version == 120
    assert table.txns == {"app/a/0": 119}
    assert RawTable(str(root), RawSchema(), {}).txns == {"app/a/0": 119}


@dataclass
class FailsOnce:
    """A table's files, of which one can't be read the first time."""

    files: LocalStorage
    path: str

    def read(self, path: str) -> bytes | None:
        if path == self.path:
            self.path = ""
            raise OSError("connection reset by peer")
        return self.files.read(path)


def test_a_refresh_that_fails_on_the_way_is_as_if_it_had_not_begun(tmp_path: Path) -> None:
    """Entries that were taken in before the failure are taken in again, and must not seem to move txns back."""
    table, other = (RawTable(str(tmp_path / "t"), RawSchema(), {}) for _ in range(2))
    for number in range(3):
        put(other, {"app/a/0": number}, by=f"c{number}")
        other.refresh()
    assert isinstance(table.storage, LocalStorage)
    table.storage = FailsOnce(table.storage, entry_path(3))  # type: ignore[assignment]  # only reads are looked at
    with pytest.raises(OSError, match="reset"):
        table.refresh()
    assert [table.version, table.txns] == [0, {}]
    table.refresh()
    assert [table.version, table.txns] == [3, {"app/a/0": 2}]


def test_txns_outlive_a_log_that_was_cleaned_up(tmp_path: Path) -> None:
    """A handle that slept through log cleanup takes the checkpoint's word for the entries that are gone."""
    root = tmp_path / "t"
    sleeper, table = RawTable(str(root), RawSchema(), {}), RawTable(str(root), RawSchema(), {})
    for number in range(5):
        put(table, {f"app/a/{number % 2}": number}, by=f"c{number}")
        table.refresh()
    table.checkpoint()
    put(table, {"app/b/0": 1}, by="last")
    for version in range(5):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    expected = {"app/a/0": 4, "app/a/1": 3, "app/b/0": 1}
    assert RawTable(str(root), RawSchema(), {}).txns == expected
    sleeper.refresh()
    assert sleeper.txns == expected


def test_an_attempt_that_cannot_be_written_down_leaves_its_slot_empty(tmp_path: Path) -> None:
    """Nothing is there, and nothing is left over."""
    table = RawTable(str(tmp_path / "t"), RawSchema(), {})
    with pytest.raises(ValueError, match="serializable"):
        put(table, {}, by="one", oops=object())
    assert table.slot(1) is None
    assert list(log_of(tmp_path / "t")) == [entry_path(0).rpartition("/")[2]]


def creations(root: Path) -> int:
    """Return how many times a table was created."""
    entries = [json.loads(line) for text in log_of(root).values() for line in text.splitlines()]
    return sum("metaData" in entry for entry in entries)


@pytest.mark.parametrize("place", ["disk", "moto"])
def test_threads_that_create_a_table_at_once_create_one(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    """Whoever loses the race opens what the winner made."""
    backend = LocalDisk(tmp_path) if place == "disk" else InStore(request.getfixturevalue(place))
    barrier = threading.Barrier(8)

    def create_it(_: int) -> RawTable:
        barrier.wait()
        opened = backend.open()
        assert isinstance(opened, RawTable)
        return opened

    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(create_it, range(8)))  # raises what any of them raised
    assert opened[0].storage.list("_delta_log") == [Path(entry_path(0)).name]
    assert len({table.table_id for table in opened}) == 1


def test_processes_that_create_tables_at_once_create_each_once(tmp_path: Path) -> None:
    """Also when nothing but the storage is between them; ten tables, for one is created too quickly to race."""
    code = (
        "import sys\n"
        "from ingestor.records import RawSchema\n"
        "from ingestor.delta.table import RawTable\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(*(RawTable(f'{sys.argv[1]}/{at}', RawSchema(), {}).table_id for at in range(10)))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ids = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(ids) == 1
    assert [creations(tmp_path / str(at)) for at in range(10)] == [1] * 10
