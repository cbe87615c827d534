"""When the first committed records of ranges were written: one record of each is read, outside of any group."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ingestor.kafka import ranges
from ingestor.kafka.by_hand import by_hand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.records import TopicPartition

_SECONDS_MAX = 5.0
_PEEK = {"queued.min.messages": "1", "max.partition.fetch.bytes": str(64 << 10)}  # one record each will do


def first_written(
    config: Mapping[str, str], spans: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    """Return the timestamp of each span's first record, -1 where Kafka has none; None where there is no record.

    What is not found in time is left out.
    """
    # Retention may be quicker than this look: then it begins where Kafka does.
    options = {**by_hand(config, "age"), "auto.offset.reset": "earliest", **_PEEK}
    waiting, found = dict(spans), {}
    deadline = time.monotonic() + _SECONDS_MAX
    looking = ranges.read(options, waiting, doing="looking for the oldest records", silent_seconds=_SECONDS_MAX)
    with contextlib.suppress(ranges.SilentError):
        for tp, messages in looking:
            found[tp] = max(-1, messages[0].timestamp()[1]) if messages else None
            waiting.pop(tp, None)
            if time.monotonic() > deadline:
                waiting.clear()
    return found
