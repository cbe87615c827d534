"""The dead letter topics: made where they are missing, refused where they can't keep partition numbers or letters."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ingestor.config.route import Route
    from ingestor.config.settings import Settings
    from ingestor.kafka.broker import Broker

_ROOM_BYTES = 64 << 10  # for the headers that say why
_LEADERS_SECONDS = 30.0


class DeadLetterTopics:
    """What `dead_letters` says of topics, held against the cluster."""

    def __init__(self, settings: Settings, broker: Broker) -> None:
        self._settings = settings
        self._broker = broker

    def name_for(self, source: str) -> str:
        """Return the topic for a source topic's letters."""
        return self._settings.dead_letters.topic_for(source)

    def check(self, route: Route) -> None:
        """Refuse what is wrong with the topics that are there already, before there is a letter for them."""
        existing = self._broker.topics()
        names = {self.name_for(source) for source in existing if route.matches(source)}
        self._refuse_compacted(sorted(names & existing.keys()))

    def ensure(self, needed: Mapping[str, int]) -> None:
        """Make sure that the letters of each source topic find as many partitions as the source has, or they need."""
        existing = self._broker.topics()
        self._refuse_compacted(sorted({self.name_for(source) for source in needed} & existing.keys()))
        wanted: dict[str, tuple[int, str]] = {}
        for source, partitions in needed.items():
            count = max(partitions, existing.get(source, 0))
            name = self.name_for(source)
            wanted[name] = max(wanted.get(name, (0, "")), (count, source))
        for name, (count, source) in wanted.items():
            self._refuse_circle(name, source)
            if name not in existing:
                self._create(name, count, source)
            elif existing[name] < count:
                msg = f"topic {name} has {existing[name]} partitions, {source} needs {count} for its dead letters"
                raise ConfigError(msg, hint=f"give it more: kafka-topics --alter --topic {name} --partitions {count}")

    def _refuse_compacted(self, names: Sequence[str]) -> None:
        """Refuse topics that keep only one of the letters with one key, and none without a key."""
        for name in names:
            compacted = False
            with contextlib.suppress(RefusedError):  # not ours to ask: then nobody can tell
                compacted = self._broker.compacted(name)
            if compacted:
                msg = f"topic {name} is compacted: of the dead letters with one key it would keep only the last"
                alter = f"kafka-configs --alter --topic {name} --add-config cleanup.policy=delete"
                raise ConfigError(msg, hint=f"let it delete by time ({alter}), or choose another dead_letters.topic")

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
