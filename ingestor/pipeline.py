"""The loop that leads records from Kafka to the log: poll, accept, look, place, hold back.

One thread polls; it never waits for storage longer than a moment, except in a rebalance, where the group waits for us
and a deadline bounds it. Each route has a lane; a lane's partitions are in one of three states:

    pending ──placed──▶ reading ──Kafka has not got the position any more──▶ adrift ──all landed──▶ pending
       ▲                   │
       └── dropped: fenced, file lost, or read along with a partition that was taken away

Only a reading partition has a position; records of all others are strangers to the lane, and are not taken.
"""

from __future__ import annotations

import sys
from concurrent import futures
from typing import TYPE_CHECKING

from ingestor.back_pressure import BackPressure
from ingestor.breaker import BreakerState
from ingestor.deadline import Deadline
from ingestor.errors import DataLossError, IngestorError, Unavailable
from ingestor.ledger import Gap
from ingestor.policy import FlushReason
from ingestor.route import Route, RouteView, Times, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ingestor.budget import Budget
    from ingestor.lane import Progress
    from ingestor.placement import Placed
    from ingestor.records import TopicPartition
    from ingestor.source import Polled, Source

_POLL_SECONDS = 0.1
_POLL_BYTES = 4 << 20  # enough to make the cost of a batch vanish, small enough to bound what one poll can bring
_POLL_RECORDS = 10_000
_PLACE_AGAIN_SECONDS = 1.0


class Pipeline:
    """Leads the routes of one process. Everything here runs on the thread that polls."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        source: Source,
        *,
        route_of: Callable[[str], str],
        budget: Budget,
        times: Times,
        watcher: Watcher,
        clock: Callable[[], float],
        poll_records: int = _POLL_RECORDS,
    ) -> None:
        self._routes = dict(routes)
        self._source = source
        self._route_of = route_of
        self._budget = budget
        self._times = times
        self._watcher = watcher
        self._clock = clock
        self._back_pressure = BackPressure(source, budget, watcher, clock)
        self._poll_records_max = poll_records
        self._poll_records = min(500, poll_records)  # until the size of a record is known
        self._assigned: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._failure: BaseException | None = None
        self.on_step: Callable[[], None] = lambda: None  # for whoever shows how the loop is doing
        self._joined = False

    # --- the loop ---------------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return frozenset(self._assigned)

    def run(self, until: Callable[[], bool]) -> None:
        """Ingest until a condition holds that is asked before every step; then land what is left."""
        self._source.subscribe(self)
        while not until():
            self.step(_POLL_SECONDS)
            self.on_step()
        self.finish()

    def step(self, timeout: float) -> None:
        """Poll once, and move everything on that can move."""
        polled = self._source.poll(self._poll_records, timeout)
        if self._failure is not None:
            raise self._failure
        self._take(polled)
        for route in self._working():
            try:
                self._handle(route, route.lane.look())
                self._move_adrift(route)
                self._place_pending(route)
            except IngestorError as error:
                self._give_up(route, error)
        self._back_pressure.apply(self._working())

    def _working(self) -> list[Route]:
        return [route for route in self._routes.values() if route.failure is None]

    def _give_up(self, route: Route, error: IngestorError) -> None:
        """Stop a route that no retry can help; raise if no other is left."""
        route.failure = error
        ours = {tp for tp in self._assigned if self._route_of(tp.topic) == route.lane.name}
        route.lane.drop(ours)
        route.forget(ours)
        self._source.pause(ours)
        self._watcher.gave_up(route.lane.name, error)
        if not self._working():
            raise error

    def finish(self) -> None:
        """Land what is in hand while there is time, and leave the group."""
        deadline = Deadline(self._times.stop_seconds, self._clock)
        self._land(self._working(), FlushReason.STOP, deadline)
        unfinished = [route.lane.name for route in self._working() if not route.lane.idle]
        self.abandon()
        for route in self._routes.values():
            if route.failure is not None:
                raise route.failure
        if unfinished:
            msg = f"storage did not answer in time, so the last records of {', '.join(unfinished)} are not in the table"
            raise IngestorError(msg, hint="nothing is lost: they are read again at the next start")

    @property
    def joined(self) -> bool:
        """Tell whether the group has given us an assignment, be it empty."""
        return self._joined

    @property
    def memory(self) -> tuple[int, int]:
        """Return how many bytes of records are in memory now, and how many may be before polling pauses."""
        return self._budget.used, self._budget.limit

    def view(self) -> dict[str, RouteView]:
        """Return how every route is, as values that do not change any more."""
        return {
            name: RouteView(
                breaker=route.breaker.state,
                answering=route.breaker.answering,
                paused=route.paused,
                pending=len(route.pending) + len(route.adrift),
                positions={tp: max(at, self._ends.get(tp, 0)) for tp, at in route.lane.positions.items()},
                in_hand=route.lane.in_hand,
                draft_bytes=route.lane.draft_bytes,
                failure=route.failure,
            )
            for name, route in self._routes.items()
        }

    def abandon(self) -> None:
        """Leave the group without landing anything more: after a failure."""
        self._failure = self._failure or IngestorError("stopping", hint="")
        self._source.close()

    def remaining(self, ends: Mapping[TopicPartition, int]) -> int:
        """Return how many offsets are left up to given positions, over the partitions that are ours."""
        return sum(max(0, ends.get(tp, 0) - max(0, self._at(tp))) for tp in self._assigned)

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Tell whether every partition that is ours has been read up to a given position."""
        return bool(self._assigned) and all(self._at(tp) >= ends.get(tp, 0) for tp in self._assigned)

    def _at(self, tp: TopicPartition) -> int:
        route = self._routes[self._route_of(tp.topic)]
        if route.failure is not None:
            return sys.maxsize  # nothing more will be read
        position = route.lane.positions.get(tp)
        return -1 if position is None else max(position, self._ends.get(tp, 0))

    def _take(self, polled: Polled) -> None:
        for tp, offset in polled.corrupt.items():
            self._lose(Gap(tp, offset, offset, "corrupt"))
        rows = size = 0
        for name, columns in polled.columns.items():
            selection = self._routes[name].lane.accept(columns)
            self._watcher.accepted(name, selection)
            if selection.batch is not None:
                rows += selection.batch.records.num_rows
                size += selection.batch.records.nbytes
        if rows:
            self._poll_records = max(1, min(self._poll_records_max, _POLL_BYTES * rows // max(1, size)))
        self._ends.update(polled.ends)
        for why in polled.waits:
            self._watcher.waiting(why)
        for tp in polled.lost_positions & self._assigned:
            route = self._routes[self._route_of(tp.topic)]
            if tp in route.lane.positions:
                self._set_adrift(route, tp)

    def _set_adrift(self, route: Route, tp: TopicPartition) -> None:
        """Read no more of a partition until all that was read is in the table; then it is placed again."""
        route.adrift.add(tp)
        self._source.pause([tp])

    def _lose(self, gap: Gap) -> None:
        """Deal with records that Kafka has but can't give: before anything read behind them is taken in."""
        route = self._routes[self._route_of(gap.tp.topic)]
        if gap.tp not in route.lane.positions:
            return
        if route.placer.skip_lost:
            route.damaged[gap.tp] = gap.first
            self._set_adrift(route, gap.tp)
            return
        error = DataLossError(
            f"route {route.lane.name}: a batch of {gap.tp} at offset {gap.first} fails its checksum",
            hint="restore the partition from a healthy replica, or accept the loss with on_data_loss: skip",
        )
        self._give_up(route, error)

    def _handle(self, route: Route, progress: Progress) -> None:
        """Act on what a look at a lane brought to light."""
        for flushed in progress.flushed:
            self._watcher.flushed(route.lane.name, flushed)
            ours = self._assigned & flushed.staged.last.keys()
            self._source.acknowledge({tp: flushed.staged.last[tp] + 1 for tp in ours})
        if progress.to_place:
            self._watcher.started_over(route.lane.name, progress)
            self._start_again(route, progress.to_place)
            if progress.unavailable:
                route.place_at = self._clock() + _PLACE_AGAIN_SECONDS

    def _start_again(self, route: Route, tps: Collection[TopicPartition]) -> None:
        again = self._assigned & set(tps)
        self._source.pause(again)
        route.adrift.difference_update(again)
        route.pending |= again

    def _move_adrift(self, route: Route) -> None:
        """Place partitions again whose position Kafka has lost, once all that was read of them is in the table."""
        if not route.adrift:
            return
        if route.lane.holds(route.adrift):
            if not route.lane.landing:
                route.lane.seal(FlushReason.ADRIFT)
            return
        adrift = set(route.adrift)
        route.lane.drop(adrift)
        self._start_again(route, adrift)

    # --- placing ----------------------------------------------------------------------------------------------------

    def _place_pending(self, route: Route) -> None:
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
                self._ends.pop(tp, None)
        route.pending.difference_update(starts)
        route.lane.topic_ids.update(placed.topic_ids)
        self._watcher.placed(route.lane.name, placed)
        return starts

    # --- rebalances: called by the source from inside poll ----------------------------------------------------------

    def on_assigned(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Place new partitions by the ledger; what can't be placed in time stays paused and is placed later."""
        self._watcher.rebalanced("assigned", tps)
        self._joined = True
        starts: dict[TopicPartition, int] = {}
        if self._failure is not None:
            return starts
        try:
            grouped = list(self._by_route(tps))
            self._assigned.update(tps)
            grouped = [(route, wanted) for route, wanted in grouped if route.failure is None]
            for route, wanted in grouped:
                route.pending |= wanted
                if route.placing is None:
                    self._ask(route)
            deadline = Deadline(self._times.place_seconds, self._clock)
            for route, wanted in grouped:
                if route.placing is not None and wanted <= route.placing_tps:
                    futures.wait([route.placing], timeout=deadline.left())
                    starts |= self._place_now(route, wanted)
        except BaseException as error:  # noqa: BLE001 - raised after the poll, where nothing of librdkafka is in between
            self._failure = error
        return starts

    def _place_now(self, route: Route, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            placed = self._answer(route)
        except IngestorError as error:
            self._give_up(route, error)
            return {}
        return {} if placed is None else self._enter(route, placed, wanted)

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Land what the partitions have in hand, as far as the deadline lets us; then forget them."""
        self._watcher.rebalanced("revoked", tps)
        if self._failure is None:
            try:
                deadline = Deadline(self._times.revoke_seconds, self._clock)
                holding = [route for route, gone in self._by_route(self._assigned & set(tps)) if route.lane.holds(gone)]
                self._land(holding, FlushReason.REVOKED, deadline)
            except BaseException as error:  # noqa: BLE001 - raised after the poll
                self._failure = error
        self._let_go(tps)

    def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Forget partitions that somebody else may own already; what of theirs is not landing is thrown away."""
        self._watcher.rebalanced("lost", tps)
        self._joined = False
        self._let_go(tps)

    def _let_go(self, tps: Collection[TopicPartition]) -> None:
        ours = self._assigned & set(tps)
        self._assigned -= ours
        for route, gone in self._by_route(ours):
            again = route.lane.drop(gone)
            route.forget(gone)
            self._watcher.gone(route.lane.name, gone)
            self._start_again(route, again)
        for tp in tps:
            self._ends.pop(tp, None)

    def _land(self, routes: Collection[Route], reason: FlushReason, deadline: Deadline) -> None:
        for route in routes:  # all at once: each lane has its own workers
            if not route.lane.landing:
                route.lane.seal(reason)
        for route in routes:
            try:
                self._handle(route, route.lane.flush(reason, deadline.left))
            except IngestorError as error:
                self._give_up(route, error)

    def _by_route(self, tps: Collection[TopicPartition]) -> Iterator[tuple[Route, set[TopicPartition]]]:
        by_route: dict[str, set[TopicPartition]] = {}
        for tp in tps:
            by_route.setdefault(self._route_of(tp.topic), set()).add(tp)
        for name, wanted in by_route.items():
            yield self._routes[name], wanted
