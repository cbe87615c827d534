"""What a dead letter looks like on its topic, in both formats, and how it is known again.

All times are milliseconds since 1970, as Kafka's own. `headers`: key and value as they were, the record's own headers
first, then ours, so that whoever takes the last of equal names gets ours. `envelope`: the key as it was, one JSON
object for the value, and the record's own headers.
"""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ingestor.dead_letters.letters import Coordinate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

    from ingestor.dead_letters.letters import DeadLetter

Format = Literal["headers", "envelope"]
VERSION = "1.0"
REPLAYED_FROM = "dlq.replayed.from"
_TOPIC, _PARTITION, _OFFSET = (f"dlq.original.{part}" for part in ("topic", "partition", "offset"))
_ENVELOPE_STARTS = b'{"original_topic"'


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send, and the one that it was made of."""

    origin: Coordinate
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def dead_letter(letter: DeadLetter, topic: str, style: Format, now_ms: int) -> Outgoing:
    """Return a letter as it goes to its dead letter topic."""
    if style == "envelope":
        return Outgoing(letter.origin, topic, letter.key, _envelope(letter, now_ms), letter.headers)
    stamp = letter.timestamp_ms
    ours = {
        _TOPIC: letter.origin.topic,
        _PARTITION: str(letter.origin.partition),
        _OFFSET: str(letter.origin.offset),
        "dlq.original.timestamp": None if stamp is None else str(stamp),
        "dlq.error.reason": letter.error_reason,
        "dlq.error.class": letter.error_class,
        "dlq.error.message": letter.error_message,
        "dlq.timestamp": str(now_ms),
        "dlq.version": VERSION,
    }
    added = tuple((name, None if text is None else text.encode()) for name, text in ours.items())
    return Outgoing(letter.origin, topic, letter.key, letter.value, (*letter.headers, *added))


def replayed(letter: DeadLetter) -> Outgoing:
    """Return a letter as it goes back to where it came from."""
    came_from = (REPLAYED_FROM, str(letter.origin).encode())
    return Outgoing(letter.origin, letter.origin.topic, letter.key, letter.value, (*letter.headers, came_from))


def _envelope(letter: DeadLetter, now_ms: int) -> bytes:
    document: dict[str, Any] = {
        "original_topic": letter.origin.topic,
        "original_partition": letter.origin.partition,
        "original_offset": letter.origin.offset,
        **_text("original_key", letter.key),
        **_text("original_value", letter.value),
        "original_timestamp": letter.timestamp_ms,
        "error_reason": letter.error_reason,
        "error_message": letter.error_message,
        "error_class": letter.error_class,
        "error_stack_trace": None,  # Spark's parser has none to tell
        "dlq_timestamp": now_ms,
        "dlq_version": VERSION,
    }
    return json.dumps(document, ensure_ascii=False).encode()


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(content).decode(), f"{name}_encoding": "base64"}


def origins_of(message: Message) -> Iterator[Coordinate]:
    """Yield which record a message on a dead letter topic was made of, by its headers and by its envelope.

    Both may be there, and differ, if a dead letter topic is itself ingested; nothing comes of others' messages.
    """
    found = _last_of(message, (_TOPIC, _PARTITION, _OFFSET))
    with contextlib.suppress(ValueError, KeyError):
        yield Coordinate(found[_TOPIC], int(found[_PARTITION]), int(found[_OFFSET]))
    value = message.value()
    if isinstance(value, bytes) and value.startswith(_ENVELOPE_STARTS):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            document = json.loads(value)
            topic, partition, offset = (document[f"original_{name}"] for name in ("topic", "partition", "offset"))
            yield Coordinate(str(topic), int(partition), int(offset))


def replay_of(message: Message) -> Coordinate | None:
    """Return which dead letter a message on a source topic is the replay of, None if it is none."""
    text = _last_of(message, (REPLAYED_FROM,)).get(REPLAYED_FROM, "")
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        return None
    return Coordinate(topic, int(partition), int(offset))


def _last_of(message: Message, names: Sequence[str]) -> dict[str, str]:
    headers: Any = message.headers() or ()
    return {
        name: value.decode(errors="replace") for name, value in headers if name in names and isinstance(value, bytes)
    }
