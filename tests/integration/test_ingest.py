"""Records of every kind, from every kind of topic, into their tables."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tests.support.kafka import topics
from tests.support.kafka.topics import Record
from tests.support.kafka.traffic import Traffic

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment

pytestmark = pytest.mark.integration

ALL_EXTRAS = ["key", "headers", "timestamp_type"]
MIB = 1 << 20
CONSUMER = {"group.protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize("protocol", [{}, CONSUMER], ids=["classic", "consumer"])


# --- records ---


def test_many_partitions_of_several_topics_and_routes_land_in_their_tables(kafka: Cluster, deploy: Deploy) -> None:
    """One process keeps 74 partitions of five topics apart, and two routes may share a table."""
    wide = topics.create(kafka.bootstrap, partitions=64)
    pair = [topics.create(kafka.bootstrap, partitions=3) for _ in range(2)]
    shared = [topics.create(kafka.bootstrap, partitions=2) for _ in range(2)]
    deployment = deploy.routes(
        {
            "wide": {"topics": [wide]},
            "pair": {"topics": pair, "extra_columns": ["key"]},
            "one": {"topics": shared[:1], "table": "shared"},
            "other": {"topics": shared[1:], "table": "shared"},
        }
    )
    deployment.start()
    for topic in [wide, *pair, *shared]:
        topics.produce(kafka.bootstrap, topic, keyed(2_000))

    found = [
        deployment.expect([wide], route="wide"),
        deployment.expect(pair, route="pair"),
        deployment.expect(shared, route="one"),
    ]

    assert [len(records) for records in found] == [2_000, 4_000, 4_000]
    assert {partition for _, partition, _ in found[0]} == set(range(64))


@pytest.mark.usefixtures("either_intake")
def test_records_of_every_kind_land_as_they_are(kafka: Cluster, deploy: Deploy) -> None:
    """Nothing that Kafka takes is changed on its way: nulls, empty values, raw bytes, odd headers, odd timestamps."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    stamped = topics.create(kafka.bootstrap, config={"message.timestamp.type": "LogAppendTime"})
    awkward = [
        Record(value=None),
        Record(value=None, key=b"tombstone"),
        Record(value=b"", key=b""),
        Record(value=b"\x00\xff\xfe", key=b"\x80", headers=[("binary", b"\x00\xff"), ("null", None), ("empty", b"")]),
        Record(
            value=b"v",
            headers=[("same", b"1"), ("same", b"2"), ("same", b"1"), ("", b"no name"), ("ключ", "é".encode())],
        ),
        Record(value=b"v" * 100_000, key=b"k" * 10_000),
        *(
            Record(value=b"%d" % moment, timestamp_ms=moment)
            for moment in (-1, 1, 253_402_300_799_999, 2**62, 2**63 - 1)
        ),
    ]
    topics.produce(kafka.bootstrap, topic, awkward)
    topics.produce(kafka.bootstrap, stamped, awkward[:4])
    deployment = deploy(topic, stamped, extra_columns=ALL_EXTRAS)

    deployment.once()

    assert len(deployment.expect([topic, stamped])) == len(awkward) + 4
    found = {(row["stream_topic"], row["message_timestamp_type"]) for row in rows(deployment)}
    assert found == {(topic, "CreateTime"), (stamped, "LogAppendTime")}


@pytest.mark.usefixtures("either_intake")
@pytest.mark.parametrize("memory", ["256MiB", "64MiB"])
def test_records_larger_than_every_buffer_land(kafka: Cluster, deploy: Deploy, memory: str) -> None:
    """A record may be larger than the whole memory budget leaves for records."""
    topic = topics.create(kafka.bootstrap, partitions=2, config={"max.message.bytes": 40 * MIB})
    noise = random.Random(0).randbytes(32 * MIB)
    large = [Record(value=noise[:size], partition=number % 2) for number, size in enumerate(LARGE)]
    topics.produce(kafka.bootstrap, topic, large, {"message.max.bytes": 40 * MIB})
    deployment = deploy(topic, memory=memory)

    deployment.once()

    assert len(deployment.expect([topic])) == len(LARGE)


LARGE = (20_000_000, 10, 32 * MIB - 1000, 32 * MIB, 100)


def test_rows_are_partitioned_by_the_day_of_their_ingestion(kafka: Cluster, deploy: Deploy) -> None:
    """The partition is the day of ingestion, whatever the record's own timestamp says."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(
        kafka.bootstrap, topic, [Record(value=b"%d" % day, timestamp_ms=day * 86_400_000) for day in range(99)]
    )
    deployment = deploy(topic, partition_by=["ingest_date"], extra_columns=ALL_EXTRAS)
    before = datetime.now(UTC).date()

    deployment.once()

    deployment.expect([topic])
    days = {row["ingest_date"] for row in rows(deployment)}
    assert days <= {before, datetime.now(UTC).date()}
    assert {path.split("/")[0] for path in deployment.log().data_files} == {f"ingest_date={day}" for day in days}


# --- topics and partitions that appear later ---


@PROTOCOLS
def test_topics_and_partitions_that_appear_later_are_picked_up(
    kafka: Cluster, deploy: Deploy, protocol: dict[str, str]
) -> None:
    """A regex keeps matching, and takes neither another beginning nor another end."""
    prefix = topics.unique("match")
    first = topics.create(kafka.bootstrap, f"{prefix}.v1")
    topics.create(kafka.bootstrap, f"other.{prefix}.v1")
    deployment = deploy(f"^{prefix}\\.v[0-9]+$", kafka=protocol)
    topics.produce(kafka.bootstrap, first, keyed(10))
    deployment.start()
    deployment.wait_for_rows(10)

    second = topics.create(kafka.bootstrap, f"{prefix}.v2", partitions=2)
    topics.create(kafka.bootstrap, f"{prefix}.v2-dlq")
    topics.grow(kafka.bootstrap, first, 3)
    for topic in (first, second):
        topics.produce(kafka.bootstrap, topic, [Record(value=b"%d" % n, partition=n % 2) for n in range(20)])

    assert len(deployment.expect([first, second])) == 50


@PROTOCOLS
def test_a_partition_that_appears_under_start_latest_is_read_from_its_head(
    kafka: Cluster, deploy: Deploy, protocol: dict[str, str]
) -> None:
    """`start` is for what was there when it applied; what appears later has no past to skip."""
    topic = topics.create(kafka.bootstrap)
    old = topics.produce(kafka.bootstrap, topic, keyed(7))
    deployment = deploy(topic, start="latest", kafka=protocol)
    ingestor = deployment.start()
    ingestor.wait_for("placed")

    topics.grow(kafka.bootstrap, topic, 2)
    topics.produce(kafka.bootstrap, topic, [Record(value=b"%d" % n, partition=n % 2) for n in range(20)])

    skipped = [(topic, each.partition, each.offset) for each in old]
    assert len(deployment.expect([topic], lost=skipped)) == 27


def test_a_topic_that_appears_under_start_latest_is_read_from_its_head(kafka: Cluster, deploy: Deploy) -> None:
    """That holds also if the first process dies before it has committed anything."""
    named, matching = topics.unique("named"), topics.unique("matching")
    deployment = deploy.routes(
        {
            "named": {"topics": [named], "start": "latest"},
            "matching": {"topics": [f"^{matching}$"], "start": "latest", "flush": {"seconds": 600}},
        },
    )
    ingestor = deployment.start()
    ingestor.wait_for("started")

    for topic in (named, matching):
        topics.create(kafka.bootstrap, topic, partitions=2)
        topics.produce(kafka.bootstrap, topic, keyed(20))

    assert len(deployment.expect([named], route="named")) == 20
    ingestor.kill()  # before it has committed anything of the topic that matched
    assert deployment.log("matching").rows == 0
    deployment.once()
    assert len(deployment.expect([matching], route="matching")) == 20


def test_ingestion_starts_at_the_time_that_start_names(kafka: Cluster, deploy: Deploy) -> None:
    """Records before the moment are not read, in whatever zone it is written."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    moments = [noon + timedelta(minutes=number - 10) for number in range(20)]
    sent = [
        Record(value=b"%d" % number, partition=number % 2, timestamp_ms=int(moment.timestamp() * 1000))
        for number, moment in enumerate(moments)
    ]
    landed = topics.produce(kafka.bootstrap, topic, sent)
    deployment = deploy(topic, start="2026-01-31T13:00:00+01:00")

    deployment.once()

    earlier = [(topic, at.partition, at.offset) for at, moment in zip(landed, moments, strict=True) if moment < noon]
    assert len(earlier) == 10
    deployment.expect([topic], lost=earlier)


# --- draining with --once ---


def test_once_ends_at_the_ends_that_it_saw_at_its_start(kafka: Cluster, deploy: Deploy) -> None:
    """Aborted records, markers and an open transaction at an end are no reason to wait, nor are later records."""
    ragged = topics.create(kafka.bootstrap, partitions=5)
    busy = topics.create(kafka.bootstrap)
    deployment = deploy.routes({"ragged": {"topics": [ragged]}, "busy": {"topics": [busy]}})
    kinds: list[tuple[int, Any]] = [(0, "commit"), (1, "abort"), (2, "commit"), (2, "abort"), (2, "hang"), (3, "hang")]
    for partition, end in kinds:
        records = [Record(value=end.encode(), partition=partition) for _ in range(5)]
        topics.transact(kafka.bootstrap, ragged, records, end=end)
    topics.produce(kafka.bootstrap, busy, keyed(1_000))

    with Traffic(kafka.bootstrap, busy, partitions=1):
        ingestor = deployment.once(seconds_max=20)

    assert len(deployment.judge_committed([ragged], route="ragged")) == 10
    deployment.judge_committed([busy], route="busy", complete=False)
    assert deployment.log("busy").rows >= 1_000
    assert "ingestor: done" in ingestor.last_line


def test_once_ends_however_quickly_the_end_of_a_partition_is_told(kafka: Cluster, deploy: Deploy) -> None:
    """An end that is told in the poll that assigned the partition counts as well."""
    topic = topics.create(kafka.bootstrap, partitions=3)
    for end in ("commit", "abort"):
        topics.transact(kafka.bootstrap, topic, [Record(value=b"v", partition=0)] * 3, end=end)
    # The answer that a partition is at its end then comes in the very poll in which the partition was assigned.
    deployment = deploy(topic, kafka={"fetch.wait.max.ms": 1})

    for _ in range(3):
        deployment.once(seconds_max=20)

    assert len(deployment.judge_committed([topic])) == 3


def test_once_after_a_kill_waits_until_the_group_gives_the_dead_up(kafka: Cluster, deploy: Deploy) -> None:
    """Nothing assigned yet is not the same as nothing to do."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic, kafka={"session.timeout.ms": 14_000})
    ingestor = deployment.start()
    ingestor.wait_for("placed")
    ingestor.kill()
    topics.produce(kafka.bootstrap, topic, keyed(5))

    deployment.once()

    assert len(deployment.judge_committed([topic])) == 5


def test_once_on_topics_without_records_ends(kafka: Cluster, deploy: Deploy) -> None:
    """There is nothing to do, and so it is done."""
    deployment = deploy(topics.create(kafka.bootstrap, partitions=3))

    deployment.once(seconds_max=20)

    assert deployment.log().rows == 0


# --- from one process to the next ---


@PROTOCOLS
def test_a_restart_goes_on_without_reading_anything_again(
    kafka: Cluster, deploy: Deploy, protocol: dict[str, str]
) -> None:
    """The table alone says where to go on, and Kafka's lag tools see the same."""
    topic = topics.create(kafka.bootstrap, partitions=4)
    deployment = deploy(topic, kafka=protocol)
    for count in (400, 300):
        topics.produce(kafka.bootstrap, topic, [Record(value=b"v", partition=n % 4) for n in range(count)])
        ends = {f"{topic}:{number}": at for number, at in positions(deployment, topic).items()}
        ingestor = deployment.start()
        deployment.expect([topic])
        ingestor.stop()
        assert ingestor.wait() == 0
        (placed,) = ingestor.events("placed")
        assert placed["positions"] == ends
        assert sum(each["rows"] for each in ingestor.events("committed")) == count

    assert group_offsets(deployment, topic) == positions(deployment, topic)


def keyed(count: int) -> list[Record]:
    """Records whose keys spread them over all partitions."""
    return [Record(value=b"value %d" % number, key=b"%d" % number) for number in range(count)]


def rows(deployment: Deployment) -> list[dict[str, Any]]:
    """The table's rows, as another program reads them."""
    found: list[dict[str, Any]] = DeltaTable(str(deployment.table())).to_pyarrow_table().to_pylist()
    return found


def positions(deployment: Deployment, topic: str) -> dict[int, int]:
    """Where the table says that each partition goes on."""
    txns = deployment.txns()
    return {number: txns.get(deployment.app_id_of(topic, number), -1) + 1 for number in range(4)}


def group_offsets(deployment: Deployment, topic: str) -> dict[int, int]:
    """What the group has committed to Kafka."""
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    group = str(deployment.document["kafka"]["group.id"])
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(4)])
    answer = admin.list_consumer_group_offsets([asked])[group].result(10)
    return {each.partition: each.offset for each in answer.topic_partitions}
