"""Reads Kafka's records for an audit: committed records of given ranges, as the client's own message objects.

The ingestor reads columns in batches (`intake`, `extract`, `native/`); none of that code is used here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.errors import Unavailable
from ingestor.kafka import ranges
from ingestor.kafka.broker import Broker, asking
from ingestor.kafka.by_hand import by_hand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from ingestor.records import TopicPartition

_TOGETHER = 64  # partitions that one consumer reads: each has a queue of its own
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
        self, spans: Mapping[TopicPartition, tuple[int, int]], *, aborted: bool = False
    ) -> Iterator[tuple[TopicPartition, list[Message]]]:
        """Yield the records of a range of each partition, both ends included, in order; many share one consumer."""
        left = iter((tp, (first, last + 1)) for tp, (first, last) in sorted(spans.items()))
        while part := dict(itertools.islice(left, _TOGETHER)):
            options = self._options("read_uncommitted" if aborted else "read_committed")
            found = ranges.read(options, part, doing="reading Kafka", silent_seconds=_SILENT_SECONDS, hidden=False)
            yield from ((tp, messages) for tp, messages in found if messages)
