"""Since when the first record that the table lacks has been waiting, by partition.

Of a record that was read its timestamp is known. Of others it is looked up, a few at a time and once each; until then,
and while Kafka is away, the wait counts from when the record was first seen to be missing.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ingestor.observe.snapshot import Row
    from ingestor.records import TopicPartition

LOOKED_UP_MAX = 200  # partitions at a time
_SETTLED_SECONDS = 5.0  # most records are read before that, and need no looking up


@dataclass(frozen=True, slots=True)
class _Missing:
    offset: int  # the first one that the table lacks
    end: int | None  # what Kafka's end was when that was looked up, None if it was not
    since: float  # Unix time


class Ages:
    """Safe to use from any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._missed: dict[TopicPartition, _Missing] = {}

    def behind(self, rows: Iterable[Row]) -> float:
        """Return how long the oldest record that the table lacks has been waiting; 0 if it lacks none."""
        now = self._clock()
        since = [row.first_ms / 1000 if row.first_ms >= 0 else self._missing(row, now).since for row in rows if row.lag]
        return max(0.0, now - min(since, default=now))

    def unknown(self, rows: Iterable[Row]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where to look up records, not too many: from the first offset that is missing up to Kafka's end."""
        now = self._clock()
        found: dict[TopicPartition, tuple[int, int]] = {}
        for row in rows:
            if row.first_ms < 0 and row.end is not None and row.lacks < row.end:
                missing = self._missing(row, now)
                settled = missing.end is None and now - missing.since >= _SETTLED_SECONDS
                grown = math.isinf(missing.since) and missing.end != row.end
                if settled or grown:
                    found[row.tp] = (row.lacks, row.end)
            if len(found) == LOOKED_UP_MAX:
                break
        return found

    def _missing(self, row: Row, now: float) -> _Missing:
        with self._lock:
            known = self._missed.get(row.tp)
            if known is None or known.offset != row.lacks:
                known = self._missed[row.tp] = _Missing(row.lacks, None, now)
            return known

    def found(
        self, spans: Mapping[TopicPartition, tuple[int, int]], written_ms: Mapping[TopicPartition, int | None]
    ) -> None:
        """Take in when the first record of each span was written: None if it has none, and nothing is waiting."""
        with self._lock:
            for tp, ms in written_ms.items():
                offset, end = spans[tp]
                known = self._missed.get(tp)
                if known is None or known.offset != offset:
                    continue
                since = math.inf if ms is None else known.since if ms < 0 else ms / 1000
                self._missed[tp] = _Missing(offset, end, since)

    def forget_all_but(self, tps: Collection[TopicPartition]) -> None:
        """Forget partitions that are no longer ours."""
        with self._lock:
            for tp in self._missed.keys() - set(tps):
                del self._missed[tp]
