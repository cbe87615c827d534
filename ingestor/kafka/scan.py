"""Looks what has already got to a topic, from an offset that was noted before anything could be sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.errors import Unavailable
from ingestor.kafka.broker import asking, kafka_failure
from ingestor.kafka.by_hand import by_hand
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Headers = list[tuple[str, bytes | None]]
_BATCH = 5_000
_POLL_SECONDS = 0.1
# Another program's open transaction hides what lies behind it, by default for a minute at most.
_SILENT_SECONDS = 90.0


def committed_headers(config: Mapping[str, str], spans: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[Headers]:
    """Yield the headers of committed records, of each partition from an offset to an end that is there already."""
    waiting = {tp: end for tp, (first, end) in spans.items() if first < end}
    if not waiting:
        return
    consumer = Consumer(by_hand(config, "dlq"))
    try:
        consumer.assign([KafkaTopicPartition(*tp, spans[tp][0]) for tp in waiting])
        yield from _until_ends(consumer, waiting)
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, waiting: dict[TopicPartition, int]) -> Iterator[Headers]:
    heard_at = time.monotonic()
    while waiting:
        if time.monotonic() - heard_at > _SILENT_SECONDS:
            shown = ", ".join(map(str, sorted(waiting)[:3]))
            raise Unavailable(f"Kafka sent nothing more of {shown} for {_SILENT_SECONDS:g} s: a transaction is open")
        with asking("reading what was sent before"):
            messages = consumer.consume(_BATCH, _POLL_SECONDS)
        for message in messages:
            heard_at = time.monotonic()
            tp = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                yield message.headers() or []  # type: ignore[misc]  # a list, whatever its stubs say
                position = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                position = message.offset() or 0
            else:
                raise kafka_failure(error, doing=f"reading {tp}")
            if position >= waiting.get(tp, position + 1):
                del waiting[tp]
