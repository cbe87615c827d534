"""Looks for the first committed records of ranges, outside of any group: what is left to land."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.kafka.broker import asking, kafka_failure
from ingestor.kafka.by_hand import by_hand
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

_PEEK = {"queued.min.messages": "1", "max.partition.fetch.bytes": str(64 << 10)}  # one record each will do
_PEEK_BATCH = 1_000
_PEEK_POLL_SECONDS = 0.1
_PEEK_SECONDS = 10.0


def first_committed(
    config: Mapping[str, str], spans: Mapping[TopicPartition, tuple[int, int]], *, seconds_max: float = _PEEK_SECONDS
) -> dict[TopicPartition, int]:
    """Return where the first committed record of each span stands, its end if there is none.

    What is not found in time is left out: a long run of aborted records takes reading to get over.
    """
    if not spans:
        return {}
    # Retention may be quicker than the caller's look: then it begins where Kafka does.
    consumer = Consumer({**by_hand(config, "lag"), "auto.offset.reset": "earliest", **_PEEK})
    found: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + seconds_max
    try:
        consumer.assign([KafkaTopicPartition(*tp, first) for tp, (first, _) in spans.items()])
        while len(found) < len(spans) and time.monotonic() < deadline:
            with asking("looking for records that are left"):
                messages = consumer.consume(_PEEK_BATCH, _PEEK_POLL_SECONDS)
            for message in messages:
                tp = TopicPartition(message.topic() or "", message.partition() or 0)
                at, error = message.offset() or 0, message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise kafka_failure(error, doing=f"reading {tp}")
                if tp in spans and tp not in found and (error is None or at >= spans[tp][1]):
                    found[tp] = min(at, spans[tp][1])
                    consumer.pause([KafkaTopicPartition(*tp)])
    finally:
        consumer.close()
    return found
