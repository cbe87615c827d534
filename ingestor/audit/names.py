"""Maps txn actions to partitions, by the template of their app ids.

The ingestor uses `ledger.AppIds`. The audit reads the same template with its own code, so that a mistake there is not
repeated here. The log also has txns of the guards, which remember where rows came from:
`ingestor:origin/{name}/{topic}/{topic id}/`. Their version counts the changes; the id is percent-encoded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SCHEMES = ("{app_id}/{topic}/{partition}", "{app_id}-{partition}")  # our default, and kafka-delta-ingest's
_TOPIC = r"(?P<topic>[a-zA-Z0-9._-]+)"
_PARTITION = r"(?P<partition>0|[1-9][0-9]*)"
_GUARD, ORIGIN = "ingestor:", "ingestor:origin/"


class Origin(NamedTuple):
    """The topic of the rows that a txn counts."""

    generation: int
    topic: str
    topic_id: str  # "" if unknown


class Names:
    """The app ids of one route's partitions, and their origins in the log."""

    def __init__(self, template: str, app_id: str, topics: tuple[str, ...] = ()) -> None:
        self._ours = _pattern(template, re.escape(app_id))
        self._others = [_pattern(scheme, ".+") for scheme in dict.fromkeys((template, *_SCHEMES))]
        self.topic = topics[0] if len(topics) == 1 else None  # for a template without {topic}
        self.origins: dict[str, Origin] = {}
        self.by_topic = "topic" in self._ours.groupindex

    def learn(self, txns: Mapping[str, int]) -> None:
        """Take in the origins among the txns of an entry; the newest of a name counts."""
        for text, generation in txns.items():
            if not text.startswith(ORIGIN) or not text.endswith("/"):
                continue
            parts = text[len(ORIGIN) : -1].rsplit("/", 2)
            if len(parts) == len(("name", "topic", "id")):
                name, topic, topic_id = parts
                known = self.origins.get(name)
                if known is None or known.generation < generation:
                    self.origins[name] = Origin(generation, topic, unquote(topic_id))

    def partition(self, text: str) -> TopicPartition | None:
        """Return our partition of an app id, None if it is not ours."""
        found = None if _is_guard(text) else self._ours.fullmatch(text)
        if found is None:
            return None
        topic = found.groupdict().get("topic")
        if topic is None:  # a template without {topic}: take the origin's topic, otherwise the configured one
            origin = self.origins.get(text)
            topic = self.topic if origin is None else origin.topic
        return None if topic is None else TopicPartition(topic, int(found["partition"]))

    def partitions(self, txns: Mapping[str, int]) -> dict[TopicPartition, int]:
        """Return the txns of our partitions."""
        found = ((self.partition(text), txn) for text, txn in txns.items())
        return {tp: txn for tp, txn in found if tp is not None}

    def foreign(self, txns: Mapping[str, int]) -> set[TopicPartition]:
        """Return the partitions that foreign app ids may name, under any known template."""
        return {tp for text in txns if (tp := self._foreign(text)) is not None}

    def _foreign(self, text: str) -> TopicPartition | None:
        if _is_guard(text) or self._ours.fullmatch(text):
            return None
        for pattern in self._others:
            found = pattern.fullmatch(text)
            topic = found.groupdict().get("topic", self.topic) if found else None
            if found and topic is not None:
                return TopicPartition(topic, int(found["partition"]))
        return None

    def misplaced(self) -> Iterator[tuple[str, str]]:
        """Yield our app ids whose txn counts another topic's rows, with the topic that they should be for."""
        for text, origin in sorted(self.origins.items()):
            found = self._ours.fullmatch(text)
            topic = found.groupdict().get("topic", self.topic) if found else None
            if topic is not None and origin.topic != topic:
                yield text, topic

    def topic_ids(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yield the topic id of each partition's newest rows, if an origin has it."""
        for text, origin in self.origins.items():
            tp = self.partition(text)
            if tp is not None and origin.topic_id:
                yield tp, origin.topic_id


def _is_guard(text: str) -> bool:
    return text.startswith(_GUARD) and text.endswith("/")


def _pattern(template: str, app_id: str) -> re.Pattern[str]:
    text = re.escape(template)
    for name, value in (("topic", _TOPIC), ("partition", _PARTITION), ("app_id", app_id)):  # the user's text last
        text = text.replace(re.escape(f"{{{name}}}"), value)
    return re.compile(text)
