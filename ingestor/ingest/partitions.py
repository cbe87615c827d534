"""The partitions assigned to this process, and each one's state.

    pending ──placed──▶ reading ──Kafka no longer has the position──▶ adrift ──all committed──▶ pending
       ▲                   │
       └── dropped: fenced, file lost, or in one draft with a partition that was revoked

Only a reading partition has a position; the lane does not take records of any other.
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
    """Moves every assigned partition from state to state. Everything here runs on the poll thread."""

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
        self.ends: dict[TopicPartition, int] = {}  # the end that Kafka reported last
        self._routes = routes
        self._source = source
        self._route_of = route_of
        self._watcher = watcher
        self._clock = clock

    def route(self, tp: TopicPartition) -> Route:
        """Return the route that a partition belongs to."""
        return self._routes[self._route_of(tp.topic)]

    def by_route(self, tps: Collection[TopicPartition]) -> Iterator[tuple[Route, set[TopicPartition]]]:
        """Group partitions by route."""
        by_route: dict[str, set[TopicPartition]] = {}
        for tp in tps:
            by_route.setdefault(self._route_of(tp.topic), set()).add(tp)
        for name, wanted in by_route.items():
            yield self._routes[name], wanted

    def read_to(self, tp: TopicPartition) -> int:
        """Return the position up to which a partition has been read; -1 if it has none."""
        route = self.route(tp)
        if route.failure is not None:
            return sys.maxsize  # a stopped route has nothing left to read
        position = route.lane.positions.get(tp)
        return -1 if position is None else max(position, self.ends.get(tp, 0))

    def positions(self, route: Route) -> dict[TopicPartition, int]:
        """Return the position up to which each reading partition of a route has been read."""
        return {tp: max(at, self.ends.get(tp, 0)) for tp, at in route.lane.positions.items()}

    # --- away from reading ---

    def set_adrift(self, route: Route, tp: TopicPartition) -> None:
        """Stop reading a partition until its records are committed; then it is placed again."""
        route.adrift.add(tp)
        self._source.pause([tp])

    def move_adrift(self, route: Route) -> None:
        """Place adrift partitions again once their records are committed."""
        if not route.adrift:
            return
        if route.lane.holds(route.adrift):
            if not route.lane.landing:
                route.lane.flush(FlushReason.ADRIFT)
            return
        adrift = set(route.adrift)
        route.lane.drop(adrift)
        self.start_again(route, adrift)

    def start_again(self, route: Route, tps: Collection[TopicPartition], *, later: bool = False) -> None:
        """Make partitions pending again; `later` delays the placement, for a store that does not answer."""
        again = self.assigned & set(tps)
        self._source.pause(again)
        route.adrift.difference_update(again)
        route.pending |= again
        if later:
            route.place_at = self._clock() + _PLACE_AGAIN_SECONDS

    def stop(self, route: Route) -> None:
        """Stop reading a route's partitions; they stay assigned."""
        ours = {tp for tp in self.assigned if self.route(tp) is route}
        route.lane.drop(ours)
        route.forget(ours)
        self._source.pause(ours)

    def let_go(self, tps: Collection[TopicPartition]) -> None:
        """Forget partitions that are no longer ours, and their records that are in no commit yet."""
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
        """Make new partitions pending, and ask for their placement."""
        route.pending.update(tps)
        if route.placing is None:
            self._ask(route)

    def place_pending(self, route: Route) -> None:
        """Ask for the placement of pending partitions, and start reading those that are placed."""
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
        """Wait for the placement of new partitions until the deadline; return the offsets to fetch from."""
        if route.placing is None or not route.placing_tps.issuperset(wanted):
            return {}
        futures.wait([route.placing], timeout=deadline.left())
        placed = self._answer(route)
        return {} if placed is None else self._enter(route, placed, wanted)

    def _must_probe(self, route: Route) -> bool:
        """Return whether the half-open breaker needs a probe: a paused route has no other call to the store.

        The probe is a placement of no partitions, which reads the newest version of the log.
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
        """Give partitions their positions; return the offsets to fetch from."""
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
