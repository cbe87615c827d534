"""The brokers that all other integration tests stand on."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.kafka.topics import Landed, Record
from tests.support.process.ingestors import eventually

pytestmark = pytest.mark.integration

VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A broker that these tests may kill."""
    with Cluster() as cluster:
        yield cluster


def test_records_come_back_as_they_were_sent(kafka: Cluster) -> None:
    topic = topics.create(kafka.bootstrap, partitions=2)
    headers = [("h", b"1"), ("h", None)]
    sent = [
        Record(value=b"\x00\xff", key=b"k", headers=headers, timestamp_ms=1, partition=1),
        Record(value=None, key=b"k", timestamp_ms=253402300799999, partition=1),
    ]

    landed = topics.produce(kafka.bootstrap, topic, sent)

    first, second = topics.read(kafka.bootstrap, topic)
    assert landed == [Landed(1, 0), Landed(1, 1)]
    assert (first.value(), first.key(), first.headers()) == (b"\x00\xff", b"k", headers)
    assert (first.timestamp()[1], second.timestamp()[1]) == (1, 253402300799999)
    assert second.value() is None


def test_readers_of_committed_records_see_no_aborted_ones(kafka: Cluster) -> None:
    topic = topics.create(kafka.bootstrap)
    topics.transact(kafka.bootstrap, topic, [b"aborted"], end="abort")
    topics.transact(kafka.bootstrap, topic, [b"committed"])

    assert values(kafka, topic) == [b"committed"]
    assert values(kafka, topic, isolation="read_uncommitted") == [b"aborted", b"committed"]


def test_a_hanging_transaction_ends_after_its_own_timeout(kafka: Cluster) -> None:
    topic = topics.create(kafka.bootstrap)
    topics.transact(kafka.bootstrap, topic, [b"hanging"], end="hang", timeout_seconds=1)
    topics.produce(kafka.bootstrap, topic, [b"behind it"])

    eventually(lambda: values(kafka, topic) == [b"behind it"])


def test_a_deleted_topic_is_gone(kafka: Cluster) -> None:
    topic = topics.create(kafka.bootstrap)

    topics.delete(kafka.bootstrap, topic)

    known = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10)
    assert topic not in known.topics


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_divides_partitions_under_both_protocols(kafka: Cluster, protocol: str) -> None:
    topic = topics.create(kafka.bootstrap, partitions=4)
    group = topics.unique("group")
    members = [member(kafka, group, protocol, topic) for _ in range(2)]

    def divided() -> bool:
        for one in members:
            one.poll(0.1)
        shares = [{part.partition for part in one.assignment()} for one in members]
        return [len(share) for share in shares] == [2, 2] and set.union(*shares) == {0, 1, 2, 3}

    try:
        eventually(divided)
    finally:
        for one in members:
            one.close()


@pytest.mark.faults
@pytest.mark.parametrize("end", [Cluster.kill, Cluster.stop])
def test_records_and_address_outlive_the_process(own: Cluster, end: Callable[..., None]) -> None:
    address = own.bootstrap
    topic = topics.create(address)
    topics.produce(address, topic, VALUES)

    end(own)
    assert not own.brokers[0].running
    own.start()

    assert own.bootstrap == address
    assert values(own, topic) == VALUES
    assert topics.produce(address, topic, [b"more"]) == [Landed(0, len(VALUES))]


@pytest.mark.faults
def test_a_paused_broker_answers_when_it_goes_on(own: Cluster) -> None:
    topic = topics.create(own.bootstrap)
    admin = AdminClient({"bootstrap.servers": own.bootstrap})

    own.pause()
    try:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
    finally:
        own.resume()

    assert topic in admin.list_topics(timeout=10).topics


@pytest.mark.faults
def test_another_broker_leads_when_the_leader_dies() -> None:
    with Cluster(brokers=3) as cluster:
        topic = topics.create(cluster.bootstrap, replicas=3, config={"min.insync.replicas": 2})
        topics.produce(cluster.bootstrap, topic, VALUES)
        dead = cluster.leader(topic, 0)

        dead.kill()

        topics.produce(cluster.bootstrap, topic, [b"after"])
        assert values(cluster, topic) == [*VALUES, b"after"]
        assert cluster.leader(topic, 0) is not dead
        dead.start()


def test_a_broker_that_cannot_start_shows_its_log() -> None:
    with (
        pytest.raises(RuntimeError, match=r"(?s)ended; its log ends.*message\.max\.bytes"),
        Cluster(config={"message.max.bytes": "much"}),
    ):
        pass


@pytest.mark.faults
def test_nothing_outlives_a_test_run_that_is_killed(tmp_path: Path) -> None:
    program = "import time; from tests.support.kafka.cluster import Cluster; Cluster().start(); {}"
    run = subprocess.Popen(
        [sys.executable, "-c", program.format("print(1, flush=True); time.sleep(600)")],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"1\n"
        started = psutil.Process(run.pid).children()

        run.send_signal(signal.SIGKILL)

    assert len(started) == 2
    _gone, alive = psutil.wait_procs(started, timeout=10)
    assert not alive
    eventually(lambda: list(tmp_path.iterdir()) == [])


def values(cluster: Cluster, topic: str, isolation: str = "read_committed") -> list[bytes | str | None]:
    """Payloads of a topic, in order."""
    return [one.value() for one in topics.read(cluster.bootstrap, topic, isolation=isolation)]


def member(cluster: Cluster, group: str, protocol: str, topic: str) -> Consumer:
    """A consumer that has joined, or is about to."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    return consumer
