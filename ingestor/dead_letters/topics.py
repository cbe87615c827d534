"""The dead letter topics: created if missing, refused if they can't keep partition numbers or all letters."""

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

_ROOM_BYTES = 64 << 10  # for the headers with the error
_LEADERS_SECONDS = 30.0


class DeadLetterTopics:
    """The topics of the `dead_letters` section, compared with the cluster."""

    def __init__(self, settings: Settings, broker: Broker) -> None:
        self._settings = settings
        self._broker = broker

    def name_for(self, source: str) -> str:
        """Return the dead letter topic of a source topic."""
        return self._settings.dead_letters.topic_for(source)

    def check(self, route: Route) -> None:
        """Refuse unsuitable existing topics, before there is a letter for them."""
        existing = self._broker.topics()
        names = {self.name_for(source) for source in existing if route.matches(source)}
        self._refuse_compacted(sorted(names & existing.keys()))

    def ensure(self, needed: Mapping[str, int]) -> None:
        """Create or check the topics: at least as many partitions as the source topic has and as the letters need."""
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
        """Refuse compacted topics: they keep only the last letter of a key, and none without a key."""
        for name in names:
            compacted = False
            with contextlib.suppress(RefusedError):  # not authorised to ask: assume that it is not
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
        settings = {"cleanup.policy": "delete"}  # letters with the same key must all stay
        with contextlib.suppress(IngestorError, Unavailable):  # the topic is gone, or we are not authorised to ask
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
