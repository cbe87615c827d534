"""The ledger: what the Delta log's txn actions say about each partition.

A txn action's `appId` names a partition, its `version` is the offset of the last record landed. Everywhere else in
the program a *position* is the next offset to read. This module is the only place that knows the difference of one.
`None` means that nothing was ever committed; 0 is a real version and -1 too (position 0, set by a person or by the
first commit under `start: latest`), so truth is never tested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ingestor.errors import ConfigError
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_TEMPLATE = "{app_id}/{topic}/{partition}"
KDI_TEMPLATE = "{app_id}-{partition}"  # what kafka-delta-ingest writes
# App ids that begin so are no partition's: they are what guards remember (see `guards`).
MEMORY = "ingestor:"
# No topic has this name: its txn says that a regex route's `start` was applied, be it to no topic at all.
START_APPLIED = TopicPartition("", 0)
_FIELDS = {"app_id": r"(?P<app_id>{})", "topic": r"(?P<topic>[a-zA-Z0-9._-]+)", "partition": r"(?P<partition>\d{1,7})"}
_PLACEHOLDER = re.compile(r"\{(app_id|topic|partition)\}")


def position_after(txn: int | None) -> int | None:
    """Return the next offset to read when `txn` is the last offset landed."""
    return None if txn is None else txn + 1


def txn_before(position: int) -> int:
    """Return the txn version that makes `position` the next offset to read."""
    return position - 1


@dataclass(frozen=True, slots=True)
class AppIds:
    """Translates between partitions and the app ids of their txn actions."""

    template: str
    app_id: str
    topics: tuple[str, ...] = ()  # needed only where the template has no {topic}: then exactly one

    def of(self, tp: TopicPartition) -> str:
        """Return the app id under which the txn of `tp` stands in the log."""
        return _app_id(self.template, self.app_id, tp)

    @property
    def by_topic(self) -> bool:
        """Tell whether an app id names its topic."""
        return "{topic}" in self.template

    def names_topic(self, text: str, tp: TopicPartition) -> bool:
        """Tell whether a foreign app id says by itself that it is of this topic and partition."""
        templates = {self.template, DEFAULT_TEMPLATE} if self.by_topic else {DEFAULT_TEMPLATE}
        return any(self._match(_pattern(template, ".+"), text) == tp for template in templates)

    def parse(self, text: str) -> TopicPartition | None:
        """Return the partition that an app id of ours names, or None if it is not one of ours."""
        if text.startswith(MEMORY):
            return None
        tp = self._match(_pattern(self.template, re.escape(self.app_id)), text)
        return tp if tp is not None and self.of(tp) == text else None  # "…/07" is not how we write partition 7

    def parse_foreign(self, text: str) -> TopicPartition | None:
        """Return the partition that an app id *not* of ours would name under any scheme we know."""
        if text.startswith(MEMORY) or self.parse(text) is not None:
            return None
        for template in dict.fromkeys((self.template, DEFAULT_TEMPLATE, KDI_TEMPLATE)):
            tp = self._match(_pattern(template, ".+"), text)
            if tp is not None:
                return tp
        return None

    def _match(self, pattern: re.Pattern[str], text: str) -> TopicPartition | None:
        match = pattern.fullmatch(text)
        if match is None:
            return None
        found = match.groupdict()
        if "topic" in found:
            return TopicPartition(found["topic"], int(found["partition"]))
        return TopicPartition(self.topics[0], int(found["partition"])) if len(self.topics) == 1 else None

    def look_up(self, txns: Mapping[str, int], tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the last landed offset of each of these partitions, None where nothing was ever committed."""
        return {tp: txns.get(self.of(tp)) for tp in tps}

    def read(self, txns: Mapping[str, int]) -> dict[TopicPartition, int]:
        """Return the last landed offset of every partition that has a txn of ours."""
        found = ((self.parse(app_id), version) for app_id, version in txns.items())
        return {tp: version for tp, version in found if tp is not None}


@lru_cache(maxsize=100_000)
def _app_id(template: str, app_id: str, tp: TopicPartition) -> str:
    values = {"app_id": app_id, "topic": tp.topic, "partition": str(tp.partition)}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


@lru_cache(maxsize=100)
def _pattern(template: str, app_id: str) -> re.Pattern[str]:
    parts = _PLACEHOLDER.split(template)  # literal, name, literal, name, …
    groups = [_FIELDS[name].replace("{}", app_id) for name in parts[1::2]]
    literals = [re.escape(text) for text in parts[0::2]]
    return re.compile(literals[0] + "".join(g + text for g, text in zip(groups, literals[1:], strict=True)))


def check_template(template: str, *, topics: int | None) -> None:
    """Refuse a `txn_app_id` that can't tell two partitions apart; `topics` is None for a regex."""
    names = _PLACEHOLDER.findall(template)
    mend = 'use "{app_id}/{topic}/{partition}" (or "{app_id}-{partition}" for a table with one topic)'
    if "{" in _PLACEHOLDER.sub("", template) or "}" in _PLACEHOLDER.sub("", template):
        msg = f"txn_app_id: unknown placeholder in {template!r}"
        raise ConfigError(msg, hint=mend)
    if names.count("partition") != 1 or names.count("topic") > 1 or names.count("app_id") != 1:
        msg = f"txn_app_id: {template!r} must name {{app_id}} and {{partition}} once, {{topic}} at most once"
        raise ConfigError(msg, hint=mend)
    between = _PLACEHOLDER.split(template)[2:-1:2]
    if any(not text or text[0].isdigit() or text[-1].isdigit() for text in between):
        msg = f"txn_app_id: {template!r} needs a separator that is no digit between its placeholders"
        raise ConfigError(msg, hint=mend)
    if template.startswith(MEMORY):
        msg = f"txn_app_id: {template!r} begins with {MEMORY!r}, which is kept for the ingestor's own records"
        raise ConfigError(msg, hint=mend)
    if "topic" not in names and topics != 1:
        msg = f"txn_app_id: {template!r} has no {{topic}}, so a route may have just one topic and no regex"
        raise ConfigError(msg, hint=mend)


def moved(
    expected: Mapping[TopicPartition, int | None],
    actual: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """Return the partitions whose txn is not what a batch was built on: {tp: (expected, actual)}."""
    return {tp: (was, actual[tp]) for tp, was in expected.items() if actual[tp] != was}


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that Kafka no longer has and the table never got: `first` to `last`, both included."""

    tp: TopicPartition
    first: int
    last: int
    reason: str  # "retention", "truncated", "recreated" or "corrupt"

    @property
    def offsets(self) -> int:
        """Return how many offsets were lost."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        lost = f"offsets {self.first} to {self.last}" if self.offsets else "whatever was not read"
        return f"{self.tp} {lost} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to go on in a partition: fetch from `fetch_from`, take records from `position` on."""

    position: int
    fetch_from: int
    gap: Gap | None = None


def place(tp: TopicPartition, txn: int | None, *, low: int, high: int, recreated: bool) -> Placement:
    """Decide where to go on in a partition, and what was lost if Kafka can't continue where the table ends.

    After a recreation the offsets count from 0 again. Rows keep their coordinates for ever, so offsets at or below
    the txn can't be landed a second time: they are lost to this table, and the gap says so.
    """
    position = position_after(txn)
    if position is None:
        return Placement(low, low)
    if recreated:
        # Below the old position the new records' coordinates are taken; above it, up to `low`, nothing is left.
        gap = Gap(tp, min(position, low), max(position, low) - 1, "recreated")
        position = max(position, low)
        return Placement(position, min(position, high), gap)
    if position < low:
        return Placement(low, low, Gap(tp, position, low - 1, "retention"))
    if position > high:
        return Placement(position, high, Gap(tp, high, position - 1, "truncated"))
    return Placement(position, position)
