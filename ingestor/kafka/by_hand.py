"""The options of consumers whose partitions are assigned by hand: they never join a group."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from ingestor.logs import librdkafka_logger

if TYPE_CHECKING:
    from collections.abc import Mapping


def by_hand(config: Mapping[str, str], purpose: str, *, isolation: str = "read_committed") -> dict[str, Any]:
    """Return the user's options with those for reading by hand; a position that Kafka no longer has is an error."""
    return {
        **config,
        "group.id": f"ingestor-{purpose}-{uuid.uuid4().hex}",  # required by librdkafka, never joined
        "group.protocol": "classic",
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": isolation,
        "logger": librdkafka_logger(),
    }
