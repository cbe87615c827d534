"""Reads ranges of offsets outside of any group: for the audit, for dead letters, and for what is left to land."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.errors import Unavailable
from ingestor.kafka.broker import asking, kafka_failure
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import Message

    Range = tuple[int, int]  # the end is not included
    Headers = Sequence[tuple[str, str | bytes | None]]

_BATCH = 5_000
_POLL_SECONDS = 0.1
_SHOWN = 3


class SilentError(Unavailable):
    """Nothing came for as long as the caller waits."""


def read(
    options: Mapping[str, Any],
    waiting: dict[TopicPartition, Range],
    *,
    doing: str,
    silent_seconds: float,
    hidden: bool = True,
) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """Yield the records of ranges, in order within a partition; none if a partition is through without any.

    `waiting` loses each partition that is through; who has enough of one may take it out. An open transaction hides
    what follows it: with `hidden` that is waited for, else a partition is through where Kafka shows no more.
    """
    consumer = Consumer(dict(options))
    try:
        consumer.assign([KafkaTopicPartition(*tp, first) for tp, (first, _) in waiting.items()])
        heard_at = time.monotonic()
        while waiting:
            if time.monotonic() - heard_at > silent_seconds:
                shown = ", ".join(map(str, list(waiting)[:_SHOWN]))
                raise SilentError(f"{doing}: nothing more came of {shown} for {silent_seconds:g} s")
            with asking(doing):
                messages = consumer.consume(_BATCH, _POLL_SECONDS)
            yield from _sorted_out(messages, waiting, doing=doing, hidden=hidden).items()
            if any(message.error() is None for message in messages):
                heard_at = time.monotonic()  # what is done with them may take its time
            done = [tp for tp in consumer.assignment() if TopicPartition(tp.topic, tp.partition) not in waiting]
            if done:
                consumer.incremental_unassign(done)
    finally:
        consumer.close()


def _sorted_out(
    messages: Sequence[Message], waiting: dict[TopicPartition, Range], *, doing: str, hidden: bool
) -> dict[TopicPartition, list[Message]]:
    """Return the records of each partition that lie in its range; whoever is through no longer waits."""
    found: dict[TopicPartition, list[Message]] = {}
    for message in messages:
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        error, position = message.error(), message.offset() or 0
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            failure = kafka_failure(error, doing=doing)
            if tp in waiting or not isinstance(failure, Unavailable):
                raise failure
            continue  # a broker that is away for a moment: `read` waits for it
        if tp not in waiting:
            continue
        first, end = waiting[tp]
        if error is None:
            if first <= position < end:  # beyond Kafka's end the client falls back to its beginning
                found.setdefault(tp, []).append(message)
            position += 1
        if position >= end or (error is not None and not hidden):
            found.setdefault(tp, [])
            del waiting[tp]
    return found


def headers(message: Message) -> Headers:
    """Return a record's headers, in order."""
    found = message.headers() or []
    return list(found.items()) if isinstance(found, dict) else found
