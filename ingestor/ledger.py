"""The ledger: what the Delta log's txn actions say about each partition.

A txn action's `appId` names a partition; its `version` is the last committed offset. Everywhere else in the program a
*position* is the next offset to read. Only this module converts between the two.
`None` means that nothing was ever committed. 0 and -1 are real versions (-1 is position 0, set by a person or by the
first commit under `start: latest`), so compare with `is None`, never by truth.
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
# App ids with this prefix belong to no partition: the guards keep their memory under them (see `guards`).
MEMORY = "ingestor:"
# No topic has this name. Its txn says that the `start` of a regex route was applied, even if no topic matched.
START_APPLIED = TopicPartition("", 0)
_FIELDS = {"app_id": r"(?P<app_id>{})", "topic": r"(?P<topic>[a-zA-Z0-9._-]+)", "partition": r"(?P<partition>\d{1,7})"}
_PLACEHOLDER = re.compile(r"\{(app_id|topic|partition)\}")


def position_after(txn: int | None) -> int | None:
    """Return the next offset to read when `txn` is the last committed offset."""
    return None if txn is None else txn + 1


def txn_before(position: int) -> int:
    """Return the txn version that makes `position` the next offset to read."""
    return position - 1


@dataclass(frozen=True, slots=True)
class AppIds:
    """Translates between partitions and the app ids of their txn actions."""

    template: str
    app_id: str
    topics: tuple[str, ...] = ()  # exactly one if the template has no {topic}; unused otherwise

    def of(self, tp: TopicPartition) -> str:
        """Return the app id of a partition's txn."""
        return _app_id(self.template, self.app_id, tp)

    @property
    def by_topic(self) -> bool:
        """Return whether app ids contain the topic."""
        return "{topic}" in self.template

    def names_topic(self, text: str, tp: TopicPartition) -> bool:
        """Return whether a foreign app id names this very topic and partition."""
        templates = {self.template, DEFAULT_TEMPLATE} if self.by_topic else {DEFAULT_TEMPLATE}
        return any(self._match(_pattern(template, ".+"), text) == tp for template in templates)

    def parse(self, text: str) -> TopicPartition | None:
        """Return the partition of an app id of ours, None if it is not ours."""
        if text.startswith(MEMORY):
            return None
        tp = self._match(_pattern(self.template, re.escape(self.app_id)), text)
        return tp if tp is not None and self.of(tp) == text else None  # we write partition 7 as "…/7", not "…/07"

    def parse_foreign(self, text: str) -> TopicPartition | None:
        """Return the partition of a foreign app id under any template we know, None if none fits."""
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
        """Return the last committed offset of these partitions, None where nothing was ever committed."""
        return {tp: txns.get(self.of(tp)) for tp in tps}

    def read(self, txns: Mapping[str, int]) -> dict[TopicPartition, int]:
        """Return the last committed offset of every partition that has a txn of ours."""
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
    """Refuse a `txn_app_id` that gives two partitions the same app id; `topics` is None for a regex."""
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
        msg = f"txn_app_id: {template!r} begins with {MEMORY!r}, which is reserved for the ingestor"
        raise ConfigError(msg, hint=mend)
    if "topic" not in names and topics != 1:
        msg = f"txn_app_id: {template!r} has no {{topic}}, so a route may have only one topic and no regex"
        raise ConfigError(msg, hint=mend)


def moved(
    expected: Mapping[TopicPartition, int | None],
    actual: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """Return the partitions whose txn differs from what a batch expects: {tp: (expected, actual)}."""
    return {tp: (was, actual[tp]) for tp, was in expected.items() if actual[tp] != was}


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that the table never got and Kafka can't give any more: `first` to `last`, both included."""

    tp: TopicPartition
    first: int
    last: int
    reason: str  # "retention", "truncated", "recreated" or "corrupt"

    @property
    def offsets(self) -> int:
        """Return the number of offsets in the gap."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        lost = f"offsets {self.first} to {self.last}" if self.offsets else "whatever was not read"
        return f"{self.tp} {lost} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to continue in a partition: fetch from `fetch_from`, take records from `position` on."""

    position: int
    fetch_from: int
    gap: Gap | None = None


def place(tp: TopicPartition, txn: int | None, *, low: int, high: int, recreated: bool) -> Placement:
    """Decide where to continue in a partition; the gap names what Kafka no longer has.

    The offsets of a recreated topic start at 0 again. The table keeps the old rows' coordinates, so new records at or
    below the txn can't be committed: they are part of the gap.
    """
    position = position_after(txn)
    if position is None:
        return Placement(low, low)
    if recreated:
        # Offsets below the old position are taken by old rows; those between it and `low` are gone from Kafka.
        gap = Gap(tp, min(position, low), max(position, low) - 1, "recreated")
        position = max(position, low)
        return Placement(position, min(position, high), gap)
    if position < low:
        return Placement(low, low, Gap(tp, position, low - 1, "retention"))
    if position > high:
        return Placement(position, high, Gap(tp, high, position - 1, "truncated"))
    return Placement(position, position)
