"""Who is in a consumer group, asked of its coordinator: under the classic protocol and under KIP-848."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_REBALANCING = (
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
    ConsumerGroupState.UNKNOWN,  # KIP-848 has states for which the client has no name
)
# What a broker says for a moment while it takes a group over, be it the first group of a new cluster.
_COORDINATOR_MOVES = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_ASK_AGAIN_SECONDS = 0.3
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as its coordinator sees it; one that nobody has ever joined has no members."""

    members: tuple[str, ...]  # the client id and host of each
    rebalancing: bool = False  # it waits for its members, and for dead ones until their sessions are out

    @property
    def shown(self) -> str:
        """Return some of the members, for people."""
        return ", ".join(self.members[:_SHOWN]) + (", …" if len(self.members) > _SHOWN else "")


def describe(admin: AdminClient, group_id: str, seconds: float) -> Group | None:
    """Return a group; None if the cluster can't tell, as librdkafka's mock cluster.

    Waits that long for a coordinator. Kafka's exceptions come out as they are.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = admin.describe_consumer_groups([group_id], request_timeout=seconds)[group_id].result(seconds + 1)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return Group(())
            if code == KafkaError._UNSUPPORTED_FEATURE:
                return None
            if code not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_SECONDS)
        else:
            members = tuple(f"{member.client_id} at {member.host.removeprefix('/')}" for member in found.members)
            return Group(members, found.state in _REBALANCING)
