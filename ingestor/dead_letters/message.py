"""A dead letter as a Kafka record: in both formats on its topic, and when it is replayed.

All times are milliseconds since 1970, as in Kafka. `headers`: original key and value; the record's own headers first,
then ours, so that a reader who takes the last of equal names gets ours. `envelope`: the original key, one JSON object
as the value, and the record's own headers. The last header is always the letter's mark, by which it is recognised (see
`attempt`); nothing else in a record is trusted.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Literal

from ingestor.kafka.sender import Outgoing

if TYPE_CHECKING:
    from ingestor.dead_letters.letters import DeadLetter

Format = Literal["headers", "envelope"]
VERSION = "1.0"
MARK = "dlq.mark"


def dead_letter(letter: DeadLetter, topic: str, style: Format, now_ms: int, mark: bytes) -> Outgoing:
    """Return a letter for its dead letter topic."""
    if style == "envelope":
        headers = (*letter.headers, (MARK, mark))
        return Outgoing(letter.origin, topic, letter.key, _envelope(letter, now_ms), headers)
    stamp = letter.timestamp_ms
    ours = {
        "dlq.original.topic": letter.origin.topic,
        "dlq.original.partition": str(letter.origin.partition),
        "dlq.original.offset": str(letter.origin.offset),
        "dlq.original.timestamp": None if stamp is None else str(stamp),
        "dlq.error.reason": letter.error_reason,
        "dlq.error.class": letter.error_class,
        "dlq.error.message": letter.error_message,
        "dlq.timestamp": str(now_ms),
        "dlq.version": VERSION,
    }
    added = tuple((name, None if text is None else text.encode()) for name, text in ours.items())
    return Outgoing(letter.origin, topic, letter.key, letter.value, (*letter.headers, *added, (MARK, mark)))


def replayed(letter: DeadLetter, mark: bytes) -> Outgoing:
    """Return a letter for its source topic."""
    came_from = ("dlq.replayed.from", str(letter.origin).encode())
    headers = (*letter.headers, came_from, (MARK, mark))
    return Outgoing(letter.origin, letter.origin.topic, letter.key, letter.value, headers)


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
        "error_stack_trace": None,  # Spark's parser has none
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
