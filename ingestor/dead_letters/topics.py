"""The dead letter topics: made where they are missing, refused where they can't keep partition numbers."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ingestor.broker import Broker
    from ingestor.settings import Settings

_ROOM_BYTES = 64 << 10  # for the headers that say why
_LEADERS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Unread:
    """What has come to topics since their ends were noted, and where Kafka has removed the beginning of it."""

    spans: Mapping[TopicPartition, tuple[int, int]]
    lost: tuple[TopicPartition, ...]


class DeadLetterTopics:
    """What `dead_letters` says of topics, held against the cluster."""

    def __init__(self, settings: Settings, broker: Broker) -> None:
        self._settings = settings
        self._broker = broker

    def ensure(self, needed: Mapping[str, int]) -> None:
        """Make sure that the letters of each source topic find as many partitions as the source has, or they need."""
        existing = self._broker.topics()
        wanted: dict[str, tuple[int, str]] = {}
        for source, partitions in needed.items():
            count = max(partitions, existing.get(source, 0))
            name = self._settings.dead_letters.topic_for(source)
            wanted[name] = max(wanted.get(name, (0, "")), (count, source))
        for name, (count, source) in wanted.items():
            self._refuse_circle(name, source)
            if name not in existing:
                self._create(name, count, source)
            elif existing[name] < count:
                msg = f"topic {name} has {existing[name]} partitions, {source} needs {count} for its dead letters"
                raise ConfigError(msg, hint=f"give it more: kafka-topics --alter --topic {name} --partitions {count}")

    def _refuse_circle(self, name: str, source: str) -> None:
        route = self._settings.route_of(name)
        if route is not None:
            msg = f"dead letters of {source} would go to {name}, which route {route.name} ingests"
            raise ConfigError(msg, hint="choose another dead_letters.topic, or let the route's regex not match it")

    def _create(self, name: str, partitions: int, source: str) -> None:
        by_hand = f"create it with {partitions} partitions"
        if not self._settings.dead_letters.create:
            raise ConfigError(f"topic {name} does not exist", hint=f"{by_hand}, or set dead_letters.create: true")
        settings = {"cleanup.policy": "delete"}  # of two letters with one key both count
        with contextlib.suppress(IngestorError, Unavailable):  # no such topic any more, or not ours to ask
            limit = int(self._broker.topic_setting(source, "max.message.bytes"))
            settings["max.message.bytes"] = str(min(2**31 - 1, limit * 3 // 2 + _ROOM_BYTES))  # base64, and headers
        try:
            self._broker.create_topic(name, partitions, settings)
        except RefusedError as error:
            raise RefusedError(f"topic {name} does not exist, and {error.message}", hint=by_hand) from error
        self._wait_for_leaders([TopicPartition(name, number) for number in range(partitions)])
        logs.get().info("topic created", topic=name, partitions=partitions)

    def _wait_for_leaders(self, tps: Collection[TopicPartition]) -> None:
        deadline = time.monotonic() + _LEADERS_SECONDS
        while True:
            try:
                self._broker.watermarks(tps)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def ends(self, sources: Collection[str]) -> dict[str, list[int]]:
        """Return the end of each partition of the dead letter topics that exist."""
        existing = self._broker.topics()
        names = {self._settings.dead_letters.topic_for(source) for source in sources}
        tps = [TopicPartition(name, number) for name in sorted(names) for number in range(existing.get(name, 0))]
        marks = self._broker.watermarks(tps)
        ends: dict[str, list[int]] = {}
        for tp in tps:
            ends.setdefault(tp.topic, []).append(marks[tp].high)
        return ends


def unread(broker: Broker, noted: Mapping[str, list[int]], topics: Collection[str]) -> Unread:
    """Return what has come to topics since their ends were noted; a partition that was not noted had nothing then."""
    existing = broker.topics()
    tps = [TopicPartition(topic, number) for topic in sorted(topics) for number in range(existing.get(topic, 0))]
    spans, lost = {}, []
    for tp, marks in broker.watermarks(tps).items():
        known = noted.get(tp.topic, [])
        first = known[tp.partition] if tp.partition < len(known) else 0
        if first > marks.high:  # the topic is another one than then
            first = marks.low
        elif tp.partition < len(known) and first < marks.low:
            lost.append(tp)
        if max(first, marks.low) < marks.high:
            spans[tp] = (max(first, marks.low), marks.high)
    return Unread(spans, tuple(lost))
