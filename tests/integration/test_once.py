"""`run --once` says that it is done only when it is, and gives up where there is no use in waiting."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.command import Command, refused, write_config
from tests.support.process.ingestors import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.process.ingestors import Deploy, Deployment, Ingestor

pytestmark = pytest.mark.integration

COUNT = 20
PATIENCE_SECONDS = 30


def test_a_drain_that_is_told_to_end_says_what_is_left(kafka: Cluster, deploy: Deploy) -> None:
    """Ended early is not done, else whoever goes by the exit code would believe the table complete."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic, kafka={"session.timeout.ms": 14_000})
    before = deployment.start()
    before.wait_for("placed")
    before.kill()  # the group waits for it until its session is out
    topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)

    drain = deployment.prepare("--once").start()
    drain.wait_for("started")
    drain.signal(signal.SIGTERM)

    assert drain.wait() == 1
    assert f"ended by a signal before all was landed: 0 rows landed, {COUNT} offsets are left" in drain.last_line
    deployment.once()
    assert len(deployment.judge_committed([topic])) == COUNT


def test_a_drain_that_waits_for_a_topic_and_is_told_to_end_is_not_done(deploy: Deploy) -> None:
    """It has not even begun."""
    drain = deploy(topics.unique()).prepare("--once").start()
    drain.wait_for("waiting")
    drain.signal(signal.SIGHUP)

    assert drain.wait() == 1
    assert "ended by a signal before all was landed: 0 rows landed, nothing was read yet" in drain.last_line


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_drain_whose_partitions_others_land_is_done_when_they_are_landed(
    kafka: Cluster, deploy: Deploy, protocol: str
) -> None:
    """Who landed them does not matter. Under KIP-848 it is never even told that it gets no partition."""
    deployment, topic, owner = owned(kafka, deploy, seconds=0.5, **{"group.protocol": protocol})

    drain = deployment.once()

    assert "done, 0 rows landed" in drain.last_line
    assert len(deployment.judge_committed([topic])) == COUNT
    assert owner.running


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_drains_that_share_the_partitions_are_done_when_all_is_landed(
    kafka: Cluster, deploy: Deploy, protocol: str
) -> None:
    """Neither ends before the other's share is in the table, nor waits for ever for it."""
    topic = topics.create(kafka.bootstrap, partitions=4)
    topics.produce(kafka.bootstrap, topic, [topics.Record(value=b"v", partition=n % 4) for n in range(4_000)])
    deployment = deploy(topic, kafka={"group.protocol": protocol}, flush={"seconds": 600})
    drains = [deployment.prepare("--once").start() for _ in range(2)]

    eventually(lambda: any(not drain.running for drain in drains))

    deployment.judge_committed([topic])
    assert [drain.wait() for drain in drains] == [0, 0]
    assert len(deployment.judge_committed([topic])) == 4_000


def test_a_drain_whose_partitions_others_hold_gives_up_and_never_calls_that_done(
    kafka: Cluster, deploy: Deploy
) -> None:
    """The owner has polled everything, commits nothing for ten minutes, and keeps what it has in a rebalance."""
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    deployment, topic, owner = owned(kafka, deploy, seconds=600, **cooperative)

    drain = deployment.once(code=4, seconds_max=PATIENCE_SECONDS + 30)

    for words in ("no partition was assigned", f"{topic}:0 is not drained", "share the partitions out without"):
        assert words in drain.last_line
    owner.stop()
    assert owner.wait() == 0
    assert len(deployment.judge_committed([topic])) == COUNT


def owned(kafka: Cluster, deploy: Deploy, *, seconds: float, **client: str) -> tuple[Deployment, str, Ingestor]:
    """Return a topic with one partition, and the ingestor that has it and lands it so often."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic, kafka=client, flush={"seconds": seconds})
    owner = deployment.start()
    owner.wait_for("placed")
    topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)
    return deployment, topic, owner


def test_who_gets_no_assignment_says_why(tmp_path: Path) -> None:
    """Kafka can't make its own topic of groups, as where its replication factor exceeds the number of brokers."""
    with Cluster(config={"offsets.topic.replication.factor": 3}) as cluster:
        topic = topics.create(cluster.bootstrap)
        topics.produce(cluster.bootstrap, topic, [b"v"] * COUNT)
        config = write_config(tmp_path, cluster.bootstrap, topic)
        with Command("run", config, "--once") as drain, Command("run", config) as endless:
            reason = f"no assignment from the consumer group: asking the coordinator of group {topic} for its members"
            endless.wait_for(reason, count=2)
            gave_up = drain.end(PATIENCE_SECONDS + 30)
            endless.signal(signal.SIGTERM)
            ended = endless.end()

    assert gave_up.code == 4, gave_up.stderr
    assert gave_up.seconds >= PATIENCE_SECONDS
    for words in ("no partition was assigned", f"{topic}:0 is not drained", f"the coordinator of group {topic}"):
        assert words in gave_up.last_line
    assert ended.code == 0, ended.stderr


def test_a_broker_that_does_not_know_the_group_protocol_is_named(tmp_path: Path) -> None:
    """Neither `run` waits for what never comes, nor does `--once` call it done."""
    with Cluster(config={"group.coordinator.rebalance.protocols": "classic"}) as cluster:
        topic = topics.create(cluster.bootstrap)
        topics.produce(cluster.bootstrap, topic, [b"v"] * COUNT)
        config = write_config(tmp_path, cluster.bootstrap, topic)
        document = yaml.safe_load(config.read_text())
        kafka = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "group.protocol": "consumer"}
        config.write_text(yaml.safe_dump({**document, "kafka": kafka}))

        words = ["the broker does not know group.protocol: consumer", "leave kafka.group.protocol out"]
        refused("run", config, "--once", code=4, words=words)
        refused("run", config, code=4, words=words, starts=1)
