"""Selects dead letters by the options of the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ingestor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANGE = re.compile(r"(?P<first>\d*)(?P<dots>\.\.)?(?P<last>\d*)")
_MOMENT_HINT = "write a time with its zone, such as 2026-01-31T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions that must all hold; None and () hold always."""

    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    replayed: bool = False  # also those that were replayed before

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the conditions need, besides the coordinates."""
        return ("message_timestamp", "error_reason", "replayed_at")

    def of(self, letters: pa.Table) -> pa.Table:
        """Return the selected rows."""
        mask = pa.array([True] * len(letters))
        for condition in self._conditions(letters):
            mask = pc.and_(mask, pc.fill_null(condition, fill_value=False))
        return letters.filter(mask)

    def _conditions(self, letters: pa.Table) -> list[Any]:
        offsets = letters.column("stream_offset")
        found = []
        if self.topic is not None:
            found.append(pc.equal(letters.column("stream_topic"), self.topic))
        if self.partition is not None:
            found.append(pc.equal(letters.column("stream_partition"), self.partition))
        if self.first_offset is not None:
            found.append(pc.greater_equal(offsets, self.first_offset))
        if self.last_offset is not None:
            found.append(pc.less_equal(offsets, self.last_offset))
        if self.reasons:
            known = {text: self._has_reason(text) for text in letters.column("error_reason").unique().to_pylist()}
            wanted = pa.array([text for text, wanted in known.items() if wanted], pa.string())
            found.append(pc.is_in(letters.column("error_reason"), wanted))
        stamps = letters.column("message_timestamp").cast(pa.int64())
        if self.since is not None:
            found.append(pc.greater_equal(stamps, micros(self.since)))
        if self.until is not None:
            found.append(pc.less(stamps, micros(self.until)))
        if not self.replayed:
            found.append(pc.is_null(letters.column("replayed_at")))
        return found

    def _has_reason(self, text: str | None) -> bool:
        """Return whether any of a letter's reasons is wanted; `rule` means every `rule:NAME`."""
        return any(
            each == wanted or each.startswith(f"{wanted}:")
            for each in (text or "").split(";")
            for wanted in self.reasons
        )


def select(
    *,
    topic: str | None,
    partition: int | None,
    offsets: str | None,
    reasons: Sequence[str],
    since: str | None,
    until: str | None,
    replayed: bool,
) -> Selection:
    """Return the selection of the command line's options; ConfigError names an invalid one."""
    first, last = (None, None) if offsets is None else _range(offsets)
    if partition is not None and partition < 0:
        raise ConfigError(f"--partition {partition}: there is no such partition", hint="write 0 or more")
    return Selection(
        topic=topic,
        partition=partition,
        first_offset=first,
        last_offset=last,
        reasons=tuple(reasons),
        since=_moment("--since", since),
        until=_moment("--until", until),
        replayed=replayed,
    )


def _range(text: str) -> tuple[int | None, int | None]:
    match = _RANGE.fullmatch(text)
    hint = "write one offset (17) or a range with both ends (17..42, 17.., ..42)"
    if match is None or not (match["first"] or match["last"]) or (match["last"] and not match["dots"]):
        raise ConfigError(f"--offsets {text}: is no range of offsets", hint=hint)
    first = int(match["first"]) if match["first"] else None
    last = int(match["last"]) if match["last"] else None
    if match["dots"] is None:
        last = first
    if first is not None and last is not None and last < first:
        raise ConfigError(f"--offsets {text}: ends before it begins", hint=hint)
    if max(first or 0, last or 0) >= 2**63:
        raise ConfigError(f"--offsets {text}: no Kafka offset is that large", hint=hint)
    return first, last


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} {text}: is no time", hint=_MOMENT_HINT) from None
    if moment.tzinfo is None:
        raise ConfigError(f"{option} {text}: has no time zone", hint=_MOMENT_HINT)
    return moment.astimezone(UTC)


def micros(moment: datetime) -> int:
    """Return microseconds since 1970, as the table's timestamps are stored."""
    return round(moment.timestamp() * 1_000_000)
