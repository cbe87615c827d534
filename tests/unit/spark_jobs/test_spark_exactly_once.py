"""Steps of a route without Spark: who claims one, who takes it up, whose commit it is, and what raw gives to it."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.config.parse import ParseSettings
from ingestor.errors import RefusedError
from spark_jobs.plan.plan import make
from spark_jobs.rows.balance import Balance
from spark_jobs.runtime.places import Commit
from spark_jobs.steps import checkpoint, legacy, raw, reset, tables, work
from spark_jobs.steps.raw import Batch, Position
from spark_jobs.steps.steps import End, Step, Superseded, Tables
from spark_jobs.steps.tables import Landed, Sink
from tests.support.fakes.files import MemoryFiles

if TYPE_CHECKING:
    from spark_jobs.steps.checkpoint import Checkpoint

KNOWN = Tables("r", "s", "q")
PLAN = make("events", ParseSettings.model_validate({"schema": "a STRING"}))
OTHER = make("events", ParseSettings.model_validate({"schema": "a STRING", "processing_version": "2.0"}))
ROWS = Balance(raw=3, silver=3)


def step(number: int = 0, by: str = "me", **more: Any) -> Step:
    batch = Batch((f"{number}.parquet",), number, deleted=False, end=Position(number + 1))
    found = Step(number, "parse", "shop/1", by, KNOWN, Position(number), PLAN, batch)
    return dataclasses.replace(found, **more)


class Disk:
    """A checkpoint in memory, with as many runs at it as one likes."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def run(self) -> Checkpoint:
        session: Any = self.texts
        return checkpoint.Checkpoint(session, "checkpoint", "shop/")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    for module in (checkpoint, legacy):
        monkeypatch.setattr(module, "Files", MemoryFiles)
    return Disk()


def test_of_two_claims_the_first_stands(disk: Disk) -> None:
    one, other = disk.run(), disk.run()
    assert one.claim(step(by="one"))
    assert not other.claim(step(by="other"))
    head = other.head()
    assert head is not None
    assert head.open is not None
    assert (head.open.by, head.position) == ("one", Position(0))


def test_of_two_ends_the_first_counts(disk: Disk) -> None:
    """So its rows are told once, and reading goes on where it says."""
    assert disk.run().claim(step())
    assert disk.run().end(step(), End("one", Position(1)))
    assert not disk.run().end(step(), End("other", Position(9)))
    head = disk.run().head()
    assert head is not None
    assert (head.open, head.number, head.position) == (None, 0, Position(1))


def test_who_slept_through_many_steps_claims_none_of_them(disk: Disk) -> None:
    """The file of its number may have been cleaned away since."""
    for number in range(25):
        assert disk.run().claim(step(number))
        disk.run().end(step(number), End("me", Position(number + 1)))
    with pytest.raises(Superseded):
        disk.run().claim(step(1))


@dataclasses.dataclass
class Table:
    """A table whose commits are told; a step lands in it by being fenced off."""

    there: dict[int, Landed] = dataclasses.field(default_factory=dict)

    def landed(self, step: Step) -> Landed | None:
        return self.there.get(step.number)

    def fence(self, step: Step, *, void: bool = False) -> Landed:
        return self.there.setdefault(step.number, Landed(void=void))


class Route:
    """A route with its job: raw has one batch for each step up to `batches`."""

    name = "events"
    prefix = "shop/"
    settings = SimpleNamespace(checkpoint="checkpoint", table="s", quarantine="q")

    def __init__(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        self._disk = disk
        self.batches, self.deleted = 0, False
        self.silver, self.quarantine = Table(), Table()
        self.done: list[Step] = []
        monkeypatch.setattr(work, "known_tables", lambda *_: KNOWN)
        monkeypatch.setattr(work, "prepare", lambda *_: self._job)

    def run(self, plan: Any = PLAN) -> work.Work:
        rows = SimpleNamespace(next=self._next, rows=lambda _: None, deleted_since=lambda _: self.deleted)
        self._job = SimpleNamespace(
            plan=plan,
            registry_url=None,
            raw=rows,
            silver=self.silver,
            quarantine=self.quarantine,
            process=self._process,
        )
        session: Any = self._disk.texts
        route: Any = self
        return work.Work(session, route)

    def _next(self, begin: Position | None, _newest: int) -> Batch | None:
        number = 0 if begin is None else begin.version
        return step(number).batch if number < self.batches else None

    def _process(self, step: Step) -> Balance:
        self.done.append(step)
        return ROWS


@pytest.fixture
def route(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Route:
    return Route(disk, monkeypatch)


def test_an_open_step_is_ended_before_another_is_claimed(disk: Disk, route: Route) -> None:
    route.batches = 2
    assert disk.run().claim(step(by="another"))
    run = route.run()
    assert [run.parse_next(9), run.parse_next(9), run.parse_next(9)] == [ROWS, ROWS, None]
    assert [(each.number, each.by == "another") for each in route.done] == [(0, True), (1, False)]


def test_a_step_that_has_begun_to_land_is_ended_by_its_own_plan(disk: Disk, route: Route) -> None:
    assert disk.run().claim(step())
    route.quarantine.there[0] = Landed(rows=1)
    assert route.run(OTHER).take_up("parse") == ROWS
    assert [each.plan for each in route.done] == [PLAN]


def test_a_step_whose_silver_landed_first_is_not_given_up(disk: Disk, route: Route) -> None:
    """All its rows may have been valid; then quarantine has no commit of it."""
    assert disk.run().claim(step())
    route.silver.there[0] = Landed(rows=3)
    assert route.run(OTHER).take_up("parse") == ROWS


def test_a_step_that_another_run_has_begun_to_give_up_is_given_up(disk: Disk, route: Route) -> None:
    """Also by a run that has its plan: its other half can't land any more."""
    assert disk.run().claim(step())
    route.quarantine.there[0] = Landed(void=True)
    assert route.run().take_up("parse") == Balance()
    assert (route.done, route.silver.there) == ([], {0: Landed(void=True)})


@pytest.mark.parametrize("why", ["plan", "rows"])
def test_a_step_that_has_not_landed_is_given_up(disk: Disk, route: Route, why: str) -> None:
    """By another plan, or where its rows were deleted since; nothing of it can land any more."""
    assert disk.run().claim(step())
    route.deleted = why == "rows"
    assert route.run(OTHER if why == "plan" else PLAN).take_up("parse") == Balance()
    assert (route.done, route.silver.there, route.quarantine.there) == (
        [],
        {0: Landed(void=True)},
        {0: Landed(void=True)},
    )
    head = disk.run().head()
    assert head is not None
    assert (head.open, head.position) == (None, Position(0))


def test_a_reset_is_claimed_before_a_row_is_gone(disk: Disk, route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed then, the next job of the route ends it."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reset, "known_tables", lambda *_: KNOWN)
    monkeypatch.setattr(reset, "process", killed)
    session: Any = disk.texts
    ours: Any = route
    with pytest.raises(KeyboardInterrupt):
        reset.reset(session, ours, empty=True)
    head = disk.run().head()
    assert head is not None
    assert head.open is not None
    assert (head.open.kind, head.open.empty) == ("reset", True)


@pytest.mark.parametrize(
    ("commit", "outcome"),
    [
        ((3, "ours"), Landed(rows=5, duplicates=2)),
        ((3, "of another plan"), RefusedError),
        ((2, "ours"), None),
        ((4, "ours"), Superseded),
        (None, None),
    ],
)
def test_a_commit_is_a_step_s_by_its_number_and_its_claim(
    monkeypatch: pytest.MonkeyPatch, commit: tuple[int, str] | None, outcome: Any
) -> None:
    claimed = step(3)
    told = []
    if commit is not None:
        number, of = commit
        said = {"claim": claimed.claim if of == "ours" else "another", "duplicates": 2}
        told.append(Commit(7, {"operationMetrics": {"numOutputRows": "5"}}, {"shop/1": number}, said))
    log = SimpleNamespace(txn=lambda _: commit[0] if commit else None, commits=lambda: told)
    monkeypatch.setattr(tables, "TableLog", lambda *_: log)
    session: Any = None
    sink = Sink(session, "silver")
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            sink.landed(claimed)
    else:
        assert sink.landed(claimed) == outcome


def entry(*adds: str, removes: tuple[str, ...] = (), moved: bool = False) -> str:
    lines = [{"add": {"path": path, "size": 1, "dataChange": not moved}} for path in adds]
    lines += [{"remove": {"path": path, "dataChange": not moved}} for path in removes]
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)


def batches(monkeypatch: pytest.MonkeyPatch, *log: str) -> list[tuple[tuple[str, ...], tuple[str, ...], bool]]:
    """Return the files, the replaced files and whether rows are deleted, of each batch that follows version 0."""
    texts = dict(enumerate(log, start=1))
    newest = len(log)
    monkeypatch.setattr(raw, "Files", lambda _: None)
    monkeypatch.setattr(raw, "TableLog", lambda *_: SimpleNamespace(version=newest, entry=texts.get))
    session: Any = None
    table, at, found = raw.Raw(session, "raw", "keep"), Position(1), []
    while (batch := table.next(at, newest)) is not None:
        found.append((batch.files, batch.replaced, batch.deleted))
        at = batch.end
    return found


def test_raw_gives_what_was_added_and_passes_over_what_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [entry("a"), entry("b"), entry("ab", removes=("a", "b"), moved=True), entry("c", "d")]
    assert batches(monkeypatch, *log) == [(("a", "b", "c", "d"), (), False)]


@pytest.mark.parametrize("files", [1, raw.BATCH_FILES])
def test_an_entry_that_rewrites_files_is_a_batch_of_its_own(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Compared with the files that it removes, not with those of another entry, however it is cut."""
    monkeypatch.setattr(raw, "BATCH_FILES", files)
    log = [entry("a"), entry("b", "c", removes=("a",)), entry(), entry("d", removes=("b",)), entry("e")]
    found = batches(monkeypatch, *log)
    assert {(file, replaced) for each, replaced, _ in found for file in each} == {
        ("a", ()),
        ("b", ("a",)),
        ("c", ("a",)),
        ("d", ("b",)),
        ("e", ()),
    }
    assert [deleted for *_, deleted in found[:-1]] == [True] * (len(found) - 1)


def test_rows_that_are_deleted_after_a_batch_are_not_read_from_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert batches(monkeypatch, entry("a"), entry("b"), entry(removes=("a",))) == [(("a", "b"), (), True)]
