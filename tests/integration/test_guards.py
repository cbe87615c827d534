"""What makes an ingestor refuse to go on, and that nothing is touched when it does."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from deltalake import DeltaTable

from ingestor.ledger import KDI_TEMPLATE, AppIds
from ingestor.records import TopicPartition
from tests.support.judge.history import read_topics
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.ingestors import ROUTE
from tests.support.rawtables import Record as Row
from tests.support.rawtables import TableMaker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.process.ingestors import Deploy, Deployment, Ingestor

pytestmark = pytest.mark.integration

FIRST = 50  # records of a topic before it is recreated or expires


# --- whose table is it? ---


def test_a_table_of_another_app_id_is_refused_with_both_ways_out(kafka: Cluster, deploy: Deploy) -> None:
    """Reading everything again under another name would double it; the refusal says how to go on instead."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, values(5))
    owner = deploy(topic)
    owner.once()
    before = contents(owner.table())
    topics.produce(kafka.bootstrap, topic, values(5))

    stranger = deploy(topic, folder=owner.folder)
    stranger.refused(2, "set app_id", f"ingestor offsets CONFIG --set {topic}:0=OFFSET")

    assert contents(owner.table()) == before
    owner.once()  # the first way out
    assert len(owner.expect([topic])) == 10
    stranger.command("offsets", "--set", f"{topic}:0=10", "--yes")  # the second
    topics.produce(kafka.bootstrap, topic, values(5))
    stranger.once()
    found = Counter(row["stream_offset"] for row in DeltaTable(str(owner.table())).to_pyarrow_table().to_pylist())
    assert found == Counter(range(15))


def test_a_table_of_kafka_delta_ingest_is_continued(kafka: Cluster, deploy: Deploy) -> None:
    """With its template a table goes on where our ancestor's txns end."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, topic, [topics.Record(value=b"old", partition=n % 2) for n in range(20)])
    deployment = deploy(topic, txn_app_id=KDI_TEMPLATE)
    ancestor = TableMaker(deployment.table(), app_ids=AppIds(KDI_TEMPLATE, deployment.app_id, (topic,)))
    old = [
        Row(offset, value, TopicPartition(topic, partition), timestamp_ms=stamp)
        for (_, partition, offset), (stamp, _, value, _) in sorted(read_topics(kafka.bootstrap, [topic]).items())
    ]
    ancestor.flush([row for row in old if row.offset < 8])
    topics.produce(kafka.bootstrap, topic, [topics.Record(value=b"new", partition=n % 2) for n in range(20)])

    ingestor = deployment.once()

    assert len(deployment.judge_committed([topic])) == 40
    (placed,) = ingestor.events("placed")
    assert set(placed["positions"].values()) == {8}


# --- Kafka has lost what the table needs next ---


def test_records_that_expired_before_they_were_read_stop_the_ingestor_or_are_skipped(
    kafka: Cluster, deploy: Deploy
) -> None:
    """Retention passed the table by: it stops with the table untouched, or declares the gap once and goes on."""
    topic, deployment = ingested(kafka, deploy)
    before = read_topics(kafka.bootstrap, [topic])
    topics.produce(kafka.bootstrap, topic, values(20))
    topics.expire(kafka.bootstrap, topic, 0, FIRST + 10)

    refuses(deployment, f"{topic}:0 offsets 50 to 59 (retention)")

    skipping = skip(deployment).once()
    deployment.judge(before | read_topics(kafka.bootstrap, [topic]))
    tells_of_the_gap(deployment, skipping, Gap(topic, 50, 59, "retention"))


def test_after_a_loss_earliest_lands_all_that_is_left(kafka: Cluster, deploy: Deploy) -> None:
    """It passes over nothing that Kafka still has."""
    topic, deployment = ingested(kafka, deploy)
    before = read_topics(kafka.bootstrap, [topic])
    topics.produce(kafka.bootstrap, topic, values(20))
    topics.expire(kafka.bootstrap, topic, 0, FIRST + 10)
    deployment.refused(3, f"{topic}:0 offsets 50 to 59 (retention)", starts=1)

    told = deployment.command("offsets", "--set", f"{topic}:0=earliest", "--yes")

    assert told.startswith(f"{topic}:0: 50 → 60, in version 2 of table")
    deployment.once()
    deployment.judge(before | read_topics(kafka.bootstrap, [topic]))


@pytest.mark.faults
def test_records_that_expire_in_front_of_a_running_ingestor_are_skipped_on_demand(
    kafka: Cluster, deploy: Deploy
) -> None:
    """Retention passes a process by that is already reading."""
    topic, deployment = ingested(kafka, deploy)
    before = read_topics(kafka.bootstrap, [topic])
    deployment.document["kafka"]["fetch.wait.max.ms"] = 50  # none is under way once it is frozen
    ingestor = skip(deployment).start()
    ingestor.wait_for("placed")
    ingestor.freeze()
    time.sleep(1)
    topics.produce(kafka.bootstrap, topic, values(20))
    topics.expire(kafka.bootstrap, topic, 0, FIRST + 10)
    ingestor.thaw()

    deployment.wait_for_rows(FIRST + 10)

    deployment.judge(before | read_topics(kafka.bootstrap, [topic]))
    tells_of_the_gap(deployment, ingestor, Gap(topic, 50, 59, "retention"))


@pytest.mark.faults
def test_records_that_a_power_cut_took_from_kafka_stop_the_ingestor_or_are_skipped(deploy: Deploy) -> None:
    """The topic is the same and shorter than the table."""
    with Cluster() as own:
        topic, deployment = ingested(own, deploy, bootstrap=own.bootstrap)
        before = read_topics(own.bootstrap, [topic])
        own.kill()
        (segment,) = own.brokers[0]._folder.glob(f"data/{topic}-0/*.log")
        os.truncate(segment, segment.stat().st_size // 2)
        own.start()
        left = len(read_topics(own.bootstrap, [topic]))
        assert 0 < left < FIRST

        refuses(deployment, f"{topic}:0 offsets {left} to 49 (truncated)")

        skipping = skip(deployment).start()
        skipping.wait_for("placed")
        topics.produce(own.bootstrap, topic, values(FIRST))
        deployment.wait_for_rows(FIRST + left)
        deployment.judge(before | beyond(read_topics(own.bootstrap, [topic]), FIRST))
        tells_of_the_gap(deployment, skipping, Gap(topic, left, 49, "truncated"))


# --- a topic that was deleted and created again ---


@pytest.mark.parametrize("count", [FIRST - 20, FIRST, FIRST + 30], ids=["fewer", "equal", "more"])
def test_a_recreated_topic_stops_the_ingestor_or_is_read_on_where_the_table_ends(
    kafka: Cluster, deploy: Deploy, count: int
) -> None:
    """Its offsets mean other records now, so none is landed a second time, however many there are."""
    topic, deployment = ingested(kafka, deploy)
    before = read_topics(kafka.bootstrap, [topic])
    recreate(kafka, topic, count)

    refuses(deployment, f"{topic}:0 offsets 0 to 49 (recreated)")

    topics.produce(kafka.bootstrap, topic, values(40))
    skipping = skip(deployment).once()
    deployment.judge(before | beyond(read_topics(kafka.bootstrap, [topic]), FIRST))
    tells_of_the_gap(deployment, skipping, Gap(topic, 0, 49, "recreated"))
    assert not deployment.once().events("records lost")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("protocol", "count"), [("classic", FIRST - 20), ("classic", FIRST + 1), ("consumer", FIRST + 1)]
)
def test_a_topic_that_is_recreated_under_a_running_ingestor_stops_it(
    kafka: Cluster, deploy: Deploy, protocol: str, count: int
) -> None:
    """The topic's id tells, even if the next offset exists in the new topic too."""
    topic, deployment = ingested(kafka, deploy, kafka={"group.protocol": protocol})
    before = read_topics(kafka.bootstrap, [topic])
    ingestor = deployment.start()
    ingestor.wait_for("placed")

    recreate(kafka, topic, count)

    assert ingestor.wait() == 3
    assert f"{topic}:0 offsets 0 to 49 (recreated)" in ingestor.last_line
    deployment.refused(3, f"{topic}:0 offsets 0 to 49 (recreated)", starts=2)
    deployment.judge(before)


@pytest.mark.faults
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topics_that_are_recreated_under_a_running_ingestor_are_read_on_on_demand(
    kafka: Cluster, deploy: Deploy, protocol: str
) -> None:
    """A running process notices by itself, and takes what lies beyond the table's end."""
    fewer, more = (topics.create(kafka.bootstrap) for _ in range(2))
    for topic in (fewer, more):
        topics.produce(kafka.bootstrap, topic, values(FIRST))
    deployment = deploy(fewer, more, on_data_loss="skip", kafka={"group.protocol": protocol})
    ingestor = deployment.start()
    before = deployment.expect([fewer, more])

    recreate(kafka, fewer, FIRST - 20)
    recreate(kafka, more, FIRST + 30)
    for topic in (fewer, more):
        topics.produce(kafka.bootstrap, topic, values(40))

    deployment.wait_for_rows(2 * FIRST + 20 + 70)
    deployment.judge(before | beyond(read_topics(kafka.bootstrap, [fewer, more]), FIRST))
    tells_of_the_gap(deployment, ingestor, *(Gap(topic, 0, 49, "recreated") for topic in (fewer, more)))


def ingested(cluster: Cluster, deploy: Deploy, **settings: Any) -> tuple[str, Deployment]:
    """Return a topic whose first records are in a deployment's table."""
    topic = topics.create(cluster.bootstrap)
    for _ in range(FIRST // 10):  # in batches, of which a broker may lose some
        topics.produce(cluster.bootstrap, topic, values(10))
    deployment = deploy(topic, **settings)
    deployment.once()
    deployment.judge_committed([topic])
    return topic, deployment


def recreate(kafka: Cluster, topic: str, count: int) -> None:
    """Delete a topic and create it again, with so many records."""
    topics.delete(kafka.bootstrap, topic)
    topics.create(kafka.bootstrap, topic)
    topics.produce(kafka.bootstrap, topic, [b"again %d" % number for number in range(count)])


def skip(deployment: Deployment) -> Deployment:
    """Let processes that start from now on accept a loss."""
    deployment.document["routes"][ROUTE]["on_data_loss"] = "skip"
    return deployment


class Gap(NamedTuple):
    """Offsets that are to be declared lost."""

    topic: str
    first: int
    last: int
    reason: str


def refuses(deployment: Deployment, gap: str) -> None:
    """See the ingestor stop at a gap, however often it is started, with the table as it was."""
    before = contents(deployment.table())
    deployment.refused(3, gap, "on_data_loss: skip")
    assert contents(deployment.table()) == before


def tells_of_the_gap(deployment: Deployment, ingestor: Ingestor, *gaps: Gap) -> None:
    """See gaps in the log, and each once in the table's history."""
    declared = [gap for info in deployment.log().infos for gap in info.get("gaps", [])]
    assert sorted(declared, key=lambda gap: str(gap["topic"])) == sorted(
        ({**gap._asdict(), "partition": 0} for gap in gaps), key=lambda gap: str(gap["topic"])
    )
    told = {(each["gap"], each["level"]) for each in ingestor.events("records lost")}
    assert told == {(f"{gap.topic}:0 offsets {gap.first} to {gap.last} ({gap.reason})", "error") for gap in gaps}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def beyond(records: dict[Any, Any], offset: int) -> dict[Any, Any]:
    return {key: content for key, content in records.items() if key[2] >= offset}


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
