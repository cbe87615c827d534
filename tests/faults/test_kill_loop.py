"""All at once: a group of ingestors, killed, stopped, held still and started again, under transactional traffic."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.judge.traces import DEBUGGING, Traces
from tests.support.kafka import topics
from tests.support.kafka.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment, Ingestor

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 6
MEMBERS = 3
SESSION_SECONDS = 3
# Killed by the test; stopped in order; told so twice; stopped so early that the interpreter was still starting.
CODES = (-signal.SIGKILL, 0, 1, -signal.SIGTERM)
AT_ONCE = "ingestor: stopped at once"  # all that may end one with exit code 1
SOAK_SECONDS = float(os.environ.get("INGESTOR_SOAK_SECONDS", "600"))
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.mark.timeout(240)
def test_a_minute_of_kills_loses_and_doubles_nothing(
    kafka: Cluster, deploy: Deploy, seed: int, summary: Callable[[str], None]
) -> None:
    """Three ingestors and six partitions under random faults: complete, a clean audit, and a behaviour of the model."""
    summary(f"kill loop: {torment(kafka, deploy, 'cooperative', random.Random(seed), seconds=60, rival=False)}")


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kills_for_long_lose_and_double_nothing(kafka: Cluster, deploy: Deploy, protocol: str, seed: int) -> None:
    """The same for longer, on every protocol, and with a rival outside of the group."""
    torment(kafka, deploy, protocol, random.Random(seed), seconds=SOAK_SECONDS / len(PROTOCOLS), rival=True)


@pytest.fixture
def seed() -> int:
    """What all randomness of a run comes from; a failed test shows it, and INGESTOR_SEED brings it back."""
    chosen = int(os.environ.get("INGESTOR_SEED", random.SystemRandom().randrange(1_000_000)))
    print(f"INGESTOR_SEED={chosen}")  # noqa: T201 - pytest shows it beside a failure
    return chosen


def torment(kafka: Cluster, deploy: Deploy, protocol: str, rng: random.Random, *, seconds: float, rival: bool) -> str:
    """Let ingestors suffer for a while, let one drain what is left, and judge the table and what they told of it.

    A rival reads everything too, in a group of its own: it is always fenced, or fences the others.
    """
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploy(
        topic,
        kafka={"session.timeout.ms": SESSION_SECONDS * 1000, **PROTOCOLS[protocol]},
        extra_columns=["key", "headers"],
        flush={"seconds": 0.4},
        log=DEBUGGING,
    )
    members = [deployment.start() for _ in range(MEMBERS)]
    if rival:
        members.append(deployment.start(group_id=topics.unique("rival")))
    with Traffic(
        kafka.bootstrap,
        topic,
        partitions=PARTITIONS,
        producers=2,
        per_second=400,
        abort_share=0.3,
        seed=rng.randrange(1_000_000),
    ) as traffic:
        done = suffer(members, rng, seconds)
    for member in members:
        member.stop()
        member.thaw()
    for member in members:
        assert ended_well(member), member.log_tail()

    deployment.once(seconds_max=60)
    expected = deployment.judge_committed([topic])
    assert expected.keys() == traffic.committed
    traces = Traces()
    traces.add_run("kill loop", deployment)
    traced = traces.check(deployment.folder)
    audit = deployment.command("audit", "--against-kafka")
    print(f"{done}; {len(expected)} records, {len(traffic.aborted)} aborted; {survey(deployment)}; {audit}")  # noqa: T201
    return traced


def suffer(members: list[Ingestor], rng: random.Random, seconds: float) -> dict[str, int]:
    """Do something to one of the members every now and then; return what was done how often."""
    done: dict[str, int] = {}
    frozen: dict[Ingestor, float] = {}
    ends_at = time.monotonic() + seconds
    while (now := time.monotonic()) < ends_at:
        for member, until in list(frozen.items()):
            if now >= until:
                member.thaw()
                del frozen[member]
        member = rng.choice(members)
        if member not in frozen:
            name = afflict(member, rng, frozen, now)
            done[name] = done.get(name, 0) + 1
        time.sleep(rng.uniform(0.1, 1.5))
    return done


def afflict(member: Ingestor, rng: random.Random, frozen: dict[Ingestor, float], now: float) -> str:
    """Do one thing to a member: what is left to do to one that is not running is to start it."""
    assert not member.fell, member.log_tail()
    if not member.running:
        assert ended_well(member), member.log_tail()
        member.start()
        return "started"
    deeds: list[tuple[str, Callable[[], None]]] = [
        ("killed", member.kill),
        ("stopped", member.stop),
        ("frozen", member.freeze),
    ]
    name, do = rng.choices(deeds, weights=[5, 3, 3])[0]
    do()
    if name == "frozen":  # some briefly, some until the group has given them up
        frozen[member] = now + rng.choice([0.2, 1.0, 2.5 * SESSION_SECONDS])
    return name


def ended_well(member: Ingestor) -> bool:
    """Whether a member ended as it was told to."""
    code = member.wait()
    return code in CODES and (code != 1 or member.last_line.startswith(AT_ONCE))


def survey(deployment: Deployment) -> dict[str, int]:
    """Count what the ingestors have told."""
    names = ("committed", "fenced", "file lost", "rebalance", "placed", "waiting", "paused")
    return {name: sum(len(each.events(name)) for each in deployment.processes) for name in names}
