"""The committer: every arrow of the picture in its docstring, over a log that fails as planned."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.config.settings import OccSettings, RetrySettings
from ingestor.delta.guards import Answer, Guards
from ingestor.errors import ConfigError, Fenced, OccExhaustedError, RefusedError
from ingestor.ingest.breaker import Breaker, BreakerState
from ingestor.ingest.committer import Committer, Landed, make_patience, system_rng
from ingestor.ingest.put import Outcome, waits_between
from ingestor.ingest.stager import set_positions
from ingestor.ledger import DEFAULT_TEMPLATE, KDI_TEMPLATE, AppIds
from ingestor.records import TopicPartition
from tests.support.fakes.staging import stage
from tests.support.fakes.storage import MemoryStorage
from tests.support.fakes.table import Crash, FakeLog, FakeTable, Fault
from tests.support.fakes.worker import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestor.ingest.stager import Staged

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Bench:
    """A committer on a fake table, and what it told and did."""

    def __init__(
        self,
        *,
        max_retries: int = 3,
        retries: int = 1,
        failures: int = 2,
        beside: Bench | None = None,
        ids: AppIds | None = None,
        **parts: Any,
    ) -> None:
        self.log: FakeLog = FakeLog() if beside is None else beside.log
        self.storage: MemoryStorage = MemoryStorage() if beside is None else beside.storage
        self.clock = FakeClock()
        self.table = FakeTable(self.log, self.storage, hook=self._hook)
        self.outcomes: list[Outcome] = []
        self.slept: list[float] = []
        self.states: list[BreakerState] = []
        self.hooks: dict[str, Callable[[], None]] = {}
        self.breaker = Breaker(
            failures=failures, open_seconds=60, successes=1, clock=self.clock, on_change=self.states.append
        )
        patience = make_patience(
            RetrySettings(max_retries=retries, base_seconds=1, max_seconds=8, jitter=0),
            breaker=self.breaker,
            sleep=self._sleep,
            rng=random.Random(1),
        )
        self.committer = Committer(
            self.table,
            Guards("route", "memory", ids or AppIds(DEFAULT_TEMPLATE, "app")),
            occ=OccSettings(max_retries=max_retries, base_seconds=0.1, max_seconds=1),
            patience=patience,
            clock=self.clock,
            on_outcome=self.outcomes.append,
            **parts,
        )

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 1_000, "this is tried again for ever"
        self.clock.advance(seconds)

    def _hook(self, call: str) -> None:
        self.hooks.get(call, lambda: None)()

    def plan(self, call: str, *faults: Fault) -> None:
        getattr(self.table.faults, call).extend(faults)

    def stage(self, *offsets: int, built_on: int | None = None) -> Staged:
        return stage(self.storage, [(A0, offset) for offset in offsets], chain={A0: built_on})

    def commit(self, staged: Staged, **info: Any) -> Landed:
        return self.committer.land(staged, info)

    def answer(self, tp: TopicPartition, *, to: int, answer: Answer = Answer.SET) -> None:
        """Let a person set a txn."""
        before = AppIds(DEFAULT_TEMPLATE, "app").look_up(FakeTable(self.log, self.storage).txns, [tp])
        self.committer.land(set_positions({tp: to}, before, answer=answer), {"operation_kind": "set"})

    def others_commit(self, last: int) -> None:
        """Let another ingestor of the same app move the txn."""
        other = FakeTable(self.log, self.storage)
        other.attempt((), {"app/a/0": last}, {"commit_id": "other"})

    @property
    def ids(self) -> list[str]:
        return [entry.commit_id for entry in self.log.entries[1:]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_batch_lands_with_its_txn_its_file_and_its_commit_id(bench: Bench) -> None:
    """All in one entry, at the version right after the one that was compared."""
    staged = bench.stage(0, 1, 4)
    landed = bench.commit(staged, operation_kind="flush")
    assert landed == Landed(version=1, outcome=Outcome.LANDED, conflicts=0, seconds=0.0)
    entry = bench.log.entries[1]
    assert entry.files == staged.files
    assert entry.txns == {"app/a/0": 4, "ingestor:origin/app/a/0/a//": 0}
    said = {"app_id": "app", "route": "route", "operation_kind": "flush", "commit_id": staged.commit_id}
    assert entry.info == said
    assert bench.outcomes == [Outcome.LANDED]


def test_a_commit_looks_at_the_newest_version_and_settles_what_landed(bench: Bench) -> None:
    """Refresh, then compare, then put; it returns only when the entry is durable."""
    bench.commit(bench.stage(0))
    assert bench.table.calls == ["refresh", "holding", "attempt", "settle"]


def test_batches_follow_each_other(bench: Bench) -> None:
    """Each builds on the txn of the one before; 0 is one like any other."""
    bench.commit(bench.stage(0))
    bench.commit(bench.stage(1, built_on=0))
    assert bench.log.entries[2].txns == {"app/a/0": 1}


@pytest.mark.parametrize(("built_on", "now"), [(None, 0), (None, -1), (0, 1), (5, 4), (-1, 0), (-1, None), (0, None)])
def test_a_batch_that_was_built_on_another_txn_is_fenced(bench: Bench, built_on: int | None, now: int | None) -> None:
    """Higher, lower, gone or new: whatever the txn is, it must be the very same; None, -1 and 0 differ."""
    if now is not None:
        bench.others_commit(now)
    with pytest.raises(Fenced, match="a:0"):
        bench.commit(bench.stage(9, built_on=built_on))
    assert bench.outcomes == [Outcome.FENCED]
    assert "attempt" not in bench.table.calls
    assert bench.ids == ([] if now is None else ["other"])


def test_one_moved_partition_fences_the_whole_batch(bench: Bench) -> None:
    """Its file can't be taken apart."""
    bench.others_commit(3)
    staged = stage(bench.storage, [(A0, 4), (A1, 0)], chain={A0: 2})
    with pytest.raises(Fenced, match="a:0 is at 3, not 2"):
        bench.commit(staged)


def test_a_txn_that_moves_between_compare_and_put_is_noticed(bench: Bench) -> None:
    """The other took our slot: a conflict, and then the next comparison fences us."""
    bench.hooks["attempt"] = lambda: bench.others_commit(0) if bench.log.version == 0 else None
    with pytest.raises(Fenced):
        bench.commit(bench.stage(0))
    assert bench.outcomes == [Outcome.CONFLICT, Outcome.FENCED]
    assert bench.ids == ["other"]


def test_a_lost_answer_is_no_failure(bench: Bench) -> None:
    """The slot holds our commit id: landed, and not put a second time."""
    bench.plan("attempt", Fault.ANSWER_LOST)
    staged = bench.stage(0)
    landed = bench.commit(staged)
    assert [landed.outcome, landed.version] == [Outcome.LANDED_UNANSWERED, 1]
    assert bench.ids == [staged.commit_id]
    assert bench.outcomes == [Outcome.LANDED_UNANSWERED]
    assert bench.slept == []


def test_a_lost_answer_and_a_failing_look_are_no_failure(bench: Bench) -> None:
    """The next try goes for the same slot, loses it to ourselves, and finds that out."""
    bench.plan("attempt", Fault.ANSWER_LOST)
    bench.plan("slot", Fault.FAILED, Fault.FAILED)
    staged = bench.stage(0)
    assert bench.commit(staged).outcome is Outcome.LANDED_UNANSWERED
    assert bench.ids == [staged.commit_id]


def test_a_foreign_commit_is_a_conflict_and_we_take_the_next_slot(bench: Bench) -> None:
    """Another app's commit or an OPTIMIZE moved none of our txns."""
    bench.plan("attempt", Fault.CONFLICT, Fault.CONFLICT)
    staged = bench.stage(0)
    landed = bench.commit(staged)
    assert [landed.outcome, landed.version, landed.conflicts] == [Outcome.LANDED, 3, 2]
    assert bench.ids == ["", "", staged.commit_id]
    assert bench.outcomes == [Outcome.CONFLICT, Outcome.CONFLICT, Outcome.LANDED]
    assert bench.table.calls.count("refresh") == 3


def test_an_empty_slot_is_tried_again(bench: Bench) -> None:
    """Nothing is there: the same entry, the same slot, after a wait."""
    bench.plan("attempt", Fault.FAILED)
    staged = bench.stage(0)
    assert bench.commit(staged).version == 1
    assert bench.table.calls == ["refresh", "holding", "attempt", "slot", "attempt", "settle"]
    assert bench.slept == [1]


def test_an_empty_slot_is_never_left_for_another(bench: Bench) -> None:
    """A delayed request may fill it: having moved on, the rows would stand twice."""
    bench.plan("attempt", Fault.DELAYED, Fault.NONE)
    arrive = iter([False, True])

    def before_an_attempt() -> None:
        if next(arrive):
            bench.log.land_delayed()

    bench.hooks["attempt"] = before_an_attempt
    staged = bench.stage(0)
    landed = bench.commit(staged)
    assert [landed.outcome, landed.version] == [Outcome.LANDED_UNANSWERED, 1]
    assert bench.ids == [staged.commit_id]


def test_a_delayed_request_that_finds_its_slot_taken_is_gone(bench: Bench) -> None:
    """It can only ever land at the version that was compared."""
    bench.plan("attempt", Fault.DELAYED, Fault.CONFLICT)
    staged = bench.stage(0)
    assert bench.commit(staged).version == 2
    assert not bench.log.land_delayed()
    assert bench.ids == ["", staged.commit_id]


def test_a_look_that_finds_nothing_does_not_refresh_the_handle(bench: Bench) -> None:
    """Otherwise the next try would stand on txns that nobody compared."""
    bench.plan("attempt", Fault.FAILED)
    second_try = iter([False, True])

    def take_the_slot_before_the_second_try() -> None:
        if next(second_try):
            bench.others_commit(0)

    bench.hooks["attempt"] = take_the_slot_before_the_second_try
    with pytest.raises(Fenced):
        bench.commit(bench.stage(0))
    assert bench.ids == ["other"]


@pytest.mark.parametrize("max_retries", [0, 1, 5])
def test_conflicts_are_retried_so_often_and_then_it_is_enough(max_retries: int) -> None:
    """One try and `occ.max_retries` more; nothing of ours is in the log then."""
    bench = Bench(max_retries=max_retries)
    bench.plan("attempt", *[Fault.CONFLICT] * (max_retries + 1))
    with pytest.raises(OccExhaustedError) as exhausted:
        bench.commit(bench.stage(0))
    assert exhausted.value.exit_code == 5
    assert ("won 1 slot of" if max_retries == 0 else f"won {max_retries + 1} slots of") in exhausted.value.message
    assert bench.outcomes == [Outcome.CONFLICT] * (max_retries + 1) + [Outcome.FAILED]
    assert bench.table.calls.count("attempt") == max_retries + 1
    assert set(bench.ids) == {""}


def test_a_commit_may_land_with_its_last_retry(bench: Bench) -> None:
    """As many conflicts as there are retries are not too many."""
    bench.plan("attempt", *[Fault.CONFLICT] * 3)
    assert bench.commit(bench.stage(0)).conflicts == 3


def test_conflicts_are_waited_out_longer_and_longer() -> None:
    """With full jitter below 0.1, 0.2, 0.4 … seconds, never more than the maximum."""
    bench = Bench(max_retries=7)
    bench.plan("attempt", *[Fault.CONFLICT] * 7)
    bench.commit(bench.stage(0))
    limits = [0.1, 0.2, 0.4, 0.8, 1, 1, 1]
    assert len(bench.slept) == len(limits)
    assert all(0 <= wait <= limit for wait, limit in zip(bench.slept, limits, strict=True))
    assert len(set(bench.slept)) == len(limits)


def test_conflicts_are_no_failures_of_the_store(bench: Bench) -> None:
    """It answered; the breaker stays closed."""
    bench.plan("attempt", *[Fault.CONFLICT] * 3)
    bench.commit(bench.stage(0))
    assert bench.states == []


def test_failures_open_the_breaker_and_the_commit_waits_behind_it(bench: Bench) -> None:
    """Two rounds of one try and one retry; then a minute of rest, a probe, and the commit lands in the same slot."""
    bench.plan("attempt", *[Fault.FAILED] * 4)
    staged = bench.stage(0)
    assert bench.commit(staged).version == 1
    assert bench.states == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
    assert bench.slept == [1, 1, 60]
    assert bench.ids == [staged.commit_id]


def test_a_failed_probe_keeps_the_breaker_open(bench: Bench) -> None:
    """Another minute, without the usual retries."""
    bench.plan("attempt", *[Fault.FAILED] * 5)
    bench.commit(bench.stage(0))
    assert bench.slept == [1, 1, 60, 60]


def test_a_failing_refresh_is_waited_out(bench: Bench) -> None:
    """Nothing is put before the txns could be compared."""
    bench.plan("refresh", Fault.FAILED, Fault.ANSWER_LOST)
    assert bench.commit(bench.stage(0)).version == 1
    assert bench.table.calls == ["refresh", "refresh", "refresh", "holding", "attempt", "settle"]


def test_a_failing_sync_is_waited_out(bench: Bench) -> None:
    """It landed, but it is not told before it is durable."""
    bench.plan("settle", Fault.FAILED, Fault.ANSWER_LOST)
    staged = bench.stage(0)
    assert bench.commit(staged).outcome is Outcome.LANDED
    assert bench.table.calls.count("settle") == 3
    assert bench.ids == [staged.commit_id]


def test_a_permanent_refusal_comes_out_at_once(bench: Bench) -> None:
    """Waiting would help nobody; what to do stands in the hint."""
    bench.hooks["attempt"] = lambda: (_ for _ in ()).throw(OSError("403 Forbidden"))
    with pytest.raises(RefusedError, match="access is denied") as refused:
        bench.commit(bench.stage(0))
    assert refused.value.exit_code == 4
    assert bench.slept == []
    assert bench.states == []


def test_a_refusal_after_the_entry_landed_is_no_refusal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class or text of an error never decides about landing: the log does."""
    attempt = bench.table.attempt

    def land_and_refuse(*arguments: Any) -> None:
        attempt(*arguments)
        msg = "403 Forbidden"
        raise OSError(msg)

    monkeypatch.setattr(bench.table, "attempt", land_and_refuse)
    assert bench.commit(bench.stage(0)).outcome is Outcome.LANDED_UNANSWERED


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.ANSWER_LOST, Fault.DELAYED, Fault.CONFLICT])
def test_the_staged_file_stays_whatever_happens(bench: Bench, fault: Fault) -> None:
    """Only vacuum removes files: one that did land after all would take its rows with it."""
    bench.plan("attempt", *[fault] * 4)
    staged = bench.stage(0)
    try:
        bench.commit(staged)
    except OccExhaustedError:
        assert fault is Fault.CONFLICT
    assert staged.files[0].path in bench.storage.files
    assert bench.storage.discarded == []


def test_a_commit_that_took_too_long_counts_as_fenced(bench: Bench) -> None:
    """The log may have been cleaned up since the comparison; the ledger will tell what holds."""
    bench.hooks["attempt"] = lambda: bench.clock.advance(601)
    staged = bench.stage(0)
    with pytest.raises(Fenced, match="so long"):
        bench.commit(staged)
    assert bench.outcomes == [Outcome.LANDED, Outcome.FENCED]
    assert bench.committer.read([A0]) == {A0: 0}


def test_a_crash_is_not_caught(bench: Bench) -> None:
    """Whatever ends the process ends the commit: no look, no retry."""
    bench.plan("attempt", Fault.CRASH_AFTER)
    with pytest.raises(Crash):
        bench.commit(bench.stage(0))
    assert bench.table.calls == ["refresh", "holding", "attempt"]


def test_the_ledger_is_read_from_the_newest_version(bench: Bench) -> None:
    """None for a partition of which nothing was ever committed; a look at a stale handle would repeat rows."""
    bench.others_commit(0)
    assert bench.committer.read([A0, A1]) == {A0: 0, A1: None}
    assert bench.committer.txns() == {"app/a/0": 0}


def test_the_origin_of_the_landed_records_is_remembered(bench: Bench) -> None:
    """It comes with the first commit of a partition, and again only when the topic is another one."""
    bench.commit(bench.stage(0), topic_ids={"a": "id-1"})
    bench.commit(bench.stage(1, built_on=0), topic_ids={"a": "id-1"})
    bench.commit(bench.stage(2, built_on=1), topic_ids={})
    bench.commit(bench.stage(3, built_on=2), topic_ids={"a": "i/d+2"})
    bench.commit(bench.stage(4, built_on=3), topic_ids={"a": "i/d+2"})
    first, second, third, fourth, fifth = (entry.txns.keys() - {"app/a/0"} for entry in bench.log.entries[1:])
    assert first == {"ingestor:origin/app/a/0/a/id-1/"}
    assert second == third == fifth == set()
    assert fourth == {"ingestor:origin/app/a/0/a/i%2Fd%2B2/"}
    assert bench.committer.read([A0]) == {A0: 4}
    assert bench.committer.recreated(A0, "id-1")
    assert not bench.committer.recreated(A0, "i/d+2")
    assert not bench.committer.recreated(A0, None)
    assert not bench.committer.recreated(A1, "id-1")


# --- what the guards refuse: at each commit, and after every restart ---


@pytest.mark.parametrize("built_on", [None, 0])
def test_a_table_that_another_app_id_has_begun_is_refused_at_the_commit(bench: Bench, built_on: int | None) -> None:
    """Both looked at an empty table; the second to commit hears of it, and so does whoever starts in its place."""
    if built_on is not None:
        bench.commit(bench.stage(built_on))
    bench.log.write_foreign({"other/a/0": 7})
    for committer in (bench.committer, Bench(beside=bench).committer) * 2:
        with pytest.raises(ConfigError, match="under txn app id 'other/a/0'"):
            committer.land(bench.stage(9, built_on=built_on), {})


def test_rows_that_came_without_a_txn_are_refused_at_the_commit(bench: Bench) -> None:
    """Somebody inserted them after the placement; landing the same offsets would double them."""
    FakeTable(bench.log, bench.storage).attempt(bench.stage(3).files, {}, {})
    with pytest.raises(ConfigError, match="without a txn action"):
        bench.commit(bench.stage(9))


def test_a_foreign_txn_of_another_program_is_no_obstacle_once_a_partition_is_ours(bench: Bench) -> None:
    """App ids that end in a number are common; only one that names the topic is surely of this partition."""
    bench.commit(bench.stage(0))
    bench.log.write_foreign({"nightly-job-0": 4})
    bench.commit(bench.stage(1, built_on=0))


def test_a_partition_that_was_taken_over_is_ours_until_the_other_one_goes_on(bench: Bench) -> None:
    """Whoever was thought dead and commits again is noticed by the txn that it moves."""
    bench.log.write_foreign({"other/a/0": 7})
    bench.answer(A0, to=7)
    bench.commit(bench.stage(8, built_on=7))
    bench.log.write_foreign({"other/a/0": 9})
    with pytest.raises(ConfigError, match="under txn app id 'other/a/0'"):
        bench.commit(bench.stage(9, built_on=8))


def test_rows_that_were_taken_away_are_remembered_by_the_log(bench: Bench) -> None:
    """The first who sees it writes it down; whoever starts later is refused by what stands there."""
    bench.commit(bench.stage(0))
    bench.log.overwrite()
    for committer in (bench.committer, *(Bench(beside=bench).committer for _ in range(2))):
        with pytest.raises(RefusedError, match="log entry 2"):
            committer.land(bench.stage(1, built_on=0), {})
        with pytest.raises(RefusedError, match="log entry 2"):
            committer.read([A0])
    assert [entry.info.get("operation_kind") for entry in bench.log.entries[2:]] == [None, "refused"]


def test_the_refusal_is_written_down_though_others_commit_meanwhile(bench: Bench) -> None:
    """A conflict is no reason to forget it."""
    bench.commit(bench.stage(0))
    bench.log.overwrite()
    bench.plan("attempt", Fault.CONFLICT, Fault.ANSWER_LOST)
    with pytest.raises(RefusedError, match="log entry 2"):
        bench.committer.read([A0])
    assert bench.log.entries[-1].info["operation_kind"] == "refused"


def test_an_answer_holds_for_the_partitions_that_it_names(bench: Bench) -> None:
    """One that nobody has answered for still stops the route."""
    bench.commit(stage(bench.storage, [(A0, 0), (A1, 0)]))
    bench.log.overwrite()
    with pytest.raises(RefusedError):
        bench.committer.read([A0])
    bench.answer(A0, to=0)
    with pytest.raises(RefusedError, match="nobody has answered for a:1"):
        bench.committer.read([A0])
    bench.answer(A1, to=0)
    bench.commit(bench.stage(1, built_on=0))


def test_to_accept_a_removal_answers_for_nothing_else(bench: Bench) -> None:
    """Neither does it take a partition over, nor call another topic the old one."""
    bench.commit(bench.stage(0), topic_ids={"a": "id-1"})
    bench.log.overwrite()
    bench.log.write_foreign({"other/a/0": 7})
    with pytest.raises(RefusedError):
        bench.committer.read([A0])
    bench.answer(A0, to=0, answer=Answer.ACCEPT)
    assert bench.committer.recreated(A0, "id-2")
    with pytest.raises(ConfigError, match="other/a/0"):
        bench.commit(bench.stage(1, built_on=0))


def test_an_empty_table_that_is_overwritten_has_lost_nothing(bench: Bench) -> None:
    """Nothing of an ingestor's is gone."""
    bench.log.overwrite()
    bench.commit(bench.stage(0))
    bench.commit(bench.stage(1, built_on=0))  # what was landed after it is not what it took


def test_a_file_that_no_longer_stands_at_its_path_is_not_committed(bench: Bench) -> None:
    """The table's folder was copied and swapped: what the commit would name is another file."""
    staged = bench.stage(0)
    bench.storage.files.pop(staged.files[0].path)
    with pytest.raises(Fenced, match="moved away or replaced"):
        bench.commit(staged)
    assert bench.ids == []


def test_without_the_topic_in_its_name_a_txn_counts_only_for_the_topic_of_its_rows() -> None:
    """A renamed topic must not go on where the old one ended. The first commit writes down whose txn it is."""
    old = Bench(ids=AppIds(KDI_TEMPLATE, "app", ("a",)))
    old.commit(old.stage(7))
    new = Bench(beside=old, ids=AppIds(KDI_TEMPLATE, "app", ("b",)))
    for _ in range(2):
        with pytest.raises(ConfigError, match="'app-0' that belongs to topic a, not to b") as refused:
            new.commit(stage(new.storage, [(B0, 9)], chain={B0: 7}))
    assert "--set b:0=earliest" in refused.value.hint


@pytest.mark.parametrize("topic", ["a", "b"])
def test_where_no_origin_was_written_the_rows_tell_whose_a_txn_is(topic: str) -> None:
    """So a table of kafka-delta-ingest goes on with its own topic and with no other."""
    bench = Bench(ids=AppIds(KDI_TEMPLATE, "app", (topic,)))
    FakeTable(bench.log, bench.storage).attempt(bench.stage(7).files, {"app-0": 7}, {})
    tp = TopicPartition(topic, 0)
    batch = stage(bench.storage, [(tp, 8)], chain={tp: 7})
    if topic == "a":
        bench.commit(batch)
    else:
        with pytest.raises(ConfigError, match="'app-0' that may belong to topic a"):
            bench.commit(batch)


def test_holding_is_asked_until_it_answers(bench: Bench) -> None:
    """A table that does not answer holds nobody knows what."""
    bench.plan("holding", Fault.FAILED, Fault.FAILED)
    bench.commit(bench.stage(0))
    assert bench.table.calls.count("holding") == 3


@given(base=st.floats(0.01, 10), longest=st.floats(0.01, 60))
def test_waits_grow_to_their_maximum(base: float, longest: float) -> None:
    """Doubling from the first on, for as long as anyone asks."""
    waits = waits_between(base, longest)
    found = [next(waits) for _ in range(12)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(min(base, longest))
    assert max(found) <= longest


def test_production_has_its_own_randomness() -> None:
    """Two processes must not back off in step."""
    assert system_rng().random() != system_rng().random()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(Fault).filter(lambda fault: "CRASH" not in fault.name),
        st.sampled_from([Fault.NONE, Fault.FAILED]),
        st.booleans(),
    ),
    max_size=12,
)


@given(OPERATIONS)
def test_a_batch_lands_exactly_once_or_is_fenced(operations: list[tuple[Fault, Fault, bool]]) -> None:
    """Whatever the tries, the looks, delayed requests and another owner do in between."""
    bench = Bench(max_retries=50)
    plan = iter(operations)

    def before_an_attempt() -> None:
        attempt, look, other_acts = next(plan, (Fault.NONE, Fault.NONE, False))
        bench.plan("attempt", attempt)
        bench.plan("slot", look)
        if other_acts and bench.log.delayed:
            bench.log.land_delayed()
        elif other_acts and not any("app/a/0" in entry.txns for entry in bench.log.entries):
            bench.others_commit(7)  # another owner compares too, with the newest entry

    bench.hooks["attempt"] = before_an_attempt
    staged = bench.stage(0, 1, 2)
    try:
        bench.commit(staged)
        landed = 1
    except Fenced:
        landed = 0
    while bench.log.delayed:
        bench.log.land_delayed()
    assert bench.ids.count(staged.commit_id) == landed
    assert landed + bench.ids.count("other") == 1


# --- what else belongs to landing ---


def test_a_batch_of_a_topic_that_was_created_again_is_fenced() -> None:
    """Its offsets may be of either topic: nothing is put."""
    told: list[set[str]] = []

    def topic_ids(topics: set[str]) -> dict[str, str]:
        told.append(topics)
        return {"a": "new"}

    bench = Bench(topic_ids=topic_ids)
    with pytest.raises(Fenced, match="topic a was deleted and created again"):
        bench.commit(bench.stage(0), topic_ids={"a": "old", "elsewhere": "x"})
    assert told == [{"a"}]
    assert bench.log.version == 0
    assert bench.commit(bench.stage(0), topic_ids={"a": "new"}).version == 1


def test_maintenance_is_told_of_what_landed_and_of_nothing_else() -> None:
    """After it was acknowledged."""
    told: list[int] = []
    bench = Bench(maintain=told.append)
    with pytest.raises(Fenced):
        bench.commit(bench.stage(9, built_on=8))
    bench.commit(bench.stage(0))
    assert told == [1]
