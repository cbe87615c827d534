"""How everything was at one moment, in values that change no more: written by the loop, read by any thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ingestor.records import TopicPartition  # noqa: TC001 - a named tuple's fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.ingest.route import RouteView
    from ingestor.observe.lag import Ends
    from ingestor.observe.watch import Committed


class Row(NamedTuple):
    """One partition: what the table has of it, and what it lacks. Made in thousands, so it is a tuple."""

    tp: TopicPartition
    position: int | None  # up to where it was read, None if it is not being read
    lacks: int  # the first offset that the table lacks
    committed: int | None  # the last offset that it has
    record_ms: int  # when the record there was written, -1 if unknown
    first_ms: int  # when the first record was written that was read and has not landed, -1 if unknown
    end: int | None  # where Kafka ended for readers of committed records, when it was asked last
    low: int | None  # the first offset that Kafka still had then
    open_at: int | None  # where an open transaction hides what follows

    @property
    def lag(self) -> int | None:
        """Return how many offsets the table is behind, None if Kafka was never asked.

        What was read counts too, though Kafka was asked before it came.
        """
        if self.end is None:
            return None
        return max(0, max(self.end, self.position or 0) - self.lacks)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The routes, and how far each partition is in its table."""

    joined: bool = False
    routes: Mapping[str, RouteView] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, Committed]] = field(default_factory=dict)
    memory: tuple[int, int] = (0, 0)

    @property
    def reading(self) -> frozenset[TopicPartition]:
        """Return the partitions that have a position."""
        return frozenset(tp for view in self.routes.values() for tp in view.positions)

    def lacking(self, name: str) -> dict[TopicPartition, int]:
        """Return the first offset that a route's table lacks, by partition.

        Where everything that was read is in the table, that is where reading goes on: behind the last record there may
        be transaction markers and aborted records, which will never be in any table. A partition that waits for its
        place, or whose route was stopped, stands where it stood.
        """
        view = self.routes[name]
        landed = {tp: found.lacks for tp, found in self.committed.get(name, {}).items()}
        read = {tp: at for tp, at in view.positions.items() if tp not in view.in_hand or tp not in landed}
        return landed | read

    def rows(self, ends: Ends) -> dict[str, list[Row]]:
        """Return every partition of every route, in order."""
        found: dict[str, list[Row]] = {}
        for name, view in self.routes.items():
            committed = self.committed.get(name, {})
            rows = found[name] = []
            for tp, lacks in sorted(self.lacking(name).items()):
                stands = committed.get(tp)
                rows.append(
                    Row(
                        tp=tp,
                        position=view.positions.get(tp),
                        lacks=lacks,
                        committed=None if stands is None else stands.offset,
                        record_ms=-1 if stands is None else stands.timestamp_ms,
                        first_ms=view.in_hand.get(tp, -1),
                        end=ends.stable.get(tp),
                        low=ends.low.get(tp),
                        open_at=ends.held.get(tp),
                    )
                )
        return found
