"""Reads ranges of a partition outside of any group: what an audit holds a table against."""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, cast

import numpy as np
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.broker import Broker, asking, kafka_failure
from ingestor.errors import Unavailable
from ingestor.source import extract

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ingestor.records import Columns, TopicPartition

_BATCH = 5_000
_POLL_SECONDS = 0.2
_SILENT_SECONDS = 30.0  # then Kafka counts as gone


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
        consumer = Consumer(
            {
                **self._config,
                "group.id": f"ingestor-audit-{uuid.uuid4().hex}",  # never joined: partitions are assigned by hand
                "group.protocol": "classic",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",  # retention may be quicker than the reader
                "enable.partition.eof": "true",
                "isolation.level": "read_uncommitted" if aborted else "read_committed",
                "logger": logging.getLogger("ingestor.librdkafka"),
            }
        )
        try:
            consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, first)])
            yield from self._range(consumer, tp, first, last)
        finally:
            consumer.close()

    def _range(self, consumer: Consumer, tp: TopicPartition, first: int, last: int) -> Iterator[Columns]:
        heard_at = time.monotonic()
        while time.monotonic() - heard_at < _SILENT_SECONDS:
            with asking(f"reading {tp}"):
                messages = consumer.consume(_BATCH, _POLL_SECONDS)
            if messages:
                heard_at = time.monotonic()
            records, ended = [], False
            for message in messages:
                error = message.error()
                if error is None:
                    offset = cast("int", message.offset())
                    ended = ended or offset >= last
                    if first <= offset <= last:  # beyond Kafka's end the client falls back to its beginning
                        records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended = True
                elif not ended:  # what lies behind the range, such as a damaged batch, is nobody's business
                    raise kafka_failure(error, doing=f"reading {tp}")
            if records:
                yield extract(records, (tp.topic,), np.zeros(len(records), np.int32), self._extras)
            if ended:
                return
        raise Unavailable(f"Kafka sent nothing more of {tp} for {_SILENT_SECONDS:g} seconds")
