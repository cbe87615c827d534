"""Maintenance beside the commits: a checkpoint, then expired entries go, but none that the parse has yet to read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from ingestor.config.load import check
from ingestor.delta.deltalog import txns_at
from ingestor.delta.storage import LocalStorage
from ingestor.delta.table import RawTable
from ingestor.delta.table_log import CHECKPOINT_EVERY, NO_HOOKS
from ingestor.ingest.maintenance import Maintenance, retention_seconds, unread_from
from ingestor.records import RawSchema
from tests.support.fakes.worker import InstantWorker

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRIES = 12
DAY = 86_400


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.checkpoints: list[int] = []
        self.failed: list[str] = []
        self.kept: list[str] = []

    def checkpointed(self, route: str, version: int) -> None:  # noqa: ARG002
        self.checkpoints.append(version)

    def checkpoint_failed(self, route: str, why: str) -> None:  # noqa: ARG002
        self.failed.append(why)

    def log_kept(self, route: str, why: str) -> None:  # noqa: ARG002
        self.kept.append(why)


@pytest.fixture
def table(tmp_path: Path) -> RawTable:
    """A table with a checkpoint in the middle of its log."""
    table = RawTable(str(tmp_path / "raw"), RawSchema(), {})
    for version in range(1, ENTRIES + 1):
        table.attempt((), {"a": version}, {"commit_id": f"c{version}"})
        table.refresh()
        if version == ENTRIES // 2:
            table.checkpoint()
    return table


def age(table: RawTable, *, days: float, up_to: int) -> None:
    """Let the entries and checkpoints up to a version be so old, in what the file system and the entries say."""
    then = time.time() - days * DAY
    for path in (Path(table.uri) / "_delta_log").iterdir():
        if path.name[:20].isdecimal() and int(path.name[:20]) <= up_to:
            if path.suffix == ".json":
                first, *rest = path.read_text().splitlines()
                info = json.loads(first)
                info["commitInfo"]["timestamp"] = int(then * 1000)
                path.write_text("\n".join([json.dumps(info), *rest]))
            os.utime(path, (then, then))


def maintain(table: RawTable, tmp_path: Path, *, parse: Mapping[str, Any] | None = None, **route: Any) -> Told:
    document: dict[str, Any] = {
        "app_id": "shop",
        "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"},
        "routes": {"orders": {"topics": ["orders"], "table": table.uri, **route}},
    }
    if parse is not None:
        document["parse"] = {"orders": parse}
    told = Told()
    loaded = check(document, tmp_path / "orders.yaml", {})
    Maintenance(loaded, "orders", table, worker=InstantWorker(), watcher=told).run()
    return told


def entries(table: RawTable) -> list[int]:
    names = os.listdir(Path(table.uri) / "_delta_log")  # noqa: PTH208
    return sorted(int(name[:20]) for name in names if name.endswith(".json"))


def test_expired_entries_go_and_the_table_is_the_same(table: RawTable, tmp_path: Path) -> None:
    """Those behind the checkpoint stay, and so does all that is younger."""
    before = txns_at(table.storage, ENTRIES)
    age(table, days=31, up_to=ENTRIES // 2 + 2)
    told = maintain(table, tmp_path)
    assert told.checkpoints == [ENTRIES]
    assert told.kept == told.failed == []
    assert entries(table) == [*range(ENTRIES // 2, ENTRIES + 1)]
    assert txns_at(table.storage, ENTRIES) == before
    table.refresh()
    again = RawTable(table.uri, RawSchema(), {})
    assert (again.version, again.txns) == (ENTRIES, before)


@pytest.mark.parametrize("route", [{"clean_log": False}, {}], ids=["switched off", "young"])
def test_nothing_goes_that_is_to_stay(table: RawTable, tmp_path: Path, route: Mapping[str, Any]) -> None:
    """Neither where a person says so, nor before its time."""
    age(table, days=31 if route else 29, up_to=ENTRIES)
    told = maintain(table, tmp_path, **route)
    assert told.checkpoints == [ENTRIES]
    assert told.kept == []
    assert entries(table) == [*range(ENTRIES + 1)]


def keep_for(table: RawTable, interval: str) -> None:
    """Set the table's retention, without what delta-rs cleans up right then."""
    properties = {"delta.logRetentionDuration": interval}
    DeltaTable(table.uri).alter.set_table_properties(properties, post_commithook_properties=NO_HOOKS)


@pytest.mark.parametrize(("interval", "oldest"), [("interval 2 days", ENTRIES + 1), ("interval 1 week", 0)])
def test_the_table_s_own_retention_counts(table: RawTable, tmp_path: Path, interval: str, oldest: int) -> None:
    """`delta.logRetentionDuration`, as for every other program."""
    keep_for(table, interval)
    age(table, days=3, up_to=ENTRIES)
    maintain(table, tmp_path)
    assert entries(table)[0] == oldest


@pytest.mark.parametrize("interval", ["interval 59 minutes", "interval 0 days"])
def test_a_retention_that_a_slow_commit_could_outlast_is_not_acted_on(
    table: RawTable, tmp_path: Path, interval: str
) -> None:
    """A slot that is free again would take an entry that was compared with the one before it long ago."""
    keep_for(table, interval)
    age(table, days=3, up_to=ENTRIES)
    told = maintain(table, tmp_path)
    assert interval in told.kept[0]
    assert entries(table)[0] == 0


def test_intervals() -> None:
    """As Delta writes them."""
    key = "delta.logRetentionDuration"
    assert retention_seconds({}) == 30 * DAY
    assert retention_seconds({key: "interval 1 week"}) == 7 * DAY
    assert retention_seconds({key: "INTERVAL  36  HOURS"}) == 36 * 3600
    assert retention_seconds({key: "sometime"}) is None


def test_a_failed_checkpoint_removes_nothing(table: RawTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand for what goes."""

    def fail() -> int:
        raise OSError("no space")

    monkeypatch.setattr(table, "checkpoint", fail)
    age(table, days=31, up_to=ENTRIES)
    told = maintain(table, tmp_path)
    assert told.failed == ["no space"]
    assert entries(table) == [*range(ENTRIES + 1)]


def test_a_version_that_has_a_checkpoint_already_is_fine(table: RawTable, tmp_path: Path) -> None:
    """Another program may have written it."""
    DeltaTable(table.uri).create_checkpoint()
    told = maintain(table, tmp_path)
    assert told.checkpoints == [ENTRIES]
    assert told.failed == []


def test_it_runs_every_so_many_commits(table: RawTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lands that version does it."""
    runs: list[int] = []
    monkeypatch.setattr(Maintenance, "run", lambda _self: runs.append(1))
    document = {
        "app_id": "shop",
        "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"},
        "routes": {"orders": {"topics": ["orders"], "table": table.uri}},
    }
    loaded = check(document, tmp_path / "orders.yaml", {})
    maintenance = Maintenance(loaded, "orders", table, worker=InstantWorker(), watcher=Told())
    for version in range(1, 2 * CHECKPOINT_EVERY + 1):
        maintenance.landed(version)
    assert len(runs) == 2


# --- what the parse has yet to read ---


def checkpoint(tmp_path: Path, **files: object) -> Path:
    """Write a checkpoint of the Spark jobs; names are steps with `_json` or `_end`."""
    folder = tmp_path / "checkpoint" / "_spark_jobs" / "steps"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name.removeprefix("s").replace("_", ".")).write_text(json.dumps(content))
    return tmp_path / "checkpoint"


def at(version: int, **more: object) -> dict[str, object]:
    return {"version": version, "index": 0, "snapshot": False, **more}


PARSED = {
    "never": ({}, None),
    "ended": ({"s0000000003_json": {"begin": at(1), "batch": None}, "s0000000003_end": {"position": at(5)}}, 5),
    "under way": ({"s0000000002_json": {}, "s0000000003_json": {"begin": at(4), "batch": {"end": at(9)}}}, 4),
    "the first one": ({"s0000000000_json": {"begin": None, "batch": {"end": at(7, snapshot=True)}}}, 7),
    "reset": ({"s0000000003_json": {"begin": None, "batch": None}, "s0000000003_end": {"position": None}}, None),
}


@pytest.mark.parametrize(("files", "unread"), PARSED.values(), ids=PARSED)
def test_how_far_the_parse_is(tmp_path: Path, files: Mapping[str, object], unread: int | None) -> None:
    """By the steps that it has claimed and ended."""
    assert unread_from(LocalStorage(checkpoint(tmp_path, **files))) == unread


def test_how_far_the_parse_is_by_its_own_steps(tmp_path: Path) -> None:
    """The jobs write what is read here."""
    steps = pytest.importorskip("spark_jobs.steps.steps")
    tables = steps.Tables("r", "s", "q")
    batch = steps.Batch(("f",), 9, deleted=False, end=steps.Position(10))
    step = steps.Step(4, "parse", "a", "me", tables, steps.Position(8), batch=batch)
    place = checkpoint(tmp_path)
    (place / "_spark_jobs/steps/0000000004.json").write_text(step.to_json())
    assert unread_from(LocalStorage(place)) == 8
    (place / "_spark_jobs/steps/0000000004.end").write_text(steps.End("me", steps.Position(10)).to_json())
    assert unread_from(LocalStorage(place)) == 10


def test_what_the_parse_has_yet_to_read_stays(table: RawTable, tmp_path: Path) -> None:
    """However old it is: else its rows would never reach silver."""
    age(table, days=31, up_to=ENTRIES)
    place = checkpoint(tmp_path, s0000000001_json={}, s0000000001_end={"position": at(3)})
    parse = {"checkpoint": str(place), "schema": "a STRING"}
    told = maintain(table, tmp_path, parse=parse)
    assert "has not read version 3 yet" in told.kept[0]
    assert entries(table) == [*range(ENTRIES + 1)]
    end = place / "_spark_jobs/steps/0000000001.end"
    end.write_text(json.dumps({"position": at(ENTRIES + 1)}))
    assert maintain(table, tmp_path, parse=parse).kept == []
    assert entries(table)[0] > 0


def test_what_is_younger_than_the_parse_s_position_may_wait(table: RawTable, tmp_path: Path) -> None:
    """A parse that is some hours behind keeps nobody from cleaning."""
    age(table, days=31, up_to=ENTRIES // 2 + 2)
    place = checkpoint(tmp_path, s0000000001_json={}, s0000000001_end={"position": at(ENTRIES // 2 + 3)})
    assert maintain(table, tmp_path, parse={"checkpoint": str(place), "schema": "a STRING"}).kept == []
    assert entries(table)[0] == ENTRIES // 2


def test_where_the_parse_s_checkpoint_can_not_be_read_nothing_goes(table: RawTable, tmp_path: Path) -> None:
    """Nobody knows what it needs."""
    age(table, days=31, up_to=ENTRIES)
    place = checkpoint(tmp_path, s0000000001_json={})
    (place / "_spark_jobs/steps/0000000001.end").write_text("{")
    told = maintain(table, tmp_path, parse={"checkpoint": str(place), "schema": "a STRING"})
    assert told.kept
    (tmp_path / "old" / "offsets").mkdir(parents=True)
    (tmp_path / "old" / "offsets" / "0").write_text("v1")
    told = maintain(table, tmp_path, parse={"checkpoint": str(tmp_path / "old"), "schema": "a STRING"})
    assert "earlier version" in told.kept[0]
    assert entries(table)[0] == 0
