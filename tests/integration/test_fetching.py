"""Fetching: how often a broker is asked for records, and what comes that is none."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from ingestor.kafka.consumer import KafkaSource
from ingestor.kafka.extract import extract_stamps
from ingestor.kafka.options import consumer_options
from tests.support.kafka import topics
from tests.support.listener import FromTheHead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration

FLUSH_SECONDS = 2.0
WAIT_SECONDS = FLUSH_SECONDS / 10
RECORDS = 150
QUEUE_BYTES = 32 << 20


def options(config: Mapping[str, str], flush_seconds: float = FLUSH_SECONDS) -> dict[str, str]:
    return consumer_options(config, QUEUE_BYTES, flush_seconds)


def test_records_that_come_one_by_one_are_fetched_together(kafka: Cluster) -> None:
    """A broker that answered for each would answer for all of them."""
    topic = topics.create(kafka.bootstrap)
    fetches: list[int] = []

    def count(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        fetches.append(sum(broker["req"].get("Fetch", 0) for broker in brokers))

    config = options({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    consumer = Consumer({**config, "statistics.interval.ms": 50, "stats_cb": count})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    seen = 0
    began = time.monotonic()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while not any(message.error() for message in consumer.consume(1, 0.1)):  # it says that it is at the end: it fetches
        assert time.monotonic() - began < 60
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        seen += sum(message.error() is None for message in consumer.consume(100, 0))
    while seen < RECORDS:
        assert time.monotonic() - began < 60
        seen += sum(message.error() is None for message in consumer.consume(100, 0.1))
    counted = len(fetches)
    while len(fetches) == counted:  # a report that was made after the last record
        consumer.poll(0.1)
    elapsed = time.monotonic() - began
    consumer.close()

    assert 0 < fetches[-1] <= elapsed / WAIT_SECONDS + 3


def test_no_event_has_a_timestamp(kafka: Cluster) -> None:
    """The source looks for events only where a timestamp is missing; librdkafka gives them none, of whatever kind."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"record", partition=0)
    assert producer.flush(30) == 0
    assigned = Consumer(options({"bootstrap.servers": kafka.bootstrap, "group.id": topic}))
    assigned.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 7)])
    subscribed = Consumer(options({"bootstrap.servers": kafka.bootstrap, "group.id": f"{topic}-2"}))
    subscribed.subscribe(["no-such-topic"])
    wanted = {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.UNKNOWN_TOPIC_OR_PART}
    seen: list[Message] = []
    began = time.monotonic()
    while wanted - {error.code() for message in seen if (error := message.error()) is not None}:
        assert time.monotonic() - began < 60, f"only {[message.error() for message in seen]} came"
        seen += [*assigned.consume(10, 0.1), *subscribed.consume(10, 0.1)]
    assigned.close()
    subscribed.close()

    stamps = extract_stamps(seen, ())
    events = [message.error() is not None for message in seen]
    assert not stamps.all_there
    assert [ms == -1 for ms in stamps.ms.tolist()] == events
    assert not all(events)


@pytest.mark.usefixtures("either_intake")
def test_events_among_the_records_of_two_routes_move_nothing(kafka: Cluster) -> None:
    """Each record keeps its own timestamp; the ends of empty partitions come first in the same poll."""
    names = sorted(topics.create(kafka.bootstrap, partitions=2) for _ in range(2))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(400):
        stamp = 1_700_000_000_000 + number
        producer.produce(names[number % 2], b"%d" % stamp, partition=0, timestamp=stamp)
    assert producer.flush(30) == 0
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": names[0]}
    source = KafkaSource(config, names, route_of=str, queue_bytes=QUEUE_BYTES, flush_seconds=FLUSH_SECONDS)
    listener = FromTheHead()
    source.subscribe(listener)
    mixed, seen = False, 0
    began = time.monotonic()
    while not mixed or seen < 400:
        assert time.monotonic() - began < 60
        if seen == 400:  # what came of the two did not come together
            seen = 0
            source.reposition(dict.fromkeys(listener.owned, 0), kept={})
        polled = source.poll(1_000, 1.0)  # takes so long while fewer come
        mixed |= bool(polled.ends) and len(polled.columns) == 2
        for route, columns in polled.columns:
            assert {columns.topics[code] for code in columns.topic_codes} == {route}
            assert columns.timestamps_ms.tolist() == [int(value or 0) for value in pa.array(columns.values).to_pylist()]
            seen += len(columns)
    source.close()
    assert seen == 400


@pytest.mark.parametrize(
    ("flush_seconds", "wait_ms"), [(0.001, "1"), (0.5, "50"), (1, "100"), (5, "500"), (3600, "500")]
)
def test_what_a_broker_may_wait_follows_the_flush(flush_seconds: float, wait_ms: str) -> None:
    """At most a tenth of it, and never longer than by default."""
    assert options({}, flush_seconds)["fetch.wait.max.ms"] == wait_ms


@pytest.mark.parametrize("memory", [1 << 20, 32 << 20, 1 << 30])
def test_a_broker_never_waits_for_more_than_it_may_send(memory: int) -> None:
    """Else each answer of a partition with a backlog would come late, and make it longer."""
    wanted = consumer_options({}, memory, FLUSH_SECONDS)
    least = int(wanted["fetch.min.bytes"])
    assert least < int(wanted["max.partition.fetch.bytes"])
    assert least < int(wanted["fetch.max.bytes"])


@pytest.mark.parametrize("limit", ["fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes"])
def test_who_limits_answers_is_not_made_to_wait(limit: str) -> None:
    """What may be sent is theirs to say, so it may be less than what we would wait for."""
    assert "fetch.min.bytes" not in options({limit: "1000"})


def test_what_the_user_says_of_waiting_holds() -> None:
    """As of all options that the guarantee does not need."""
    wanted = options({"fetch.min.bytes": "1", "fetch.wait.max.ms": "7"})
    assert (wanted["fetch.min.bytes"], wanted["fetch.wait.max.ms"]) == ("1", "7")
