"""Kafka fails while ingestors read from it: brokers die, leaders change, the network is cut, a disk rots."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.judge.history import read_topics
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.kafka.topics import Record
from tests.support.kafka.traffic import Traffic
from tests.support.process.ingestors import ROUTE, eventually
from tests.support.stores.tcpproxy import TcpProxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.process.ingestors import Deploy, Deployment, Ingestor

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PROTOCOLS = ("classic", "consumer")


def test_a_killed_broker_comes_back(deploy: Deploy) -> None:
    """The only one is gone and back: nobody ends, on neither protocol, nothing is lost, and what comes later lands."""
    with Cluster() as own:
        topic = topics.create(own.bootstrap, partitions=4)
        deployments = [deploy(topic, bootstrap=own.bootstrap, kafka={"group.protocol": each}) for each in PROTOCOLS]
        members = [deployment.start() for deployment in deployments]
        topics.produce(own.bootstrap, topic, numbered(200))
        for deployment in deployments:
            deployment.wait_for_rows(200)
        own.kill()
        own.start()
        topics.produce(own.bootstrap, topic, numbered(200))
        for deployment, member in zip(deployments, members, strict=True):
            assert len(deployment.expect([topic])) == 400
            end(deployment, [member])


@pytest.mark.usefixtures("either_intake")
def test_leaders_change_under_traffic(deploy: Deploy) -> None:
    """Of three brokers one is killed; ingestion goes on with whoever leads, and nothing acknowledged is lost."""
    with Cluster(brokers=3) as own:
        topic = topics.create(own.bootstrap, partitions=6, replicas=3, config={"min.insync.replicas": 2})
        deployment = deploy(topic, bootstrap=own.bootstrap, flush={"seconds": 0.3})
        members = [deployment.start() for _ in range(2)]
        deployment.wait_for(lambda: all(member.events("placed") for member in members))
        with Traffic(own.bootstrap, topic, partitions=6, seed=1) as traffic:
            deployment.wait_for_commits(3)
            dead = own.leader(topic, 0)
            dead.kill()
            deployment.wait_for_commits(3)
            eventually(lambda: own.leader(topic, 0) is not dead)  # the others' commits may be quicker
            dead.start()
            deployment.wait_for_commits(3)
        expected = deployment.expect([topic])
        end(deployment, members)
        deployment.judge(expected)
        assert traffic.committed <= expected.keys()  # what was sent again is there twice, at two offsets


def test_a_network_that_is_cut_longer_than_the_session(deploy: Deploy) -> None:
    """One member is cut off and given up; the other takes over; when the first is back, both go on, fenced or not."""
    with (
        TcpProxy(0) as proxy,
        Cluster(listeners={"NET": "PLAINTEXT"}, advertised={"NET": proxy.address}) as own,
    ):
        proxy.aim(int(own.address("NET").rpartition(":")[2]))
        topic = topics.create(own.bootstrap, partitions=4)
        deployment = deploy(
            topic,
            bootstrap=own.bootstrap,
            kafka={"session.timeout.ms": 3000, "socket.timeout.ms": 3000},
            flush={"seconds": 0.3},
        )
        near, far = deployment.start(), deployment.start(bootstrap_servers=proxy.address)
        deployment.wait_for(lambda: near.events("placed") and far.events("placed"))
        with Traffic(own.bootstrap, topic, partitions=4, seed=2) as traffic:
            deployment.wait_for_commits(4)
            gone_at = len(near.events("rebalance"))
            proxy.outage(8, silent=True)
            deployment.wait_for(lambda: len(near.events("rebalance")) > gone_at)  # it was given what the other had
            deployment.wait_for_commits(3)
            taken = len(far.events("placed"))
            deployment.wait_for(lambda: len(far.events("placed")) > taken)  # and came back
            deployment.wait_for_commits(3)
        expected = deployment.expect([topic])
        end(deployment, [near, far])
        deployment.judge(expected)
        assert expected.keys() == traffic.committed


@pytest.mark.usefixtures("either_intake")
def test_a_batch_that_rots_on_the_broker_s_disk_stops_the_ingestor_or_is_skipped(deploy: Deploy) -> None:
    """Its checksum is wrong: it is named, nothing behind it is taken, and on demand just that batch is skipped."""
    with Cluster() as own:
        topic = topics.create(own.bootstrap)
        one_batch = {"linger.ms": 10_000}  # until it is flushed; on a busy machine some are cut in two all the same
        for number in range(5):
            topics.produce(own.bootstrap, topic, numbered(10, marked=b"batch %d " % number), one_batch)
        expected = read_topics(own.bootstrap, [topic])
        own.stop()  # in order, else the broker would look through its log, and cut it off there
        (segment,) = own.brokers[0]._folder.glob(f"data/{topic}-0/*.log")
        first, last = spoil(segment, b"batch 2 5")
        assert 20 <= first <= 25 <= last < 30
        own.start()
        deployment = deploy(topic, bootstrap=own.bootstrap)

        deployment.refused(3, f"a batch of {topic}:0 at offset {first} fails its checksum", "on_data_loss: skip")
        assert deployment.log().rows in (0, first)
        deployment.judge(expected, complete=False)

        deployment.document["routes"][ROUTE]["on_data_loss"] = "skip"
        deployment.once()
        lost = {(topic, 0, offset) for offset in range(first, last + 1)}
        deployment.judge(expected, lost=lost)
        declared = [
            (gap["first"], gap["last"], gap["reason"]) for i in deployment.log().infos for gap in i.get("gaps", ())
        ]
        assert declared == [(first, last, "corrupt")]
        deployment.command("audit", "--against-kafka")


def test_a_hanging_transaction_is_seen_in_the_status(kafka: Cluster, deploy: Deploy) -> None:
    """The lag is up to what can be read, and the partition shows from where on it is held."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, numbered(5))
    transaction = topics.unique("transaction")
    topics.transact(kafka.bootstrap, topic, numbered(5), end="hang", transactional_id=transaction)
    topics.produce(kafka.bootstrap, topic, numbered(5))
    deployment = deploy(topic, http={"port": 0})
    ingestor = deployment.start()
    deployment.wait_for_rows(5)

    assert deployment.wait_for(lambda: shown(ingestor).get("open_transaction_at")) == 5
    deployment.wait_for(lambda: shown(ingestor)["lag"] == 0)

    topics.transact(kafka.bootstrap, topic, numbered(1), transactional_id=transaction)  # ends the one that hangs
    deployment.wait_for_rows(11)
    deployment.wait_for(lambda: shown(ingestor)["open_transaction_at"] is None)
    end(deployment, [ingestor])
    deployment.judge_committed([topic])


def shown(ingestor: Ingestor) -> dict[str, Any]:
    """Return what the status page tells of the only partition: a second behind at most, so at first nothing."""
    (started,) = ingestor.wait_for("started")
    with urllib.request.urlopen(f"{started['http']}/api/status") as answer:  # noqa: S310 - loopback
        partitions = json.load(answer)["routes"][ROUTE]["partitions"]
    assert len(partitions) <= 1
    return dict(*partitions)


def end(deployment: Deployment, members: list[Ingestor]) -> None:
    """Let all end in order."""
    assert members
    for member in members:
        member.stop()
    assert [member.wait() for member in members] == [0] * len(members), deployment.state()


def spoil(segment: Path, near: bytes) -> tuple[int, int]:
    """Change one byte of a record; return the first and the last offset of the batch that holds it."""
    content = bytearray(segment.read_bytes())
    at = content.index(near)
    start = 0
    while True:
        first, size, last = (int.from_bytes(content[start + a : start + b]) for a, b in ((0, 8), (8, 12), (23, 27)))
        if at < start + 12 + size:
            break
        start += 12 + size
    content[at] ^= 0xFF
    segment.write_bytes(content)
    return first, first + last


def numbered(count: int, marked: bytes = b"") -> list[Record]:
    return [Record(value=marked + b"%d" % number) for number in range(count)]
