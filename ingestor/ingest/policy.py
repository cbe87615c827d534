"""Decides when a flush is due. Pure: numbers and a clock reading in, the reason out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date


class FlushReason(StrEnum):
    """Why a draft is flushed."""

    ROWS = "rows"
    BYTES = "bytes"
    SECONDS = "seconds"
    DATE = "date"  # a file belongs to one ingest_date
    REVOKED = "revoked"
    ADRIFT = "adrift"  # Kafka no longer has our position: the records read before it are committed first
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Limits:
    """A route's `flush` settings; whichever is reached first."""

    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DraftStats:
    """A draft's size and age."""

    rows: int
    bytes: int
    opened_at: float  # monotonic seconds of its first record
    ingest_date: date


def due(stats: DraftStats, limits: Limits, *, now: float, today: date) -> FlushReason | None:
    """Return why the draft is due, or None while it may grow."""
    if stats.rows >= limits.rows:
        return FlushReason.ROWS
    if stats.bytes >= limits.bytes:
        return FlushReason.BYTES
    if now - stats.opened_at >= limits.seconds:
        return FlushReason.SECONDS
    if stats.ingest_date != today:
        return FlushReason.DATE
    return None
