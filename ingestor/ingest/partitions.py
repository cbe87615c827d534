"""The partitions that are ours, and the ways each takes from waiting for its place to being read and back.

    pending ──placed──▶ reading ──Kafka has not got the position any more──▶ adrift ──all landed──▶ pending
       ▲                   │
       └── dropped: fenced, file lost, or read along with a partition that was taken away

Only a reading partition has a position; records of all others are strangers to the lane, and are not taken.
"""

from __future__ import annotations

import sys
from concurrent import futures
from typing import TYPE_CHECKING

from ingestor.errors import Unavailable
from ingestor.ingest.breaker import BreakerState
from ingestor.ingest.policy import FlushReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ingestor.deadline import Deadline
    from ingestor.ingest.placement import Placed
    from ingestor.ingest.route import Route, Watcher
    from ingestor.kafka.source import Source
    from ingestor.records import TopicPartition

_PLACE_AGAIN_SECONDS = 1.0


class Partitions:
    """Leads every partition of the assignment from state to state. Everything here runs on the thread that polls."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        source: Source,
        *,
        route_of: Callable[[str], str],
        watcher: Watcher,
        clock: Callable[[], float],
    ) -> None:
        self.assigned: set[TopicPartition] = set()
        self.ends: dict[TopicPartition, int] = {}  # where Kafka said that there is no more
        self._routes = routes
        self._source = source
        self._route_of = route_of
        self._watcher = watcher
        self._clock = clock

    def route(self, tp: TopicPartition) -> Route:
        """Return the route that a partition belongs to."""
        return self._routes[self._route_of(tp.topic)]

    def by_route(self, tps: Collection[TopicPartition]) -> Iterator[tuple[Route, set[TopicPartition]]]:
        """Return the partitions of each route that has any of them."""
        by_route: dict[str, set[TopicPartition]] = {}
        for tp in tps:
            by_route.setdefault(self._route_of(tp.topic), set()).add(tp)
        for name, wanted in by_route.items():
            yield self._routes[name], wanted

    def read_to(self, tp: TopicPartition) -> int:
        """Return up to where a partition has been read; -1 if it has no position."""
        route = self.route(tp)
        if route.failure is not None:
            return sys.maxsize  # nothing more will be read
        position = route.lane.positions.get(tp)
        return -1 if position is None else max(position, self.ends.get(tp, 0))

    def positions(self, route: Route) -> dict[TopicPartition, int]:
        """Return up to where each partition of a route has been read that has a position."""
        return {tp: max(at, self.ends.get(tp, 0)) for tp, at in route.lane.positions.items()}

    # --- away from reading ---

    def set_adrift(self, route: Route, tp: TopicPartition) -> None:
        """Read no more of a partition until all that was read is in the table; then it is placed again."""
        route.adrift.add(tp)
        self._source.pause([tp])

    def move_adrift(self, route: Route) -> None:
        """Place partitions again whose position Kafka has lost, once all that was read of them is in the table."""
        if not route.adrift:
            return
        if route.lane.holds(route.adrift):
            if not route.lane.landing:
                route.lane.seal(FlushReason.ADRIFT)
            return
        adrift = set(route.adrift)
        route.lane.drop(adrift)
        self.start_again(route, adrift)

    def start_again(self, route: Route, tps: Collection[TopicPartition], *, later: bool = False) -> None:
        """Let partitions wait for their places once more: not before a while if the store does not answer."""
        again = self.assigned & set(tps)
        self._source.pause(again)
        route.adrift.difference_update(again)
        route.pending |= again
        if later:
            route.place_at = self._clock() + _PLACE_AGAIN_SECONDS

    def stop(self, route: Route) -> None:
        """Read no more of a route's partitions; they stay assigned."""
        ours = {tp for tp in self.assigned if self.route(tp) is route}
        route.lane.drop(ours)
        route.forget(ours)
        self._source.pause(ours)

    def let_go(self, tps: Collection[TopicPartition]) -> None:
        """Forget partitions that are no longer ours, and what of theirs is not landing."""
        ours = self.assigned & set(tps)
        self.assigned -= ours
        for route, gone in self.by_route(ours):
            again = route.lane.drop(gone)
            route.forget(gone)
            self._watcher.gone(route.lane.name, gone)
            self.start_again(route, again)
        for tp in tps:
            self.ends.pop(tp, None)

    # --- to reading ---

    def add(self, route: Route, tps: Collection[TopicPartition]) -> None:
        """Let partitions that are new wait for their places, and ask for these."""
        route.pending.update(tps)
        if route.placing is None:
            self._ask(route)

    def place_pending(self, route: Route) -> None:
        """Ask for the places of pending partitions, and let those be read whose places are known."""
        if route.placing is None:
            if (route.pending and self._clock() >= route.place_at) or self._must_probe(route):
                self._ask(route)
            return
        placed = self._answer(route)
        if placed is not None and route.placing_tps:
            starts = self._enter(route, placed, route.pending)
            kept = {
                tp: at for each in self._routes.values() for tp, at in each.lane.positions.items() if tp not in starts
            }
            self._source.reposition(starts, kept)

    def place_now(
        self, route: Route, wanted: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Wait for the places of new partitions as long as there is time; return from where to fetch them."""
        if route.placing is None or not route.placing_tps.issuperset(wanted):
            return {}
        futures.wait([route.placing], timeout=deadline.left())
        placed = self._answer(route)
        return {} if placed is None else self._enter(route, placed, wanted)

    def _must_probe(self, route: Route) -> bool:
        """Tell whether nobody else would ask the store whether it is back: while it is held back there is no traffic.

        Then the places of no partitions are asked for, which looks at the newest version of the log.
        """
        return route.breaker.state is BreakerState.HALF_OPEN and not route.lane.landing

    def _ask(self, route: Route) -> None:
        tps = route.placing_tps = frozenset(route.pending)
        damaged = {tp: offset for tp, offset in route.damaged.items() if tp in tps}
        route.placing = route.store.submit(lambda: route.placer.place(tps, damaged))

    def _answer(self, route: Route) -> Placed | None:
        if route.placing is None or not route.placing.done():
            return None
        answer, route.placing = route.placing, None
        error = answer.exception()
        if error is None:
            return answer.result()
        if not isinstance(error, Unavailable):
            raise error
        self._watcher.waiting(str(error))
        route.place_at = self._clock() + _PLACE_AGAIN_SECONDS
        return None

    def _enter(self, route: Route, placed: Placed, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Give partitions their positions; return from where to fetch them."""
        starts = {}
        for tp, placement in placed.placements.items():
            if tp in route.pending and tp in wanted:
                route.lane.place(tp, txn=placed.txns[tp], position=placement.position, gap=placement.gap)
                starts[tp] = placement.fetch_from
                route.damaged.pop(tp, None)
                self.ends.pop(tp, None)
        route.pending.difference_update(starts)
        route.lane.topic_ids.update(placed.topic_ids)
        self._watcher.placed(route.lane.name, placed)
        return starts
