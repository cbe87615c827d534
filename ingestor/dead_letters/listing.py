"""`ingestor dlq list`: the rows in quarantine, without payloads, keys and headers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ingestor.dead_letters.letters import COORDINATES, index
from ingestor.dead_letters.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ingestor.config.settings import Settings
    from ingestor.dead_letters.selection import Selection

_SHOWN = ("message_timestamp", "error_reason", "error_class", "error_message", "processing_version", "replayed_at")
_NAMES = ("topic", "partition", "offset", "timestamp", *_SHOWN[1:])
_MESSAGE_CHARS_MAX = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find(
    settings: Settings, routes: Sequence[str], selection: Selection, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the first selected letters of some routes, and the number of all selected."""
    shown: list[dict[str, Any]] = []
    total = 0
    for route in routes:
        table = Quarantine(settings, route)
        version = table.look()
        if version is None:
            continue
        with table.reading():
            found = selection.of(index(table.storage, version.paths(), _SHOWN))
        total += len(found)
        shown += [{"route": route, **row} for row in _rows(found.slice(0, max(0, limit - len(shown))))]
    return shown, total


def _rows(found: pa.Table) -> Iterator[dict[str, Any]]:
    columns = [_plain(found.column(name)) for name in (*COORDINATES, *_SHOWN)]
    for values in zip(*columns, strict=True):
        yield dict(zip(_NAMES, values, strict=True))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Return values as JSON types; a time beyond Python's range stays a number of microseconds."""
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    return [None if us is None else _moment(us) for us in column.cast(pa.int64()).to_pylist()]


def _moment(us: int) -> str | int:
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return us


def as_json(rows: Sequence[dict[str, Any]], total: int) -> str:
    """Return the letters as one JSON object."""
    return json.dumps({"dead_letters": rows, "total": total})


def as_text(rows: Sequence[dict[str, Any]], total: int) -> str:
    """Return the letters as a table for people."""
    head = ("route", "topic", "partition", "offset", "timestamp", "reason", "replayed", "message")
    lines = [head, *map(_line, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    more = [f"… and {total - len(rows):,} more: --limit {total}"] if total > len(rows) else []
    return "\n".join([*text, *more]) if total else "no dead letters"


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    names = ("route", "topic", "partition", "offset", "timestamp", "error_reason", "replayed_at")
    message = _on_one_line(row["error_message"] or "")
    cells = ["-" if row[name] is None else _on_one_line(str(row[name])) for name in names]
    return (*cells, message if len(message) <= _MESSAGE_CHARS_MAX else f"{message[: _MESSAGE_CHARS_MAX - 1]}…")


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]
