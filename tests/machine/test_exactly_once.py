"""Exactly once, whatever happens: hypothesis leads two or three ingestors through faults and looks for a lost record.

The processes are made of the real pipeline, lane, committer and placer; Kafka, the log and the threads are fakes that
do one thing at a time (tests/support/fakes). After every rule an independent judge reads the log.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ingestor.records import TopicPartition
from tests.support.fakes.process import ALL, APP_ID, SLEEPS_MAX, Process, World
from tests.support.fakes.table import Fault
from tests.support.judge.tampering import TAMPERINGS
from tests.support.judge.traces import Traces, entries_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPICS = {"a": 2, "b": 1}
TPS = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
MEMBERS_MAX = 3
TURNS_MAX = 300
TRACED = 40  # runs that are held to the model
T = TypeVar("T")

members = st.integers(0, MEMBERS_MAX - 1)
partitions = st.sampled_from(TPS)
patience = st.sampled_from([ALL, ALL, ALL, 0, 1, 2, 3, 5])
values = st.lists(st.sampled_from([b"text", b"", None, b"\x00\xff" * 20]), min_size=1, max_size=8)
turns = st.integers(0, 3)
steps_of_a_commit = st.sampled_from(["refresh", "attempt", "attempt", "slot", "settle", "sleep"])
interruptions = st.sampled_from(
    [
        "foreign commit",
        "foreign commit",
        "others work",
        "others go on",
        "own poll",
        "own poll",
        "expired",
        "expired, others go on",
        "expired, others go on",
        "expired, others go on, own poll",
        "delayed requests land",
        "crash",
        "rebalance, own poll, others go on",
        "retention",
    ]
)


class Ingestors(RuleBasedStateMachine):
    """Two or three processes, one group, one table."""

    traces: Traces | None = None  # where to keep what the processes tell of their steps

    def __init__(self) -> None:
        super().__init__()
        self._exit = ExitStack()
        self.world = World(TOPICS, eager=False)
        self.processes: list[Process] = []
        self.interrupted = False

    @initialize(eager=st.booleans(), strangers=st.booleans(), count=st.integers(2, MEMBERS_MAX))
    def start(self, *, eager: bool, strangers: bool, count: int) -> None:
        """Start the processes; each has landed something already."""
        world = World(TOPICS, eager=eager, traced=self.traces is not None)
        self.world = self._exit.enter_context(world.installed())
        self.world.strangers = strangers
        for tp in TPS:
            self.world.kafka.produce(tp, [b"first"] * 5)
        self.processes = [self.world.process() for _ in range(count)]
        self.all_go_on(3)

    def at(self, number: int) -> Process:
        """Return one of the processes."""
        return self.processes[number % len(self.processes)]

    # --- Kafka ------------------------------------------------------------------------------------------------------

    @rule(tp=partitions, written=values)
    def produce(self, tp: TopicPartition, written: list[bytes | None]) -> None:
        """Append records, tombstones and empty ones among them."""
        self.world.kafka.produce(tp, written)

    @rule(tp=partitions, offsets=st.integers(1, 4))
    def leave_a_gap(self, tp: TopicPartition, offsets: int) -> None:
        """Append what no reader of committed records sees: markers, aborted records."""
        self.world.kafka.skip(tp, offsets)

    @rule(tp=partitions, commit=st.booleans())
    def open_or_end_a_transaction(self, tp: TopicPartition, *, commit: bool) -> None:
        """Open a transaction, or end the one that is open."""
        if self.world.kafka.partitions[tp].held is None:
            self.world.kafka.begin(tp)
        else:
            self.world.kafka.end(tp, commit=commit)

    @rule(tp=partitions, back=st.integers(0, 10))
    def compact(self, tp: TopicPartition, back: int) -> None:
        """Take a record away that nobody need have read."""
        self.world.kafka.compact(tp, self.world.kafka.partitions[tp].high - back)

    @rule(tp=partitions, written=values, back=st.integers(0, 6))
    def lose_to_retention(self, tp: TopicPartition, written: list[bytes | None], back: int) -> None:
        """Take the oldest records of a partition away, also such as were not read yet, while others have news."""
        for each in TPS:
            self.produce(each, written)
        self._retain(tp, back)

    def _retain(self, tp: TopicPartition, back: int) -> None:
        self.world.kafka.retain_from(tp, self.world.kafka.partitions[tp].stable - back)

    # --- the group --------------------------------------------------------------------------------------------------

    @rule(owners=st.lists(members, min_size=len(TPS), max_size=len(TPS)))
    def rebalance(self, owners: list[int]) -> None:
        """Let the coordinator hand the partitions out anew."""
        names = self.world.group.members
        if names:
            self.world.group.share({tp: names[n % len(names)] for tp, n in zip(TPS, owners, strict=True)})

    @rule(who=members)
    def expire(self, who: int) -> None:
        """Let the coordinator give a process up, which goes on without knowing."""
        self.world.group.expire(self.at(who).name)

    @rule(who=members, tp=partitions, offsets=st.integers(1, 6))
    def deliver_again(self, who: int, tp: TopicPartition, offsets: int) -> None:
        """Let Kafka hand out records once more."""
        self.at(who).source.redeliver(tp, offsets)

    # --- the processes ----------------------------------------------------------------------------------------------

    @rule(who=members, patient=patience)
    def step(self, who: int, patient: int) -> None:
        """Let a poll thread make a turn; its workers only run as far as it waits for them."""
        self.at(who).step(patience=patient)

    @rule(who=members, calls=st.integers(1, 4))
    def work(self, who: int, calls: int) -> None:
        """Let a process's workers do something."""
        self.at(who).work(calls)

    @rule(who=members)
    def encode(self, who: int) -> None:
        """Let a process's files be written, but not committed."""
        if not self.at(who).dead:
            self.at(who).encoder.run()

    @rule(who=members, turns=st.integers(1, 3))
    def go_on(self, who: int, turns: int) -> None:
        """Let a process make whole turns."""
        self._feed(who, turns)

    @rule(turns=st.integers(1, 3))
    def all_go_on(self, turns: int) -> None:
        """Let everybody make whole turns."""
        for _ in range(turns):
            for process in self.processes:
                process.go()

    @rule(who=members)
    def crash(self, who: int) -> None:
        """Kill a process."""
        self.at(who).crash()

    @rule(who=members)
    @precondition(lambda self: any(process.dead for process in self.processes))
    def start_again(self, who: int) -> None:
        """Start a process in place of a dead one, which the group gives up then at the latest."""
        dead = [number for number, process in enumerate(self.processes) if process.dead]
        number = dead[who % len(dead)]
        self.world.group.expire(self.processes[number].name)
        self.processes[number] = self.world.process()

    @rule(seconds=st.sampled_from([1, 5, 61, 61, 700, 90_000]))
    def wait(self, seconds: int) -> None:
        """Let time pass: flushes by age, breakers, the next date."""
        self.world.clock.advance(seconds)

    # --- storage ----------------------------------------------------------------------------------------------------

    @rule(who=members, faults=st.lists(st.sampled_from(Fault), min_size=1, max_size=4), then=turns)
    def plan_for_attempts(self, who: int, faults: list[Fault], then: int) -> None:
        """Let the next tries to commit fail: before, after, later, or against a foreign writer."""
        self.at(who).table.faults.attempt.extend(faults)
        self._feed(who, then)

    @rule(
        who=members,
        call=st.sampled_from(["refresh", "slot", "settle"]),
        faults=st.lists(
            st.sampled_from([Fault.NONE, Fault.FAILED, Fault.ANSWER_LOST, Fault.CRASH_BEFORE, Fault.CRASH_AFTER]),
            min_size=1,
            max_size=3,
        ),
        then=turns,
    )
    def plan_for(self, who: int, call: str, faults: list[Fault], then: int) -> None:
        """Let the next calls of another kind fail."""
        getattr(self.at(who).table.faults, call).extend(faults)
        self._feed(who, then)

    @rule(who=members)
    def let_a_file_fail(self, who: int) -> None:
        """Let the next file that is begun or finished fail."""
        self.world.storage.failures.append(OSError("connection reset by peer"))
        self._feed(who, 1)
        self.world.storage.failures.clear()

    @rule(at=st.integers(0, 3))
    @precondition(lambda self: self.world.log.delayed)
    def land_delayed(self, at: int) -> None:
        """Let a delayed request arrive, which lands if its slot is still free."""
        self.world.log.land_delayed(at % len(self.world.log.delayed))

    @rule(optimize=st.booleans())
    def commit_something_foreign(self, *, optimize: bool) -> None:
        """Let another program write to the table."""
        self.world.log.write_foreign(None if optimize else {"other-app": self.world.log.version})

    @rule(
        who=members,
        plan=st.lists(st.tuples(steps_of_a_commit, interruptions), min_size=1, max_size=3),
        fault=st.sampled_from([Fault.NONE, Fault.NONE, Fault.FAILED, Fault.ANSWER_LOST, Fault.DELAYED]),
        then=turns,
    )
    def interrupt(self, who: int, plan: list[tuple[str, str]], fault: Fault, then: int) -> None:
        """Plan what comes in between the steps of a process's next commit, which may fail besides."""
        process = self.at(who)
        process.table.faults.attempt.append(fault)
        for call, what in plan:
            process.interpose(call, lambda what=what: self._interrupt(process, what))  # type: ignore[misc]
        self._feed(who, then)

    def _feed(self, who: int, turns: int) -> None:
        """Let a process make whole turns, with enough to read for a commit."""
        process = self.at(who)
        if turns:
            for tp in sorted(process.pipeline.assigned):
                self.world.kafka.produce(tp, [b"more"] * 3)
        process.go(turns)

    def _interrupt(self, process: Process, what: str) -> None:
        if self.interrupted:
            return  # one level deep is deep enough
        self.interrupted = True
        others = [each for each in self.processes if each is not process]
        actions: dict[str, Callable[[], None]] = {
            "foreign commit": self.world.log.write_foreign,
            "others work": lambda: _each(others, Process.work),
            "others go on": lambda: _each(others * 4, Process.go),
            "own poll": process.step,
            "expired": lambda: self.world.group.expire(process.name),
            "delayed requests land": self._land_all_delayed,
            "crash": process.crash,
            "rebalance": self.world.group.share,
            "retention": lambda: _each(TPS, lambda tp: self._retain(tp, 4)),
        }
        try:
            for action in what.split(", "):
                actions[action]()
        finally:
            self.interrupted = False

    def _land_all_delayed(self) -> None:
        while self.world.log.delayed:
            self.world.log.land_delayed()

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_right(self) -> None:
        """Hold the log against what Kafka committed."""
        self.world.judge.check()
        assert all(process.sleeps <= SLEEPS_MAX for process in self.processes), "something is tried again for ever"

    def teardown(self) -> None:
        """Stop all faults: every record must land, once, and nothing may stay behind."""
        try:
            if self.processes:
                self._come_to_rest()
                if self.traces is not None:
                    entries = entries_in(self.world.log.entries, APP_ID)
                    self.traces.add(f"run {len(self.traces.kept) + 1}", self.world.recorder.told, entries)
        finally:
            self._exit.close()

    def _come_to_rest(self) -> None:
        self.world.storage.failures.clear()
        for process in self.processes:
            process.table.faults.clear()
            process.between.clear()
            if process.dead:
                self.world.group.expire(process.name)
        for tp in TPS:
            self.world.kafka.end(tp, commit=True)
        alive = [process for process in self.processes if not process.dead] or [self.world.process()]
        self._land_all_delayed()
        for _ in range(TURNS_MAX):
            for process in alive:
                process.go()
            self.world.clock.advance(31)
            self.the_log_is_right()
            if self._at_rest(alive):
                break
        self.world.judge.check_all_landed()
        assert self._at_rest(alive), f"lag remains: {[(p.name, p.lane.positions, p.told.events[-5:]) for p in alive]}"
        for process in alive:
            assert process.budget.used == 0, "memory is still counted that nobody holds"

    def _at_rest(self, alive: list[Process]) -> bool:
        ends = {tp: partition.stable for tp, partition in self.world.kafka.partitions.items()}
        held = [tp for process in alive for tp in process.pipeline.assigned]
        return (
            sorted(held) == sorted(TPS)
            and all(process.lane.idle and not len(process.store) for process in alive)
            and all(process.pipeline.reached(ends) for process in alive if process.pipeline.assigned)
        )


def _each(things: list[T], action: Callable[[T], object]) -> None:
    for thing in things:
        action(thing)


_SETTINGS = settings(
    max_examples=4 * settings().max_examples,  # an example takes some 30 ms
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
# Shrinking takes minutes, and a mutant may never end.
pytestmark = pytest.mark.timeout({"soak": 0, "mutants": 300}.get(settings.get_current_profile_name(), 900))


class TestExactlyOnce(Ingestors.TestCase):  # type: ignore[misc,valid-type]
    """What every run of the tests looks at."""

    settings = _SETTINGS


def test_what_the_processes_do_is_a_behaviour_of_the_model(tmp_path: Path, summary: Callable[[str], None]) -> None:
    """Each step that they tell is one of docs/model/Commit.tla; a trace that was tampered with is none."""
    traces = Traces()

    class Traced(Ingestors):
        """Runs that are kept."""

    Traced.traces = traces
    run_state_machine_as_test(Traced, settings=settings(_SETTINGS, max_examples=TRACED))
    honest = list(traces.kept)
    forged = {name: forge(honest) for name, forge in TAMPERINGS.items()}
    for name, trace in forged.items():
        traces.add(name, trace.told, trace.entries)
    verdict = traces.verdict(tmp_path)
    assert verdict.rejected.keys() == forged.keys(), verdict.rejected
    assert sorted(verdict.accepted) == sorted(trace.name for trace in honest)
    summary(f"state machine: {verdict.text(honest)}, and those were tampered with")


@pytest.mark.soak
@pytest.mark.timeout(0)
class TestExactlyOnceForLong(Ingestors.TestCase):  # type: ignore[misc,valid-type]
    """The same, for a quarter of an hour or more."""

    settings = settings(_SETTINGS, max_examples=20_000)
