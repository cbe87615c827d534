"""What comes of a range: its records, when it is through, and which errors end the reading."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from ingestor.errors import RefusedError, Unavailable
from ingestor.kafka.ranges import _sorted_out
from ingestor.records import TopicPartition

ONE, TWO = TopicPartition("a", 1), TopicPartition("a", 2)
EOF, AWAY, DENIED = KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError.TOPIC_AUTHORIZATION_FAILED


def message(tp: TopicPartition | None, offset: int, error: int | None = None) -> Message:
    topic, partition = tp or (None, -1)
    return Message(topic=topic, partition=partition, offset=offset, error=None if error is None else KafkaError(error))


def came(
    waiting: dict[TopicPartition, tuple[int, int]], *messages: Message, hidden: bool = True
) -> dict[TopicPartition, list[int | None]]:
    found = _sorted_out(messages, waiting, doing="reading", hidden=hidden)
    return {tp: [each.offset() for each in records] for tp, records in found.items()}


def test_records_of_a_range_come_and_no_others() -> None:
    """Those before it come where the client fell back to the beginning, those behind it with the last batch."""
    waiting = {ONE: (3, 5), TWO: (0, 9)}
    messages = [message(ONE, at) for at in (0, 3, 4, 5)]
    assert came(waiting, *messages, message(TWO, 7)) == {ONE: [3, 4], TWO: [7]}
    assert waiting == {TWO: (0, 9)}


def test_a_partition_is_through_at_its_end_even_without_a_record() -> None:
    """Its last offsets may be aborted records or a transaction's marker."""
    waiting = {ONE: (3, 5)}
    assert came(waiting, message(ONE, 5, EOF)) == {ONE: []}
    assert waiting == {}


@pytest.mark.parametrize("hidden", [True, False])
def test_what_an_open_transaction_hides_is_waited_for_only_by_who_wants_it(*, hidden: bool) -> None:
    """Kafka tells the end of what it shows, which is before the end of the range."""
    waiting = {ONE: (3, 5)}
    assert came(waiting, message(ONE, 4, EOF), hidden=hidden) == ({} if hidden else {ONE: []})
    assert waiting == ({ONE: (3, 5)} if hidden else {})


def test_errors_end_the_reading_unless_a_broker_may_come_back() -> None:
    """Of a partition that is read any does; of the whole client one that no waiting mends."""
    with pytest.raises(Unavailable):
        came({ONE: (0, 5)}, message(ONE, 0, AWAY))
    with pytest.raises(RefusedError):
        came({ONE: (0, 5)}, message(None, -1, DENIED))
    assert came({ONE: (0, 5)}, message(None, -1, AWAY), message(ONE, 0)) == {ONE: [0]}
