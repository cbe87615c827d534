"""What the audit reads of Kafka: many partitions at once, each in its range and order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingestor.audit.consumer import KafkaReader
from ingestor.kafka.reader import first_committed
from ingestor.kafka.written import first_written
from ingestor.records import TopicPartition
from tests.support.kafka import topics
from tests.support.kafka.topics import Record

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration

PARTITIONS = 70  # more than one consumer takes at once


def config(kafka: Cluster) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap, "group.id": "nobody"}


def test_many_partitions_are_read_each_in_its_range_and_order(kafka: Cluster) -> None:
    """Whatever is before or behind, aborted, or not there at all."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    rows = [Record(value=b"%d" % n, partition=p) for p in range(PARTITIONS - 1) for n in range(6)]
    topics.produce(kafka.bootstrap, topic, rows)
    topics.transact(kafka.bootstrap, topic, [Record(value=b"aborted", partition=0)] * 3, end="abort")
    reader = KafkaReader(config(kafka))

    found: dict[TopicPartition, list[int]] = {}
    ranges = {TopicPartition(topic, partition): (2, 4 if partition else 8) for partition in range(PARTITIONS)}
    for tp, messages in reader.read_all(ranges):
        found.setdefault(tp, []).extend(message.offset() or 0 for message in messages)

    assert found.pop(TopicPartition(topic, 0)) == [2, 3, 4, 5]
    assert found == {TopicPartition(topic, partition): [2, 3, 4] for partition in range(1, PARTITIONS - 1)}
    aborted = reader.read(TopicPartition(topic, 0), 5, 8, aborted=True)
    assert [message.offset() for messages in aborted for message in messages] == [5, 6, 7, 8]
    assert reader.watermarks(TopicPartition(topic, 0)) == (0, 10)
    assert reader.watermarks(TopicPartition(topic, PARTITIONS)) is None
    reader.close()


def test_the_first_committed_record_of_a_range_is_found_behind_whatever_lies_before_it(kafka: Cluster) -> None:
    """Or there is none, and then the range's end is told."""
    topic = topics.create(kafka.bootstrap, partitions=3)
    topics.transact(kafka.bootstrap, topic, [Record(value=b"x", partition=0)] * 3, end="abort")
    topics.transact(kafka.bootstrap, topic, [Record(value=b"x", partition=p) for p in (0, 1)])

    found = first_committed(config(kafka), {TopicPartition(topic, 0): (0, 6), TopicPartition(topic, 1): (1, 2)})

    assert found == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 2}
    assert first_committed(config(kafka), {}) == {}


def test_when_the_first_record_of_a_range_was_written_is_found(kafka: Cluster) -> None:
    """Its own timestamp, whatever lies before it; where there is only a marker, there is no record."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(
        kafka.bootstrap, topic, [Record(value=b"x", partition=0, timestamp_ms=number) for number in (1, 2, 3)]
    )
    topics.transact(kafka.bootstrap, topic, [Record(value=b"x", partition=1)], end="abort")

    found = first_written(config(kafka), {TopicPartition(topic, 0): (1, 3), TopicPartition(topic, 1): (0, 2)})

    assert found == {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): None}
