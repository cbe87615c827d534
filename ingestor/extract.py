"""From librdkafka's messages to columns: the one place that touches every record, so nothing of it runs in Python."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Message

from ingestor.records import Columns

if TYPE_CHECKING:
    from collections.abc import Collection


def extract(messages: list[Message], topics: tuple[str, ...], topic_codes: Any, extras: Collection[str]) -> Columns:  # noqa: ANN401 - numpy
    """Turn messages into columns; the accessors run in C, nothing else is called per record."""
    count = len(messages)
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count)
    return Columns(
        topics=topics,
        topic_codes=topic_codes,
        partitions=np.fromiter(map(Message.partition, messages), np.int32, count),
        offsets=np.fromiter(map(Message.offset, messages), np.int64, count),
        timestamps_ms=stamps[1::2].copy(),
        values=list(map(Message.value, messages)),
        keys=list(map(Message.key, messages)) if "key" in extras else None,
        headers=list(map(Message.headers, messages))  # type: ignore[arg-type]  # a record's are a list
        if "headers" in extras
        else None,
        timestamp_types=stamps[0::2].astype(np.int8) if "timestamp_type" in extras else None,
    )
