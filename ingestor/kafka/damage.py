"""Finds where a partition is readable again after a damaged batch, one that fails its checksum.

librdkafka reports where such a batch begins, not where it ends, and does not skip it. A broker sends whole batches, so
a fetch at any offset of a damaged batch fails: the first offset that does not fail is the one after it. A separate
consumer searches for it in growing steps, then by bisection. An intact batch between two nearby damaged ones may be
skipped; the gap includes it.
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
    """Return the first readable offset after a damaged one, at most `end`."""
    consumer = Consumer({**by_hand(config, "damage"), "check.crcs": "true"})
    try:
        return search(lambda offset: _readable(consumer, tp, offset), damaged, end)
    finally:
        consumer.close()


def search(readable: Callable[[int], bool], damaged: int, end: int) -> int:
    """Return an offset above `damaged` that is readable while the one before is not; `end` counts as readable."""
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
    """Return whether the batch at an offset is intact."""
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
    msg = f"Kafka sent neither a record nor an error of {tp} at offset {offset} in {_SILENT_SECONDS:g} s"
    raise Unavailable(msg)
