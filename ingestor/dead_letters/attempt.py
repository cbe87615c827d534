"""What is noted in the table before a letter is sent, and how letters that were sent are recognised after a kill.

An attempt has a secret, which is only in the table's log. Each letter carries a mark: an HMAC of its coordinates with
that secret. So only letters of this attempt have its marks, not a record that names other coordinates in its headers
or payload, and not a letter of an earlier attempt. The attempt also has the topics with their ids, and their ends
before its first letter that the table does not count yet.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingestor.dead_letters.message import MARK
from ingestor.errors import Unavailable
from ingestor.kafka import ranges
from ingestor.kafka.by_hand import by_hand
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ingestor.kafka.broker import Broker
    from ingestor.kafka.ranges import Headers
    from ingestor.records import Coordinate

_MARK_CHARS = 32
# Another program's open transaction hides what lies behind it, by default for a minute at most.
_SILENT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Noted:
    """A topic when it was noted; the id is empty if it was unknown."""

    id: str
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that has begun and may be unfinished."""

    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    topics: Mapping[str, Noted] = field(default_factory=dict)

    @classmethod
    def read(cls, noted: Any) -> Attempt | None:  # noqa: ANN401 - any JSON
        """Return what `as_noted` wrote, None if nothing was noted."""
        if not isinstance(noted, dict):
            return None
        topics = {name: Noted(topic["id"], topic["ends"]) for name, topic in noted["topics"].items()}
        return cls(noted["secret"], topics)

    def as_noted(self) -> dict[str, Any]:
        """Return the attempt for commitInfo."""
        topics = {name: dataclasses.asdict(topic) for name, topic in self.topics.items()}
        return {"secret": self.secret, "topics": topics}

    def over(self, broker: Broker, names: Collection[str]) -> Attempt:
        """Return the same attempt with these topics noted as they are now."""
        return Attempt(self.secret, {**self.topics, **as_they_are(broker, names)})

    def without(self, names: Collection[str]) -> Attempt:
        """Return the same attempt without these topics."""
        return Attempt(self.secret, {name: topic for name, topic in self.topics.items() if name not in names})

    def mark(self, origin: Coordinate) -> bytes:
        """Return the mark of a letter in this attempt."""
        found = hmac.new(self.secret.encode(), str(origin).encode(), hashlib.sha256)
        return found.hexdigest()[:_MARK_CHARS].encode()


def as_they_are(broker: Broker, names: Collection[str]) -> dict[str, Noted]:
    """Return ids and ends of topics. All must exist: nothing may be sent to a topic that is not noted."""
    existing = broker.topics()
    wanted = sorted(set(names))
    missing = [name for name in wanted if name not in existing]
    if missing:
        raise Unavailable(f"Kafka does not show topic {missing[0]}")
    ids = broker.topic_ids(wanted)
    marks = broker.watermarks([TopicPartition(name, number) for name in wanted for number in range(existing[name])])
    return {
        name: Noted(ids.get(name, ""), [marks[TopicPartition(name, number)].high for number in range(existing[name])])
        for name in wanted
    }


@dataclass(frozen=True, slots=True)
class Since:
    """What was written to an attempt's topics since they were noted, and what is no longer readable."""

    spans: Mapping[TopicPartition, tuple[int, int]]
    lost: tuple[TopicPartition, ...]  # retention has removed the first offsets
    other: tuple[str, ...]  # topics that were deleted or recreated


def since(broker: Broker, attempt: Attempt) -> Since:
    """Compare an attempt's topics with their state now; a partition that was not noted did not exist."""
    existing = broker.topics()
    ids = _told_ids(broker, [name for name, noted in attempt.topics.items() if noted.id and name in existing])
    other = {name for name, noted in attempt.topics.items() if _is_other(name, noted, existing, ids)}
    same = sorted(attempt.topics.keys() - other)
    spans, lost = {}, []
    tps = [TopicPartition(name, number) for name in same for number in range(existing[name])]
    for tp, marks in broker.watermarks(tps).items():
        ends = attempt.topics[tp.topic].ends
        first = ends[tp.partition] if tp.partition < len(ends) else 0
        if first > marks.high:
            other.add(tp.topic)
        elif first < marks.low and tp.partition < len(ends):
            lost.append(tp)
        if max(first, marks.low) < marks.high:
            spans[tp] = (max(first, marks.low), marks.high)
    return Since({tp: span for tp, span in spans.items() if tp.topic not in other}, tuple(lost), tuple(sorted(other)))


def _told_ids(broker: Broker, names: Sequence[str]) -> dict[str, str]:
    """Return the ids of topics whose ids were known before; a missing one must not count as unchanged."""
    ids = broker.topic_ids(names)
    untold = [name for name in names if name not in ids]
    if untold:
        raise Unavailable(f"Kafka does not return the id of topic {untold[0]}")
    return ids


def _is_other(name: str, noted: Noted, existing: Mapping[str, int], ids: Mapping[str, str]) -> bool:
    """Return whether a topic is certainly not the one that was noted."""
    if existing.get(name, 0) < len(noted.ends):
        return True
    return bool(noted.id) and ids.get(name, noted.id) != noted.id


def marks_on(config: Mapping[str, str], spans: Mapping[TopicPartition, tuple[int, int]]) -> set[bytes]:
    """Return the marks that committed records bear; those of other attempts are marks of nothing."""
    waiting = {tp: span for tp, span in spans.items() if span[0] < span[1]}
    doing = "reading what was sent before"
    found = ranges.read(by_hand(config, "dlq"), waiting, doing=doing, silent_seconds=_SILENT_SECONDS)
    return {
        mark for _, messages in found for message in messages if (mark := mark_of(ranges.headers(message))) is not None
    }


def mark_of(headers: Headers) -> bytes | None:
    """Return the mark in a record's last header, None if it has none."""
    name, value = headers[-1] if headers else ("", None)
    return value if name == MARK and isinstance(value, bytes) and len(value) == _MARK_CHARS else None
