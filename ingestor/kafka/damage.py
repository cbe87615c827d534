"""Where a partition can be read again behind a batch that fails its checksum.

Kafka's client tells where such a batch begins, not where it ends, and it does not find its way to the next one by
itself. A batch is the least that a broker gives, so whatever offset of it is asked for, the whole of it comes and
fails: the first offset that does not fail is the one behind it. It is looked for in growing steps and then by halves,
with a consumer of its own. Between two damaged batches that lie close a sound one may be passed over; the gap says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.errors import Unavailable
from ingestor.kafka.by_hand import by_hand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ingestor.records import TopicPartition

_POLL_SECONDS = 0.1
_SILENT_SECONDS = 10.0


def first_readable(config: Mapping[str, str], tp: TopicPartition, damaged: int, end: int) -> int:
    """Return the first offset behind a damaged one, at most `end`, from which the partition can be read."""
    consumer = Consumer({**by_hand(config, "damage"), "check.crcs": "true"})
    try:
        return search(lambda offset: _readable(consumer, tp, offset), damaged, end)
    finally:
        consumer.close()


def search(readable: Callable[[int], bool], damaged: int, end: int) -> int:
    """Return an offset behind `damaged` that is readable while the one before is not; `end` counts as readable."""
    bad, step = damaged, 1
    while (good := min(end, bad + step)) < end and not readable(good):
        bad, step = good, step * 2
    while good - bad > 1:
        middle = (bad + good) // 2
        if readable(middle):
            good = middle
        else:
            bad = middle
    return max(good, damaged + 1)


def _readable(consumer: Consumer, tp: TopicPartition, offset: int) -> bool:
    """Tell whether what Kafka gives from an offset on begins with something sound."""
    consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, offset)])
    deadline = time.monotonic() + _SILENT_SECONDS
    while time.monotonic() < deadline:
        try:
            message = consumer.poll(_POLL_SECONDS)
        except KafkaException:
            continue
        if message is None:
            continue
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() == KafkaError._BAD_MSG:
            return False
    msg = f"Kafka does not tell where {tp} can be read again behind offset {offset}"
    raise Unavailable(msg)
