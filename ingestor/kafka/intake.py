"""How a consumer's records become columns: `MessageIntake` uses confluent_kafka's messages, `native` does not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message

from ingestor.kafka.extract import extract, extract_all, extract_stamps, portions
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ingestor.kafka.extract import Stamps
    from ingestor.records import Columns


class Event(NamedTuple):
    """A partition's end or error; without a topic it is an error of the whole client."""

    tp: TopicPartition
    offset: int
    error: KafkaError


@dataclass(slots=True)
class TakenIn:
    """The result of one poll."""

    columns: list[Columns]  # none of them empty
    events: list[Event]
    mixed: bool = True  # records may be from before a rebalance that the same poll served


class Intake(Protocol):
    """Reads from a consumer and serves its rebalances."""

    def expect(self, tps: Iterable[TopicPartition]) -> None:
        """Prepare for partitions; called each time before the consumer is assigned them."""

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop expecting partitions; called after they were revoked."""

    def take(self, max_records: int, timeout: float) -> TakenIn:
        """Return what arrives within the timeout."""

    def close(self) -> None:
        """Release the consumer; called before it is closed."""


class MessageIntake:
    """Reads by confluent_kafka's messages; works wherever confluent_kafka does."""

    def __init__(self, consumer: Consumer, extras: Collection[str], only_topic: str | None) -> None:
        self._consumer = consumer
        self._extras = extras
        self._only_topic = only_topic  # if given, no other topic can be assigned

    def expect(self, tps: Iterable[TopicPartition]) -> None:
        """Do nothing: everything arrives on the consumer's own queue."""

    forget = expect

    def take(self, max_records: int, timeout: float) -> TakenIn:
        """Return what arrives within the timeout."""
        messages = self._consumer.consume(max_records, timeout)
        stamps = extract_stamps(messages, self._extras)
        events: list[Event] = []
        if not stamps.all_there:
            messages, events = without_events(messages)
            if events:
                stamps = extract_stamps(messages, self._extras)
        if not messages:
            return TakenIn([], events)
        pieces = list(portions(messages, self._extras))
        if len(pieces) > 1:
            return TakenIn([self._extract(piece, extract_stamps(piece, self._extras)) for piece in pieces], events)
        return TakenIn([self._extract(messages, stamps)], events)

    def _extract(self, messages: list[Message], stamps: Stamps) -> Columns:
        if self._only_topic is None:
            return extract_all(messages, self._extras, stamps)
        codes = np.zeros(len(messages), np.int32)
        return extract(messages, stamps, (self._only_topic,), codes, self._extras)

    def close(self) -> None:
        """Do nothing: the consumer owns everything."""


def without_events(messages: list[Message]) -> tuple[list[Message], list[Event]]:
    """Return the messages that are records, and the others as events."""
    errors = list(map(Message.error, messages))
    events = [
        Event(TopicPartition(message.topic() or "", message.partition() or 0), message.offset() or 0, error)
        for message, error in zip(compress(messages, errors), filter(None, errors), strict=True)
    ]
    return (list(compress(messages, map(not_, errors))) if events else messages), events
