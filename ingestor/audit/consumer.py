"""Reads Kafka's records for an audit: committed records of given ranges, as the client's own message objects.

The ingestor reads columns in batches (`intake`, `extract`, `native/`); none of that code is used here.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.errors import Unavailable
from ingestor.kafka.broker import Broker, asking, kafka_failure
from ingestor.kafka.by_hand import by_hand
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Range = tuple[int, int]  # both ends included

_BATCH = 5_000
_POLL_SECONDS = 0.2
_TOGETHER = 64  # partitions that one consumer reads: each has a queue of its own
_SHOWN = 3
_SILENT_SECONDS = 30.0  # then Kafka counts as gone
_ASK_SECONDS = 10.0


class KafkaReader:
    """Kafka as an audit sees it (`audit.RecordReader`)."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._broker = Broker(config)
        self._partitions: dict[str, int] | None = None
        self._asker: Consumer | None = None

    def close(self) -> None:
        """Close the connections to Kafka."""
        if self._asker is not None:
            self._asker.close()

    def topic_id(self, topic: str) -> str | None:
        """Return the topic's id, None if it is unknown."""
        return self._broker.topic_ids([topic]).get(topic)

    def compacted(self, topic: str) -> bool:
        """Return whether the topic is compacted, so that records may vanish in the middle."""
        return self._broker.compacted(topic)

    def watermarks(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return the first retained and the next offset; None if there is no such partition."""
        if self._partitions is None:
            self._partitions = self._broker.topics()
        if self._partitions.get(tp.topic, 0) <= tp.partition:
            return None
        if self._asker is None:
            self._asker = Consumer(self._options("read_uncommitted"))
        with asking(f"asking Kafka where {tp} begins and ends"):
            found = self._asker.get_watermark_offsets(KafkaTopicPartition(*tp), timeout=_ASK_SECONDS, cached=False)
        if found is None:
            raise Unavailable(f"asking Kafka where {tp} begins and ends: no answer in time")
        return int(found[0]), int(found[1])

    def _options(self, isolation: str) -> dict[str, Any]:
        """Return a consumer's options; if retention has removed the first offsets, it begins at Kafka's first."""
        return {**by_hand(self._config, "audit", isolation=isolation), "auto.offset.reset": "earliest"}

    def read(self, tp: TopicPartition, first: int, last: int, *, aborted: bool = False) -> Iterator[list[Message]]:
        """Yield the records of a range, both ends included, in order; with `aborted` those too."""
        for _, messages in self.read_all({tp: (first, last)}, aborted=aborted):
            yield messages

    def read_all(
        self, ranges: Mapping[TopicPartition, Range], *, aborted: bool = False
    ) -> Iterator[tuple[TopicPartition, list[Message]]]:
        """Yield the records of a range of each partition, in order within a partition; many share one consumer."""
        left = iter(sorted(ranges.items()))
        while part := dict(itertools.islice(left, _TOGETHER)):
            consumer = Consumer(self._options("read_uncommitted" if aborted else "read_committed"))
            try:
                consumer.assign([KafkaTopicPartition(*tp, first) for tp, (first, _) in part.items()])
                yield from self._ranges(consumer, part)
            finally:
                consumer.close()

    def _ranges(
        self, consumer: Consumer, waiting: dict[TopicPartition, Range]
    ) -> Iterator[tuple[TopicPartition, list[Message]]]:
        heard_at = time.monotonic()
        while waiting:
            if time.monotonic() - heard_at > _SILENT_SECONDS:
                shown = ", ".join(map(str, list(waiting)[:_SHOWN]))
                raise Unavailable(f"Kafka sent nothing more of {shown} for {_SILENT_SECONDS:g} seconds")
            with asking("reading Kafka"):
                messages = consumer.consume(_BATCH, _POLL_SECONDS)
            if messages:
                heard_at = time.monotonic()
            for tp, records in _sorted_out(messages, waiting).items():
                yield tp, records
                heard_at = time.monotonic()  # what is done with them may take its time
            done = [tp for tp in consumer.assignment() if TopicPartition(tp.topic, tp.partition) not in waiting]
            if done:
                consumer.incremental_unassign(done)


def _sorted_out(messages: list[Message], waiting: dict[TopicPartition, Range]) -> dict[TopicPartition, list[Message]]:
    """Return the records of each partition that lie in its range; whoever is through no longer waits."""
    records: dict[TopicPartition, list[Message]] = {}
    for message in messages:
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        if tp not in waiting:
            continue
        (first, last), error, offset = waiting[tp], message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise kafka_failure(error, doing=f"reading {tp}")
        if error is None and offset is not None and first <= offset <= last:
            records.setdefault(tp, []).append(message)  # beyond Kafka's end the client falls back to its beginning
        if error is not None or (offset is not None and offset >= last):
            del waiting[tp]
    return records
