"""When a flush is due: whichever limit is reached first."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from ingestor.config.settings import FlushSettings
from ingestor.ingest.policy import DraftStats, FlushReason, due

LIMITS = FlushSettings(rows=100, bytes=1000, seconds=60)
TODAY = date(2026, 2, 28)


def stats(*, rows: int = 1, size: int = 1, opened_at: float = 0, day: date = TODAY) -> DraftStats:
    return DraftStats(rows, size, opened_at, day)


@pytest.mark.parametrize(
    ("draft", "now", "reason"),
    [
        (stats(rows=99, size=999), 59.999, None),
        (stats(rows=100), 0, FlushReason.ROWS),
        (stats(rows=10_000), 0, FlushReason.ROWS),
        (stats(size=1000), 0, FlushReason.BYTES),
        (stats(), 60, FlushReason.SECONDS),
        (stats(opened_at=30), 60, None),
        (stats(opened_at=30), 90, FlushReason.SECONDS),
        (stats(day=TODAY - timedelta(days=1)), 0, FlushReason.DATE),
        (stats(day=TODAY + timedelta(days=1)), 0, FlushReason.DATE),
    ],
)
def test_a_flush_is_due_at_its_limit_and_not_before(draft: DraftStats, now: float, reason: FlushReason | None) -> None:
    """At the very row, byte, second or date; a date that jumps back is another date too."""
    assert due(draft, LIMITS, now=now, today=TODAY) is reason


def test_the_age_counts_from_the_first_record_not_from_the_last() -> None:
    """A trickle of records must not put a flush off for ever."""
    assert due(stats(rows=99, opened_at=0), LIMITS, now=60, today=TODAY) is FlushReason.SECONDS
