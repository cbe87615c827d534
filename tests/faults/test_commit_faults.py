"""Commits to S3 through a proxy that fails: whatever happens to the log's PUT, each commit lands exactly once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ingestor.errors import Fenced
from ingestor.ingest.put import Outcome
from ingestor.ingest.steps import Steps
from tests.support.judge.traces import Recorder, Traces, entries_of
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.s3_commits import APP_ID, TP, Writer, assert_exactly_once, held, log_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ingestor.ingest.stager import Staged
    from tests.support.stores.stores import Store, VersityStore

pytestmark = pytest.mark.faults

LOG = r"/_delta_log/\d{20}\.json$"
LANDED, UNANSWERED = Outcome.LANDED, Outcome.LANDED_UNANSWERED

# Each fault of the log's PUT, and how the commit then ends.
FAULTS = {
    "slow": (Fault(Kind.DELAY, seconds=0.3), 1, LANDED),
    "slow beyond the time-out": (Fault(Kind.DELAY, seconds=1.5), 1, LANDED),
    "reset before the store has it": (Fault(Kind.RESET_BEFORE), 1, LANDED),
    "reset before the store has it, again and again": (Fault(Kind.RESET_BEFORE), 6, LANDED),
    "reset after the store has it": (Fault(Kind.RESET_AFTER), 1, UNANSWERED),
    "503 before the store has it": (Fault(Kind.STATUS_BEFORE, status=503), 1, LANDED),
    "503 before the store has it, again and again": (Fault(Kind.STATUS_BEFORE, status=503), 9, LANDED),
    "503 after the store has it": (Fault(Kind.STATUS_AFTER, status=503), 1, UNANSWERED),
    "500 after the store has it, again and again": (Fault(Kind.STATUS_AFTER, status=500), 5, UNANSWERED),
    "504 after the store has it": (Fault(Kind.STATUS_AFTER, status=504), 1, UNANSWERED),
    "no answer before the store has it": (Fault(Kind.HANG_BEFORE, seconds=5), 1, LANDED),
    "no answer after the store has it": (Fault(Kind.HANG_AFTER, seconds=5), 1, UNANSWERED),
    "half open": (Fault(Kind.HALF_OPEN, seconds=5), 1, LANDED),
    "409 though nothing is written": (Fault(Kind.STATUS_BEFORE, status=409), 1, LANDED),
    "409 after the store has it": (Fault(Kind.STATUS_AFTER, status=409), 1, UNANSWERED),
    "412 though nothing is written": (Fault(Kind.STATUS_BEFORE, status=412), 1, LANDED),
    "412 after the store has it": (Fault(Kind.STATUS_AFTER, status=412), 1, UNANSWERED),
    "too many requests": (Fault(Kind.STATUS_BEFORE, status=429), 4, LANDED),
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory, summary: Callable[[str], None]) -> Iterator[Traces]:
    """What the writers of all these tests did; in the end TLC finds each a behaviour of the model, or fails."""
    kept = Traces()
    yield kept
    summary(f"faults of the log's PUT: {kept.check(tmp_path_factory.mktemp('traces'))}")


@pytest.fixture
def steps_of(
    request: pytest.FixtureRequest, store: Store, bucket: str, traces: Traces
) -> Iterator[Callable[[str], Steps]]:
    """Make what takes the steps of a writer, by its name."""
    recorder = Recorder()
    yield lambda name: Steps(recorder.of(name), on=lambda: True)
    traces.add(request.node.name, recorder.told, entries_of(log_texts(store, bucket), APP_ID))


@pytest.mark.parametrize(("fault", "times", "outcome"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_log_s_put_loses_and_doubles_nothing(
    fault: Fault,
    times: int,
    outcome: Outcome,
    store: Store,
    bucket: str,
    proxy: FaultProxy,
    steps_of: Callable[[str], Steps],
) -> None:
    """The commit before, the one with the fault, and the one after: each stands in the log once."""
    writer = Writer(store.url(bucket), store.options(proxy.url), steps=steps_of("writer"))
    assert writer.land(writer.stage()).outcome is LANDED
    staged = writer.stage()
    proxy.on("PUT", LOG, fault, times=times)
    assert writer.land(staged).outcome is outcome
    assert proxy.hits >= 1
    proxy.clear()
    assert writer.land(writer.stage()).outcome is LANDED
    assert writer.outcomes == [LANDED, outcome, LANDED]
    time.sleep(max(0.0, fault.seconds - 1.0) if fault.kind is Kind.DELAY else 0.0)  # what is late is there by now
    assert_exactly_once(held(store, bucket), {TP: 3})


@pytest.mark.parametrize("silent", [False, True], ids=["refusing", "silent"])
def test_an_outage_is_waited_out(
    silent: bool,  # noqa: FBT001 - a parameter
    store: Store,
    bucket: str,
    proxy: FaultProxy,
    steps_of: Callable[[str], Steps],
) -> None:
    """The breaker opens and closes; the commit lands once."""
    writer = Writer(store.url(bucket), store.options(proxy.url), steps=steps_of("writer"))
    staged = writer.stage()
    proxy.outage(2.5, silent=silent)
    started = time.monotonic()
    writer.land(staged)
    assert 2.0 < time.monotonic() - started < 20
    assert writer.failures >= 2
    assert_exactly_once(held(store, bucket), {TP: 1})


def test_a_killed_store_comes_back(versity: VersityStore) -> None:
    """Killed while commits come in and started again: what was acknowledged stands, once."""
    bucket = versity.make_bucket()
    writer = Writer(versity.url(bucket), versity.storage_options)

    def commit_many() -> int:
        ends = time.monotonic() + 3
        count = 0
        while time.monotonic() < ends:
            writer.land(writer.stage())
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit_many)
        for _ in range(2):
            time.sleep(0.5)
            versity.kill()
            time.sleep(0.5)
            versity.start()
        count = committing.result(60)
    assert count > 5
    assert writer.failures > 0
    assert_exactly_once(held(versity, bucket), {TP: count})


def test_of_two_owners_of_a_partition_one_lands(
    store: Store, bucket: str, proxy: FaultProxy, steps_of: Callable[[str], Steps]
) -> None:
    """A zombie and its heir commit the same rows at once, with the winner's answer lost or not: never both."""
    options = store.options(proxy.url)
    writers = [Writer(store.url(bucket), options, seed=seed, steps=steps_of(f"writer {seed}")) for seed in (1, 2)]
    rounds = 10
    with ThreadPoolExecutor(2) as pool:
        for number in range(rounds):
            proxy.clear()
            fault = (Kind.RESET_AFTER, Kind.STATUS_AFTER, Kind.DELAY)[number % 3]
            proxy.on("PUT", LOG, Fault(fault, seconds=0.1))
            staged = [writer.stage() for writer in writers]

            def land(writer: Writer, index: int, staged: list[Staged] = staged) -> bool:
                try:
                    writer.land(staged[index])
                except Fenced:
                    return False
                return True

            assert sorted(pool.map(land, writers, (0, 1))) == [False, True]
    assert_exactly_once(held(store, bucket), {TP: rounds})
