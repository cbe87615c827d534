"""Looks for the first committed records of ranges, outside of any group: what is left to land."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ingestor.kafka import ranges
from ingestor.kafka.by_hand import by_hand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.records import TopicPartition

_PEEK = {"queued.min.messages": "1", "max.partition.fetch.bytes": str(64 << 10)}  # one record each will do
_PEEK_SECONDS = 10.0


def first_committed(
    config: Mapping[str, str], spans: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Return where the first committed record of each span stands, its end if there is none.

    What is not found in time is left out: a long run of aborted records takes reading to get over.
    """
    if not spans:
        return {}
    # Retention may be quicker than the caller's look: then it begins where Kafka does.
    options = {**by_hand(config, "lag"), "auto.offset.reset": "earliest", **_PEEK}
    waiting, found = dict(spans), {}
    deadline = time.monotonic() + _PEEK_SECONDS
    looking = ranges.read(options, waiting, doing="looking for records that are left", silent_seconds=_PEEK_SECONDS)
    with contextlib.suppress(ranges.SilentError):
        for tp, messages in looking:
            found[tp] = (messages[0].offset() or 0) if messages else spans[tp][1]
            waiting.pop(tp, None)
            if time.monotonic() > deadline:
                waiting.clear()
    return found
