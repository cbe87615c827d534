"""Topics with gaps: aborted and hanging transactions, and what a log cleaner leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.judge.history import read_topics
from tests.support.kafka import topics
from tests.support.kafka.topics import Record
from tests.support.kafka.traffic import Traffic
from tests.support.process.ingestors import eventually

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy

pytestmark = pytest.mark.integration

COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": 0,
    "min.cleanable.dirty.ratio": 0.01,
    "segment.ms": 100,
}


@pytest.mark.usefixtures("either_intake")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_interleaved_transactions_land_without_their_aborted_records(
    kafka: Cluster, deploy: Deploy, protocol: str
) -> None:
    """What several producers commit and abort between each other lands without what they aborted."""
    topic = topics.create(kafka.bootstrap, partitions=4)
    deployment = deploy(topic, kafka={"group.protocol": protocol}, flush={"seconds": 0.3})
    ingestor = deployment.start()

    with Traffic(kafka.bootstrap, topic, partitions=4, producers=4, per_second=1_000, abort_share=0.3) as traffic:
        deployment.wait_for_commits(12)
    expected = deployment.expect([topic])
    ingestor.stop()

    assert ingestor.wait() == 0
    assert expected.keys() == traffic.committed
    assert 0.1 < len(traffic.aborted) / len(traffic.aborted | traffic.committed) < 0.6


def test_a_hanging_transaction_holds_back_only_what_lies_behind_it(kafka: Cluster, deploy: Deploy) -> None:
    """Everything before it and in other partitions lands at once, the rest when the broker gives it up."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, topic, numbered(5))
    topics.transact(kafka.bootstrap, topic, numbered(5), end="hang", timeout_seconds=8)
    topics.produce(kafka.bootstrap, topic, numbered(5))
    deployment = deploy(topic, flush={"seconds": 0.3})
    deployment.start()

    deployment.wait_for_rows(5)
    topics.produce(kafka.bootstrap, topic, [Record(value=b"elsewhere", partition=1)])
    deployment.wait_for_rows(6)
    assert deployment.log().rows == 6

    assert len(deployment.expect([topic])) == 6
    deployment.wait_for_rows(11)  # when the broker has given the transaction up
    assert len(deployment.expect([topic])) == 11


def test_what_a_log_cleaner_leaves_lands_without_a_stall(kafka: Cluster, deploy: Deploy) -> None:
    """The next offset to read may be one of those that were compacted away."""
    topic = topics.create(kafka.bootstrap, config=COMPACTED)
    deployment = deploy(topic, extra_columns=["key"])
    produce_versions(kafka, topic)
    deployment.once()
    before = deployment.judge_committed([topic])
    produce_versions(kafka, topic)
    offsets = {key[2] for key in read_topics(kafka.bootstrap, [topic])}
    clean(kafka, topic)
    left = read_topics(kafka.bootstrap, [topic])
    assert max(before)[2] + 1 not in {key[2] for key in left}, "the next offset to read is still there"
    assert len(left) < len(offsets) / 2

    ingestor = deployment.start()
    deployment.wait_for(lambda: deployment.txns().get(deployment.app_id_of(topic, 0)) == max(left)[2])
    ingestor.stop()

    assert ingestor.wait() == 0
    deployment.once(seconds_max=20)
    deployment.judge(before | left)


def produce_versions(kafka: Cluster, topic: str) -> None:
    """Send several versions of a few keys, committed, aborted and outside of transactions, and tombstones."""
    for version in range(3):
        records = [Record(value=b"%d" % version, key=b"%d" % key, partition=0) for key in range(20)]
        topics.produce(kafka.bootstrap, topic, records)
        topics.transact(kafka.bootstrap, topic, records[:10], end="abort")
        topics.transact(kafka.bootstrap, topic, records[5:15])
    topics.produce(kafka.bootstrap, topic, [Record(value=None, key=b"%d" % key, partition=0) for key in range(10)])


def clean(kafka: Cluster, topic: str) -> None:
    """Let the log cleaner do its work; the active segment is not its business, so another one is begun."""
    before = len(read_topics(kafka.bootstrap, [topic]))

    def cleaned() -> bool:
        topics.produce(kafka.bootstrap, topic, [Record(value=b"last", key=b"last", partition=0)])
        return len(read_topics(kafka.bootstrap, [topic])) < before / 2

    eventually(cleaned)


def numbered(count: int) -> list[Record]:
    return [Record(value=b"%d" % number, partition=0) for number in range(count)]
