"""Partitions that change hands: members that join, leave, die, and come back from the dead."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.kafka import consumer as kafka_source
from ingestor.kafka.consumer import KafkaSource
from tests.support.kafka import topics
from tests.support.kafka.topics import Record
from tests.support.kafka.traffic import Traffic
from tests.support.listener import FromTheHead
from tests.support.process.ingestors import eventually

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment, Ingestor

pytestmark = pytest.mark.integration

MIB = 1 << 20
PARTITIONS = 6
SESSION_SECONDS = 3  # classic groups; under KIP-848 the broker says, and the fixture's says 6
GROUPS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
PROTOCOLS = pytest.mark.parametrize("protocol", GROUPS)


@pytest.mark.usefixtures("either_intake")
@PROTOCOLS
def test_members_join_and_leave_under_steady_traffic(kafka: Cluster, deploy: Deploy, protocol: str) -> None:
    """Partitions move to and fro while records keep coming, and each record lands once."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploying(deploy, topic, protocol)
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS) as traffic:
        first = deployment.start()
        deployment.wait_for_commits(2)
        second = deployment.start()
        share(deployment, topic, first, second)
        third = deployment.start()
        share(deployment, topic, first, second, third)
        second.stop()
        assert second.wait() == 0
        share(deployment, topic, first, third)
        first.stop()
        assert first.wait() == 0
        share(deployment, topic, third)

    assert deployment.expect([topic]).keys() == traffic.committed


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_static_members_come_back_to_their_partitions(kafka: Cluster, deploy: Deploy, protocol: str) -> None:
    """Within the session a static member's partitions wait for it, and nobody else is disturbed."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploying(deploy, topic, protocol, session_seconds=30)
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS) as traffic:
        first, second = (deployment.start(group_instance_id=f"static-{number}") for number in range(2))
        share(deployment, topic, first, second)
        second.stop()
        assert second.wait() == 0
        placed = len(first.events("placed"))
        second.start()
        share(deployment, topic, first, second)
        assert len(first.events("placed")) == placed

    assert deployment.expect([topic]).keys() == traffic.committed


@pytest.mark.faults
@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_static_member_comes_back_after_a_kill(kafka: Cluster, deploy: Deploy, protocol: str) -> None:
    """Under KIP-848 the broker keeps its place locked until the session ends."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploying(deploy, topic, protocol)
    member = deployment.start(group_instance_id="static")
    share(deployment, topic, member, committed=False)
    member.kill()
    topics.produce(kafka.bootstrap, topic, [b"after the kill"] * 50)

    def drained() -> bool:
        if not member.running:  # it may leave it to who started it to try again
            assert member.wait() in (-signal.SIGKILL, 4), member.log_tail()
            member.start()
        return deployment.log().rows == 50

    eventually(drained, failure=deployment.state)
    deployment.expect([topic])


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_the_second_process_of_one_static_member_says_so(kafka: Cluster, deploy: Deploy, protocol: str) -> None:
    """Two processes with one identity can't both work; whichever loses ends, and names the key to change."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploying(deploy, topic, protocol)
    one = deployment.start(group_instance_id="twice")
    share(deployment, topic, one, committed=False)
    other = deployment.start(group_instance_id="twice")

    # A classic group fences the first, a group of KIP-848 refuses the second.
    eventually(lambda: not (one.running and other.running), failure=deployment.state)

    loser, winner = (one, other) if not one.running else (other, one)
    assert loser.wait() == 4
    assert "group.instance.id" in loser.last_line
    topics.produce(kafka.bootstrap, topic, [b"v"] * 50)
    deployment.expect([topic])
    winner.stop()
    assert winner.wait() == 0


@pytest.mark.usefixtures("either_intake")
@PROTOCOLS
def test_a_partition_that_was_paused_when_it_went_is_read_when_it_comes_back(kafka: Cluster, protocol: str) -> None:
    """A pause outlives a rebalance inside of librdkafka; the partition must be fetched all the same."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, topic, [Record(value=b"v", partition=number % 2) for number in range(20)])
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": topics.unique("group"), **GROUPS[protocol]}
    first, second = Member(config, topic), Member(config, topic)
    try:
        first.join()
        eventually(lambda: first.read() == {0: 10, 1: 10})
        first.source.pause(first.owned)
        second.join()
        eventually(lambda: second.read() and first.read() and len(first.owned) == len(second.owned) == 1)
        kept = set(first.owned)
        second.source.close()
        eventually(lambda: first.read() and len(first.owned) == 2)
        first.source.resume(kept)
        eventually(lambda: first.read()[1 - min(kept).partition] == 20)
    finally:
        first.source.close()


@pytest.mark.usefixtures("either_intake")
@PROTOCOLS
def test_a_resumption_never_meets_the_start_of_a_partition(
    kafka: Cluster, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is fetched then could be taken for outdated: they are resumed before the start, or long after it."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, topic, [Record(value=b"v", partition=number % 2) for number in range(20)])
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": topics.unique("group"), **GROUPS[protocol]}
    member = Member(config, topic)
    heard, naps = Overheard(member.source._consumer), list[float]()
    monkeypatch.setattr(member.source, "_consumer", heard)
    monkeypatch.setattr(kafka_source, "time", SimpleNamespace(monotonic=time.monotonic, sleep=naps.append))
    try:
        member.join()
        eventually(lambda: member.read() == {0: 10, 1: 10})
        member.source.pause(member.owned)
        first, second = sorted(member.owned)
        member.source.reposition({first: 0}, kept={})
        assert naps == []
        member.source.resume([second])
        assert naps[0] > 0
        assert heard.order() == ["resume", "start", "resume", "start", "resume"]
        eventually(lambda: member.read()[0] == 20)
    finally:
        member.source.close()


@pytest.mark.soak
@pytest.mark.timeout(900)
@PROTOCOLS
def test_of_many_partitions_that_start_again_and_again_none_is_forgotten(kafka: Cluster, protocol: str) -> None:
    """On a machine that is overwhelmed, by a thread that comes last: one in 150,000 was, when it was resumed after."""
    partitions, rounds = 500, 300
    topic = topics.create(kafka.bootstrap, partitions=partitions)
    topics.produce(kafka.bootstrap, topic, [Record(value=b"v", partition=number) for number in range(partitions)])
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": topics.unique("group"), **GROUPS[protocol]}
    member = Member(config, topic)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # of this thread; librdkafka's come first
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        member.join()
        eventually(lambda: len(member.read()) == partitions)
        for _ in range(rounds):
            before = dict(member.read())  # there is no more to come
            member.source.pause(member.owned)
            member.source.reposition(dict.fromkeys(member.owned, 0), kept={})
            eventually(lambda: all(count > before[number] for number, count in member.read().items()))  # noqa: B023 - at once
    finally:
        for process in busy:
            process.kill()
            process.wait()
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)
        member.source.close()


class Overheard:
    """A consumer of librdkafka's whose calls are written down."""

    _STARTS = ("assign", "incremental_assign")

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self._calls.append(name)
        return getattr(self._consumer, name)

    def order(self) -> list[str]:
        """Return in which order partitions were started and resumed."""
        return ["start" if name in self._STARTS else name for name in self._calls if name in ("resume", *self._STARTS)]


class Member(FromTheHead):
    """A bare source, and its listener."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        super().__init__()
        self.source = KafkaSource(config, [topic], route_of=lambda _topic: "route", queue_bytes=MIB, flush_seconds=1)
        self._counts: dict[int, int] = {}

    def join(self) -> None:
        self.source.subscribe(self)

    def read(self) -> dict[int, int]:
        """Poll once; return how many records have come so far, by partition."""
        for _, columns in self.source.poll(100, 0.1).columns:
            for partition in columns.partitions.tolist():
                self._counts[partition] = self._counts.get(partition, 0) + 1
        return {0: 0, 1: 0} | self._counts


@pytest.mark.usefixtures("either_intake")
@pytest.mark.faults
@PROTOCOLS
def test_a_process_that_was_stopped_beyond_its_session_doubles_nothing(
    kafka: Cluster, deploy: Deploy, protocol: str
) -> None:
    """It wakes with records in hand that somebody else has landed meanwhile."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploying(deploy, topic, protocol)
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS) as traffic:
        zombie = deployment.start()
        deployment.wait_for_commits(2)
        zombie.freeze()
        heir = deployment.start()
        share(deployment, topic, heir)
        deployment.wait_for_commits(3)
        zombie.thaw()
        share(deployment, topic, zombie, heir)

    assert deployment.expect([topic]).keys() == traffic.committed
    assert zombie.events("fenced") or [each for each in zombie.events("rebalance") if each["event_kind"] == "lost"]


@pytest.mark.faults
def test_a_commit_of_the_past_is_fenced(kafka: Cluster, deploy: Deploy) -> None:
    """Rows that were read before another process landed them end at the table's txns."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, big_records(12))
    deployment = deploying(deploy, topic, "range", flush={"seconds": 600})
    # In a group of its own, with a long session: so that no rebalance takes its rows away before it commits.
    zombie = deployment.start(group_id=topics.unique("zombies"), session_timeout_ms=60_000)
    deployment.wait_for(lambda: deployment.log().data_files)
    zombie.freeze()
    deployment.once()
    deployment.expect([topic])
    version = deployment.log().version

    zombie.stop()
    zombie.thaw()

    assert zombie.wait() == 0
    assert zombie.events("fenced")
    assert not zombie.events("committed")
    assert deployment.log().version == version
    deployment.expect([topic])


@pytest.mark.faults
def test_processes_in_different_groups_never_double_each_others_rows(kafka: Cluster, deploy: Deploy) -> None:
    """No group divides the work here: the table alone keeps rivals apart."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploying(deploy, topic, "range")
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS) as traffic:
        rivals = [deployment.start(group_id=topics.unique("rival")) for _ in range(2)]
        deployment.wait_for_commits(10)
        deployment.wait_for(lambda: sum(len(rival.events("fenced")) for rival in rivals) > 3)

    assert deployment.expect([topic]).keys() == traffic.committed


@pytest.mark.faults
@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_process_that_is_asked_to_end_in_a_flush_ends_in_order(kafka: Cluster, deploy: Deploy, protocol: str) -> None:
    """What was read lands before the process ends, and it ends well."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    deployment = deploying(deploy, topic, protocol, flush={"bytes": "16MiB", "seconds": 600})
    for round_ in range(2):
        topics.produce(kafka.bootstrap, topic, big_records(30))
        before = deployment.log().data_files
        ingestor = deployment.start()
        deployment.wait_for(lambda before=before: deployment.log().data_files - before)  # type: ignore[misc]
        ingestor.stop()
        assert ingestor.wait() == 0, round_
        stopped = ingestor.events("committed")
        assert stopped, round_

    deployment.once()
    deployment.expect([topic])


@pytest.mark.usefixtures("either_intake")
@pytest.mark.faults
def test_kills_in_a_loop_lose_and_double_nothing(kafka: Cluster, deploy: Deploy) -> None:
    """Whatever was under way when the process died is done once, by it or by the next."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    rng = random.Random(1)
    deployment = deploying(deploy, topic, "range", flush={"seconds": 0.2})
    ingestor = deployment.prepare(group_instance_id="the-only-one")
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS, per_second=1000) as traffic:
        for _ in range(5):
            ingestor.start()
            deployment.wait_for_commits(rng.randint(1, 3))
            time.sleep(rng.uniform(0, 0.3))  # anywhere between two commits, or in one
            ingestor.kill()

    deployment.once()
    assert deployment.expect([topic]).keys() == traffic.committed


def deploying(
    deploy: Deploy, topic: str, protocol: str, *, session_seconds: int = SESSION_SECONDS, **route: Any
) -> Deployment:
    return deploy(topic, kafka={"session.timeout.ms": session_seconds * 1000, **GROUPS[protocol]}, **route)


def share(deployment: Deployment, topic: str, *members: Ingestor, committed: bool = True) -> None:
    """Wait until these members, and nobody else, own all partitions between them, and each has committed since."""
    wanted = {f"{topic}:{number}" for number in range(PARTITIONS)}

    def shared() -> bool:
        shares = [owned(member) for member in members]
        return all(shares) and sum(map(len, shares)) == PARTITIONS and set().union(*shares) == wanted

    deployment.wait_for(shared)
    if not committed:
        return
    commits = [len(member.events("committed")) for member in members]
    deployment.wait_for(
        lambda: all(len(member.events("committed")) > was for member, was in zip(members, commits, strict=True))
    )


def owned(member: Ingestor) -> set[str]:
    """The partitions that a process says it owns."""
    partitions: set[str] = set()
    for event in member.events("started", "rebalance"):
        if event["event"] == "started":
            partitions = set()
            continue
        named = set(filter(None, event["partitions"].split(", ")))
        partitions = partitions | named if event["event_kind"] == "assigned" else partitions - named
    return partitions


def big_records(count: int) -> list[Record]:
    """Records of a megabyte each, whose file takes a while to write."""
    rng = random.Random(count)
    return [Record(value=rng.randbytes(900_000), partition=-1) for _ in range(count)]
