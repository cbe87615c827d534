"""Three ingestors on one S3 table, every third request to the store goes wrong somehow, and ingestors are killed."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.judge.traces import DEBUGGING, Traces
from tests.support.kafka import topics
from tests.support.kafka.traffic import Traffic
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment
    from tests.support.stores.stores import Store

pytestmark = [pytest.mark.faults, pytest.mark.integration]

LOG = r"/_delta_log/\d{20}\.json$"
# What befalls a request of any kind, and what only a conditional one is answered.
ANY_REQUEST = [
    *(Fault(kind) for kind in (Kind.RESET_BEFORE, Kind.RESET_AFTER, Kind.TRUNCATE) for _ in range(6)),
    *(Fault(Kind.STATUS_BEFORE, status=status) for status in (429, 500, 502, 503, 503, 504)),
    *(Fault(Kind.STATUS_AFTER, status=status) for status in (500, 502, 503, 503, 504)),
    *(Fault(Kind.DELAY, seconds=seconds) for seconds in (0.01, 0.02, 0.05, 0.8)),
    Fault(Kind.TRICKLE, seconds=0.1),
    Fault(Kind.HANG_BEFORE, seconds=1.2),
    Fault(Kind.HANG_AFTER, seconds=1.2),
    Fault(Kind.HALF_OPEN, seconds=1.2),
]
CONDITIONAL = [Fault(kind, status=status) for kind in (Kind.STATUS_BEFORE, Kind.STATUS_AFTER) for status in (409, 412)]
# Faults are short here, so patience is too; but half a second that a busy machine takes for an answer is no fault.
QUICK = {
    "timeout": "600ms",
    "connect_timeout": "300ms",
    "max_retries": "5",
    "retry_timeout": "2s",
    "backoff_config.init_backoff": "10ms",
    "backoff_config.max_backoff": "20ms",
}

MEMBERS = 3
PARTITIONS = 6


@pytest.fixture
def seed() -> int:
    """What faults and kills come from; a failed test shows it, and FAULT_SEED brings it back."""
    chosen = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 30))
    print(f"FAULT_SEED={chosen}")  # noqa: T201 - pytest shows it beside a failure
    return chosen


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("commits", "kill_seconds"),
    [(60, (12, 18)), pytest.param(200, (12, 18), marks=pytest.mark.soak)],
    ids=["60", "200"],
)
def test_random_faults_of_every_third_request_lose_and_double_nothing(
    kafka: Cluster,
    deploy: Deploy,
    any_store: Store,
    seed: int,
    summary: Callable[[str], None],
    commits: int,
    kill_seconds: tuple[float, float],
) -> None:
    """Many commits, with kills in between: nothing lost, nothing twice, and when the faults stop nothing stuck."""
    rng = random.Random(seed)
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    bucket = any_store.make_bucket()
    with FaultProxy(any_store.port) as proxy:
        proxy.on("PUT", LOG, *ANY_REQUEST, *CONDITIONAL, times=None, every=3, seed=seed)
        proxy.on("*", "", *ANY_REQUEST, times=None, every=3, seed=seed)
        deployment = deploy(
            topic,
            table=any_store.url(bucket),
            storage_options=any_store.options(proxy.url, **QUICK),
            kafka={"session.timeout.ms": 3000, "partition.assignment.strategy": "cooperative-sticky"},
            flush={"seconds": 0.1},
            occ={"max_retries": 10_000, "base_seconds": 0.05, "max_seconds": 0.4},
            retry={"max_retries": 3, "base_seconds": 0.01, "max_seconds": 0.2},
            breaker={"failures": 3, "open_seconds": 0.3, "successes": 1},
            log=DEBUGGING,
        )
        deployment.before_look = Mirror(any_store, bucket, deployment.table()).fetch
        members = [deployment.start() for _ in range(MEMBERS)]
        with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS, per_second=200, seed=seed) as traffic:
            kills = kill_until(deployment, commits, lambda: rng.uniform(*kill_seconds), rng)
        hits = proxy.hits
        proxy.clear()
        expected = deployment.expect([topic])
        for member in members:
            member.stop()
        assert [member.wait() for member in members] == [0] * MEMBERS
    deployment.judge(expected)
    assert expected.keys() == traffic.committed
    told = Counter(event["answer"] for member in members for event in member.events("committed"))
    print(f"{len(expected)} records, {deployment.log().version} versions, {hits} faults, {kills} kills, {told}")  # noqa: T201
    traces = Traces()
    traces.add_run("random faults", deployment)
    summary(f"random store faults: {traces.check(deployment.folder)}")
    assert hits > commits
    assert kills > 1
    assert told["lost"] > 1  # commits that landed without an answer


def kill_until(deployment: Deployment, commits: int, pause_seconds: Callable[[], float], rng: random.Random) -> int:
    """Kill a member now and then and start it again, until the log has so many commits; return how many were killed."""
    kills = 0
    kill_at = time.monotonic() + pause_seconds()

    def done() -> bool:
        nonlocal kills, kill_at
        if time.monotonic() >= kill_at:
            member = rng.choice(deployment.processes)
            member.kill()
            member.start()
            kills += 1
            kill_at = time.monotonic() + pause_seconds()
        landed = [info for info in deployment.log().infos if info.get("operation_kind") == "flush"]
        return len(landed) >= commits

    deployment.wait_for(done, seconds_max=600)
    return kills
