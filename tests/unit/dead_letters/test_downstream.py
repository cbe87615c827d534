"""What becomes of rows, over tables' logs that are written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ingestor.dead_letters.downstream import Downstream, Quarantined, Unparsed
from ingestor.delta.open import storage_of
from ingestor.observe.gauges import After
from spark_jobs.steps.raw import Position
from spark_jobs.steps.steps import FOLDER, End
from tests.support.settings import checked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

POSITION = "app/dlq"


class Log:
    """A table that is nothing but a log; each commit is made ten seconds after the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = -1

    def commit(self, rows: int = 0, *, moved: bool = False, txns: Mapping[str, int] | None = None) -> None:
        self._version += 1
        actions: list[dict[str, object]] = [{"commitInfo": {"timestamp": self._version * 10_000}}]
        actions += [{"txn": {"appId": name, "version": number}} for name, number in (txns or {}).items()]
        if rows:
            stats = json.dumps({"numRecords": rows})
            body = {"path": f"{self._version}.parquet", "size": 1, "stats": stats, "dataChange": not moved}
            actions.append({"add": {**body, "partitionValues": {}}})
        path = self.folder / "_delta_log" / f"{self._version:020d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, actions)))

    def clean(self, below: int) -> None:
        for version in range(below):
            (self.folder / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)


def parsed(checkpoint: Path, number: int, version: int) -> None:
    """Write what the jobs note when a step has ended, as they do it."""
    steps = checkpoint / FOLDER / "steps"
    steps.mkdir(parents=True, exist_ok=True)
    (steps / f"{number:010d}.json").write_text("{}")
    (steps / f"{number:010d}.end").write_text(End("run", Position(version)).to_json())


@pytest.fixture
def raw(tmp_path: Path) -> Log:
    return Log(tmp_path / "raw")


@pytest.fixture
def unparsed(raw: Log, tmp_path: Path) -> Unparsed:
    return Unparsed(storage_of(str(raw.folder), {}), storage_of(str(tmp_path / "checkpoint"), {}))


def test_what_was_never_parsed_counts_from_the_first_rows(raw: Log, unparsed: Unparsed) -> None:
    assert unparsed.since() is None
    raw.commit()
    assert unparsed.since() is None
    raw.commit(rows=5)
    raw.commit(rows=5)
    assert unparsed.since() == 10


def test_what_was_parsed_counts_no_more(raw: Log, unparsed: Unparsed, tmp_path: Path) -> None:
    """Neither do commits that bring no rows."""
    for _ in range(3):
        raw.commit(rows=5)
    parsed(tmp_path / "checkpoint", 9, 2)
    assert unparsed.since() == 20
    parsed(tmp_path / "checkpoint", 10, 3)
    assert unparsed.since() is None
    raw.commit(rows=5, moved=True)
    raw.commit(txns={"x": 1})
    assert unparsed.since() is None
    raw.commit(rows=5)
    assert unparsed.since() == 50


def test_after_log_clean_up_the_oldest_that_is_left_counts(raw: Log, unparsed: Unparsed) -> None:
    for _ in range(5):
        raw.commit(rows=5)
    raw.clean(3)
    assert unparsed.since() == 30


@pytest.fixture
def quarantine(tmp_path: Path) -> Log:
    return Log(tmp_path / "quarantine")


@pytest.fixture
def quarantined(quarantine: Log) -> Quarantined:
    return Quarantined(storage_of(str(quarantine.folder), {}), POSITION)


def test_rows_count_from_the_first_look(quarantine: Log, quarantined: Quarantined) -> None:
    """Once each; what is only moved is not new."""
    quarantine.commit(rows=7)
    quarantined.look()
    assert quarantined.rows == 0
    quarantine.commit(rows=2)
    quarantine.commit(rows=9, moved=True)
    quarantine.commit(rows=1)
    quarantined.look()
    quarantined.look()
    assert quarantined.rows == 3


def test_rows_of_a_table_that_is_made_later_count_all(quarantine: Log, quarantined: Quarantined) -> None:
    quarantined.look()
    quarantine.commit(rows=7)
    quarantined.look()
    assert quarantined.rows == 7


def test_letters_wait_until_a_publisher_moves_its_position(quarantine: Log, quarantined: Quarantined) -> None:
    quarantine.commit(rows=1)
    quarantine.commit(txns={POSITION: 0})
    quarantine.commit(rows=1)
    quarantine.commit(rows=1)
    quarantined.look()
    assert quarantined.unsent_since == 20
    quarantine.commit(txns={POSITION: 2})
    quarantined.look()
    assert quarantined.unsent_since == 30
    quarantine.commit(txns={POSITION: 3})
    quarantined.look()
    assert quarantined.unsent_since is None


def test_where_nobody_publishes_no_letter_waits(quarantine: Log, quarantined: Quarantined) -> None:
    quarantine.commit(rows=1)
    quarantined.look()
    assert quarantined.unsent_since is None


def test_ages_count_on_and_stay_when_the_store_is_away(raw: Log, quarantine: Log, tmp_path: Path) -> None:
    raw.commit(rows=1)
    quarantine.commit(txns={"app/dlq": 0})
    places = {name: str(tmp_path / name) for name in ("table", "quarantine", "checkpoint")}
    settings = checked(
        app_id="app",
        routes={"r": {"topics": ["t"], "table": str(raw.folder)}},
        parse={"r": {**places, "schema": "a INT"}},
    )
    now = 60.0
    downstream = Downstream(settings, clock=lambda: now)
    assert downstream.after() == {}
    downstream.look("r")
    quarantine.commit(rows=4)
    downstream.look("r")
    assert downstream.after() == {"r": After(60, 4, 50)}
    (tmp_path / "checkpoint").write_text("no folder")
    now = 70.0
    downstream.look("r")
    assert downstream.after() == {"r": After(70, 4, 60)}
