"""Turns confluent_kafka's messages into columns. It touches every record, so all work per record is done in C."""

from __future__ import annotations

from itertools import chain, pairwise
from operator import countOf, itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from confluent_kafka import Message

from ingestor.records import Columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt


def extract_topics(messages: list[Message]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Return the topics of messages, of which there is at least one, and each message's index into them."""
    count = len(messages)
    first: str = messages[0].topic()  # type: ignore[assignment]  # a record has a topic
    if countOf(map(Message.topic, messages), first) == count:  # a set would hash every name
        return (first,), np.zeros(count, np.int32)
    names: list[str] = list(map(Message.topic, messages))  # type: ignore[arg-type]  # same
    topics = tuple(sorted(set(names)))
    codes = {topic: code for code, topic in enumerate(topics)}
    return topics, np.fromiter(map(codes.__getitem__, names), np.int32, count)


class Stamps(NamedTuple):
    """The timestamps of messages, -1 for none; their types only if configured."""

    ms: npt.NDArray[np.int64]
    types: npt.NDArray[np.int8] | None

    @property
    def all_there(self) -> bool:
        """Return whether every message has a timestamp; then none is an event, since events have no timestamp."""
        return len(self.ms) == 0 or bool(self.ms.min() >= 0)


def extract_stamps(messages: list[Message], extras: Collection[str]) -> Stamps:
    """Return the timestamps of messages."""
    count = len(messages)
    if "timestamp_type" in extras:
        stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count)
        return Stamps(stamps[1::2].copy(), stamps[0::2].astype(np.int8))
    # This takes two thirds of the time of the above.
    return Stamps(np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), np.int64, count), None)


def extract(
    messages: list[Message],
    stamps: Stamps,
    topics: tuple[str, ...],
    topic_codes: npt.NDArray[np.int32],
    extras: Collection[str],
) -> Columns:
    """Turn messages into columns; only the C accessors run per record."""
    count = len(messages)
    return Columns(
        topics=topics,
        topic_codes=topic_codes,
        partitions=np.fromiter(map(Message.partition, messages), np.int32, count),
        offsets=np.fromiter(map(Message.offset, messages), np.int64, count),
        timestamps_ms=stamps.ms,
        values=list(map(Message.value, messages)),
        keys=list(map(Message.key, messages)) if "key" in extras else None,
        headers=list(map(Message.headers, messages)) if "headers" in extras else None,
        timestamp_types=stamps.types,
    )


# The size of one piece, which its last record may exceed. Far below the 2 GiB limit of Arrow's 32-bit offsets.
PORTION_BYTES = 16 << 20


def portions(messages: list[Message], extras: Collection[str]) -> Iterator[list[Message]]:
    """Yield records in order, in pieces of bounded size; nearly always there is one piece."""
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    if "key" in extras:
        sizes += np.fromiter((len(message.key() or b"") for message in messages), np.int64, len(messages))
    if "headers" in extras:
        sizes += np.fromiter(map(_header_bytes, messages), np.int64, len(messages))
    ends = np.flatnonzero(np.diff(np.cumsum(sizes) // PORTION_BYTES)) + 1
    for start, end in pairwise([0, *ends.tolist(), len(messages)]):
        yield messages[start:end]


def _header_bytes(message: Message) -> int:
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]  # typed too widely
    return sum(len(name) + len(value or b"") for name, value in headers)


def extract_all(messages: list[Message], extras: Collection[str], stamps: Stamps | None = None) -> Columns:
    """Turn messages of any number of topics into columns."""
    topics, codes = extract_topics(messages)
    return extract(messages, stamps or extract_stamps(messages, extras), topics, codes, extras)
