"""Retry and breaker: try again while it may help, then leave the store alone, and come back gently."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.config.settings import RetrySettings
from ingestor.errors import Fenced, IngestorError, RefusedError, Unavailable
from ingestor.ingest.breaker import Breaker, BreakerState
from ingestor.ingest.committer import make_patience
from ingestor.signals import Stopped
from tests.support.fakes.worker import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestor.ingest.retry import Patience

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class Store:
    """A call that fails as often as it is told."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


class World:
    """Patience, its breaker, and a clock that sleeping moves."""

    def __init__(self, *, max_retries: int = 2, failures: int = 3, successes: int = 2, jitter: float = 0) -> None:
        self.clock = FakeClock()
        self.states: list[BreakerState] = []
        self.slept: list[float] = []
        self.told: list[IngestorError | Unavailable] = []
        self.breaker = Breaker(
            failures=failures, open_seconds=60, successes=successes, clock=self.clock, on_change=self.states.append
        )
        self.patience: Patience = make_patience(
            RetrySettings(max_retries=max_retries, base_seconds=1, max_seconds=30, jitter=jitter),
            breaker=self.breaker,
            sleep=self.sleep,
            rng=random.Random(5),
            on_failure=self.told.append,
        )

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)

    def ask(self, store: Callable[[], str]) -> str:
        return self.patience.until_answered(store, doing="asking")


def down(times: int) -> Store:
    return Store(*[OSError("connection reset")] * times)


def test_an_answer_is_returned() -> None:
    """At the first try, without a wait."""
    world = World()
    assert world.ask(down(0)) == "answer"
    assert world.slept == []


def test_failures_are_retried_with_growing_waits() -> None:
    """Each failure is told; nothing comes out of it."""
    world = World(max_retries=3)
    store = down(3)
    assert world.ask(store) == "answer"
    assert store.calls == 4
    assert world.slept == [1, 2, 4]
    assert [str(told) for told in world.told] == ["asking: connection reset"] * 3
    assert world.states == []


def test_jitter_moves_the_waits_within_its_share() -> None:
    """A quarter up or down, so that two processes don't come back together."""
    world = World(max_retries=3, jitter=0.25)
    world.ask(down(3))
    assert world.slept != [1, 2, 4]
    assert all(0.75 * at <= wait <= 1.25 * at for at, wait in zip([1, 2, 4], world.slept, strict=True))


def test_only_rounds_of_retries_count_against_the_breaker() -> None:
    """Three rounds of one try and two retries open it; the waits start anew with each round."""
    world = World()
    assert world.ask(down(8)) == "answer"
    assert world.states == []
    assert world.slept == [1, 2, 1, 2, 1, 2]
    assert World().breaker.state is CLOSED
    world = World()
    world.ask(down(9))
    assert world.states[0] is OPEN
    assert world.slept[-1] == 60


def test_a_success_forgets_the_failures_before_it() -> None:
    """Only failures in a row mean that the store is down."""
    world = World()
    for _ in range(4):
        world.ask(down(6))
    assert world.states == []


def test_a_refusal_comes_out_at_once() -> None:
    """Without retry, without a wait, and not counted against the breaker."""
    world = World(failures=1)
    store = Store(OSError("AccessDenied"))
    with pytest.raises(RefusedError):
        world.ask(store)
    assert store.calls == 1
    assert world.slept == []
    assert world.breaker.state is CLOSED
    assert len(world.told) == 1


def test_our_own_errors_come_out_as_they_are() -> None:
    """They say what to do already."""
    refused = RefusedError("no", hint="never")
    with pytest.raises(RefusedError) as raised:
        World().ask(Store(refused))
    assert raised.value is refused


def test_a_refusal_in_a_probe_lets_the_next_probe_through() -> None:
    """The store answered, though with no."""
    world = World(successes=1, failures=1, max_retries=0)
    with pytest.raises(RefusedError):
        world.ask(Store(OSError("connection reset"), OSError("AccessDenied")))
    assert world.breaker.enter() == 0


def test_stopping_is_no_failure_of_the_store() -> None:
    """It passes through every retry."""
    world = World(failures=1)
    with pytest.raises(Stopped):
        world.ask(Store(Stopped()))
    assert world.told == []


# --- the breaker by itself ---


def breaker(clock: FakeClock, told: list[BreakerState] | None = None) -> Breaker:
    return Breaker(
        failures=5, open_seconds=60, successes=3, clock=clock, on_change=(told if told is not None else []).append
    )


def test_the_breaker_goes_round() -> None:
    """Closed; open after five failures; half open after a minute; closed after three good probes."""
    clock, told = FakeClock(), list[BreakerState]()
    it = breaker(clock, told)
    for _ in range(5):
        assert it.enter() == 0
        it.failed()
    assert it.state is OPEN
    assert it.enter() == 60
    clock.advance(59)
    assert it.enter() == 1
    clock.advance(1)
    for _ in range(3):
        assert it.enter() == 0
        assert it.state is HALF_OPEN
        it.succeeded()
    assert it.state is CLOSED
    assert told == [OPEN, HALF_OPEN, CLOSED]


def test_four_failures_are_not_five() -> None:
    """A success in between begins the count anew."""
    it = breaker(FakeClock())
    for _ in range(4):
        it.failed()
    it.succeeded()
    for _ in range(4):
        it.failed()
    assert it.state is CLOSED


def test_one_failed_probe_opens_it_again() -> None:
    """For another whole minute, and the good probes before don't count any more."""
    clock = FakeClock()
    it = breaker(clock)
    for _ in range(5):
        it.failed()
    clock.advance(60)
    assert it.enter() == 0
    it.succeeded()
    assert it.enter() == 0
    it.failed()
    assert it.state is OPEN
    assert it.enter() == 60
    clock.advance(60)
    for _ in range(2):
        it.enter()
        it.succeeded()
    assert it.state is HALF_OPEN


def test_only_one_probes_at_a_time() -> None:
    """All others wait a moment and ask again."""
    clock = FakeClock()
    it = breaker(clock)
    for _ in range(5):
        it.failed()
    clock.advance(60)
    assert it.enter() == 0
    assert it.enter() > 0
    it.succeeded()
    assert it.enter() == 0


def test_a_clock_that_someone_sets_does_not_matter() -> None:
    """It is the process's own clock that counts: without it passing, nothing opens."""
    it = breaker(FakeClock(0.0))
    for _ in range(5):
        it.failed()
    assert it.enter() == 60
    assert it.enter() == 60


@given(st.lists(st.sampled_from(["ok", "failed", "wait"]), max_size=60))
def test_the_breaker_follows_its_rules(events: list[str]) -> None:
    """Against a plain model: never closed after five failures in a row, never closed by less than three successes."""
    clock = FakeClock()
    it = breaker(clock)
    in_a_row = good = 0
    expected = CLOSED
    for event in events:
        if event == "wait":
            clock.advance(30)
            continue
        if it.enter() > 0:
            assert expected is OPEN
            continue
        expected = HALF_OPEN if expected is OPEN else expected
        if event == "ok":
            it.succeeded()
            in_a_row, good = 0, good + 1 if expected is HALF_OPEN else 0
            if good >= 3:
                expected, good = CLOSED, 0
        else:
            it.failed()
            in_a_row, good = in_a_row + 1, 0
            if expected is HALF_OPEN or in_a_row >= 5:
                expected, in_a_row = OPEN, 0
        assert it.state is expected


def test_a_verdict_is_no_failure_of_the_storage() -> None:
    """A commit that is fenced has been answered: it comes out at once."""
    world = World()
    with pytest.raises(Fenced):
        world.ask(Store(Fenced("moved")))


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("?")])
def test_what_nobody_knows_is_tried_again(error: Exception) -> None:
    """An unknown failure may pass by itself; to give up is what needs a reason."""
    world = World()
    assert world.ask(Store(error)) == "answer"
