"""Reads ranges of partitions outside of any group: what an audit holds a table against, and what is left to land."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.broker import Broker, asking, kafka_failure
from ingestor.by_hand import by_hand
from ingestor.errors import Unavailable
from ingestor.extract import extract, extract_stamps
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ingestor.records import Columns

_BATCH = 5_000
_POLL_SECONDS = 0.2
_PEEK = {"queued.min.messages": "1", "max.partition.fetch.bytes": str(64 << 10)}  # one record each will do
_PEEK_BATCH = 1_000
_PEEK_POLL_SECONDS = 0.1
_PEEK_SECONDS = 10.0
_TOGETHER = 64  # partitions that one consumer reads: each has a queue of its own
_SHOWN = 3
_SILENT_SECONDS = 30.0  # then Kafka counts as gone


def first_committed(
    config: Mapping[str, str], spans: Mapping[TopicPartition, tuple[int, int]], *, seconds_max: float = _PEEK_SECONDS
) -> dict[TopicPartition, int]:
    """Return where the first committed record of each span stands, its end if there is none.

    What is not found in time is left out: a long run of aborted records takes reading to get over.
    """
    if not spans:
        return {}
    consumer = Consumer({**_forgiving(config, "read_committed"), **_PEEK})
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


def _forgiving(config: Mapping[str, str], isolation: str) -> dict[str, Any]:
    """Return a reader's options: retention may be quicker than it is, then it begins where Kafka does."""
    return {**by_hand(config, "audit", isolation=isolation), "auto.offset.reset": "earliest"}


class KafkaReader:
    """Kafka as an audit sees it (`audit.RecordReader`)."""

    def __init__(self, config: Mapping[str, str], *, extras: Collection[str]) -> None:
        self._config = dict(config)
        self._extras = frozenset(extras)
        self._broker = Broker(config)

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id; None if the cluster does not tell."""
        return self._broker.topic_ids([topic]).get(topic)

    def compacted(self, topic: str) -> bool:
        """Tell whether the topic's cleanup policy lets records vanish in the middle."""
        return self._broker.compacted(topic)

    def watermarks(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return the first retained and the next offset; None if there is no such partition."""
        if self._broker.topics().get(tp.topic, 0) <= tp.partition:
            return None
        marks = self._broker.watermarks([tp])[tp]
        return marks.low, marks.high

    def read(self, tp: TopicPartition, first: int, last: int, *, aborted: bool = False) -> Iterator[Columns]:
        """Yield the records of a range, both ends included, in order; with `aborted` those too."""
        for _, columns in self.read_all({tp: (first, last)}, aborted=aborted):
            yield columns

    def read_all(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, aborted: bool = False
    ) -> Iterator[tuple[TopicPartition, Columns]]:
        """Yield the records of a range of each partition, in order within a partition; many share one consumer."""
        left = iter(sorted(ranges.items()))
        while part := dict(itertools.islice(left, _TOGETHER)):
            consumer = Consumer(_forgiving(self._config, "read_uncommitted" if aborted else "read_committed"))
            try:
                consumer.assign([KafkaTopicPartition(*tp, first) for tp, (first, _) in part.items()])
                yield from self._ranges(consumer, part)
            finally:
                consumer.close()

    def _ranges(
        self, consumer: Consumer, waiting: dict[TopicPartition, tuple[int, int]]
    ) -> Iterator[tuple[TopicPartition, Columns]]:
        heard_at = time.monotonic()
        while waiting:
            if time.monotonic() - heard_at > _SILENT_SECONDS:
                shown = ", ".join(map(str, list(waiting)[:_SHOWN]))
                raise Unavailable(f"Kafka sent nothing more of {shown} for {_SILENT_SECONDS:g} seconds")
            with asking("reading Kafka"):
                messages = consumer.consume(_BATCH, _POLL_SECONDS)
            if messages:
                heard_at = time.monotonic()
            for tp, records in _sorted_out(messages, waiting):
                stamps = extract_stamps(records, self._extras)
                yield tp, extract(records, stamps, (tp.topic,), np.zeros(len(records), np.int32), self._extras)
                heard_at = time.monotonic()  # what is done with them may take its time
            done = [KafkaTopicPartition(*tp) for tp in _assigned(consumer) if tp not in waiting]
            if done:
                consumer.incremental_unassign(done)


def _assigned(consumer: Consumer) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment()]


def _sorted_out(
    messages: list[Message], waiting: dict[TopicPartition, tuple[int, int]]
) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """Return the records of each partition that lie in its range; whoever is through no longer waits."""
    records: dict[TopicPartition, list[Message]] = {}
    for message in messages:
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        if tp not in waiting:
            continue
        (first, last), error = waiting[tp], message.error()
        if error is None:
            offset = cast("int", message.offset())
            if first <= offset <= last:  # beyond Kafka's end the client falls back to its beginning
                records.setdefault(tp, []).append(message)
            if offset >= last:
                del waiting[tp]
        elif error.code() == KafkaError._PARTITION_EOF:
            del waiting[tp]
        else:
            raise kafka_failure(error, doing=f"reading {tp}")
    return iter(records.items())
