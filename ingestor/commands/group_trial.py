"""Tries in a separate group whether the broker accepts `group.protocol: consumer`."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from ingestor.errors import RefusedError
from ingestor.kafka.consumer import KafkaSource

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ingestor.config.settings import Settings
    from ingestor.kafka.broker import Broker
    from ingestor.records import TopicPartition

_JOIN_SECONDS = 10.0
_POLL_SECONDS = 0.2


def try_protocol(settings: Settings, broker: Broker) -> None:
    """Join a group of another name with the same options, and leave it; raise if the broker refuses.

    No running ingestor is in that group, so none is disturbed. Its name begins with the real one, since permissions
    may be granted by prefix.
    """
    group_id = f"{settings.kafka['group.id']}-check-{uuid.uuid4().hex[:8]}"
    kafka = {key: value for key, value in settings.kafka.items() if key != "group.instance.id"} | {"group.id": group_id}
    topics = [topic for route in settings.routes.values() for topic in route.topics]
    source = KafkaSource(kafka, topics, route_of=str, queue_bytes=settings.memory // 4, flush_seconds=1)
    try:
        source.subscribe(_Bystander())
        deadline = time.monotonic() + _JOIN_SECONDS
        while time.monotonic() < deadline:
            source.poll(1, _POLL_SECONDS)
            group = broker.group(group_id)
            if group is None or group.members:
                return
    finally:
        source.close()
        broker.forget_group(group_id)
    raise RefusedError(
        f"no consumer could join a group under group.protocol: consumer within {_JOIN_SECONDS:g} s",
        hint="leave kafka.group.protocol out, or enable the protocol on brokers that have it (4.0 and newer)",
    )


class _Bystander:
    """Accepts its assignment and reads none of it."""

    def on_assigned(self, _tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Place nothing, so that everything stays paused."""
        return {}

    def on_revoked(self, _tps: Collection[TopicPartition]) -> None:
        """Do nothing: no records were read."""

    on_lost = on_revoked
