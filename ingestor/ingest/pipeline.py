"""The main loop: poll Kafka, accept records, look at commits, place partitions, apply back pressure.

It runs on one thread, which waits for storage only briefly, except in a rebalance: there a deadline bounds the wait,
since the group waits for us. Each route has a lane; `partitions` knows which partitions are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestor.deadline import Deadline
from ingestor.errors import DataLossError, IngestorError
from ingestor.ingest.back_pressure import BackPressure
from ingestor.ingest.partitions import Partitions
from ingestor.ingest.policy import FlushReason
from ingestor.ingest.route import Route, RouteView, Times, Watcher
from ingestor.ledger import Gap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ingestor.ingest.budget import Budget
    from ingestor.ingest.lane import Progress
    from ingestor.kafka.source import Polled, Source
    from ingestor.records import TopicPartition

_POLL_SECONDS = 0.1
_POLL_BYTES = 4 << 20  # large enough to make the cost per batch negligible, small enough to bound one poll
_POLL_RECORDS = 10_000


class Pipeline:
    """Runs the routes of one process. Everything here runs on the poll thread."""

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
        self._budget = budget
        self._times = times
        self._watcher = watcher
        self._clock = clock
        self._back_pressure = BackPressure(source, budget, watcher, clock)
        self._poll_records_max = poll_records
        self._poll_records = min(500, poll_records)  # until the records' size is known
        self._partitions = Partitions(self._routes, source, route_of=route_of, watcher=watcher, clock=clock)
        self._failure: BaseException | None = None
        self.on_step: Callable[[], None] = lambda: None  # called after every step, for status and progress
        self._joined = False

    # --- the loop ---------------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned now."""
        return frozenset(self._partitions.assigned)

    def run(self, until: Callable[[], bool], *, poll_seconds: float = _POLL_SECONDS) -> None:
        """Ingest until a condition holds; then flush. The condition is checked before every step.

        `poll_seconds` bounds one poll, and so the delay with which the condition is noticed.
        """
        self._source.subscribe(self)
        while not until():
            self.step(poll_seconds)
            self.on_step()
        self.finish()

    def step(self, timeout: float) -> None:
        """Poll once, and advance every route."""
        polled = self._source.poll(self._poll_records, timeout)
        if self._failure is not None:
            raise self._failure
        self._take(polled)
        for route in self._working():
            try:
                self._handle(route, route.lane.look())
                self._partitions.move_adrift(route)
                self._partitions.place_pending(route)
            except IngestorError as error:
                self._give_up(route, error)
        self._back_pressure.apply(self._working())

    def _working(self) -> list[Route]:
        return [route for route in self._routes.values() if route.failure is None]

    def _give_up(self, route: Route, error: IngestorError) -> None:
        """Stop a route after a failure that no retry can fix; raise it if no other route is left."""
        route.failure = error
        self._partitions.stop(route)
        self._watcher.gave_up(route.lane.name, error)
        if not self._working():
            raise error

    def flush(self) -> bool:
        """Begin a flush of every draft; return False if one has to wait for the commit before it."""
        free = [route.lane for route in self._working() if not route.lane.landing]
        for lane in free:
            lane.flush(FlushReason.STOP)
        return len(free) == len(self._working())

    def finish(self) -> None:
        """Flush within the time to stop, and leave the group."""
        deadline = Deadline(self._times.stop_seconds, self._clock)
        self._flush_and_wait(self._working(), FlushReason.STOP, deadline)
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
        """Return whether the group has assigned us partitions, or none."""
        return self._joined

    @property
    def memory(self) -> tuple[int, int]:
        """Return the bytes of records in memory, and the limit."""
        return self._budget.used, self._budget.limit

    def view(self) -> dict[str, RouteView]:
        """Return a snapshot of every route."""
        assigned = {route.lane.name: len(tps) for route, tps in self._partitions.by_route(self._partitions.assigned)}
        return {
            name: RouteView(
                breaker=route.breaker.state,
                answering=route.breaker.answering,
                paused=route.paused,
                pending=len(route.pending) + len(route.adrift),
                positions=self._partitions.positions(route),
                in_hand=route.lane.in_hand,
                draft_bytes=route.lane.draft_bytes,
                failure=route.failure,
                assigned=assigned.get(name, 0),
                held=route.held if route.paused else "",
            )
            for name, route in self._routes.items()
        }

    def abandon(self) -> None:
        """Leave the group without a flush, after a failure."""
        self._failure = self._failure or IngestorError("stopping", hint="")
        self._source.close()

    def remaining(self, ends: Mapping[TopicPartition, int]) -> int:
        """Return how many offsets the assigned partitions have left up to these positions."""
        return sum(max(0, ends.get(tp, 0) - max(0, self._partitions.read_to(tp))) for tp in self._partitions.assigned)

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether every assigned partition has been read up to its position here."""
        ours = self._partitions.assigned
        return bool(ours) and all(self._partitions.read_to(tp) >= ends.get(tp, 0) for tp in ours)

    def _take(self, polled: Polled) -> None:
        for tp, offset in polled.damaged.items():
            self._lose(Gap(tp, offset, offset, "corrupt"))
        rows = size = 0
        for name, columns in polled.columns:
            selection = self._routes[name].lane.accept(columns)
            self._watcher.accepted(name, selection)
            if selection.batch is not None:
                rows += selection.batch.records.num_rows
                size += selection.batch.memory_bytes
        if rows:
            self._poll_records = max(1, min(self._poll_records_max, _POLL_BYTES * rows // max(1, size)))
        self._partitions.ends.update(polled.ends)
        for why in polled.waits:
            self._watcher.waiting(why)
        for tp in polled.lost_positions & self._partitions.assigned:
            route = self._partitions.route(tp)
            if tp in route.lane.positions:
                self._partitions.set_adrift(route, tp)

    def _lose(self, gap: Gap) -> None:
        """Handle damaged records, before any record behind them is accepted."""
        route = self._partitions.route(gap.tp)
        if gap.tp not in route.lane.positions:
            return
        if route.placer.skip_lost:
            route.damaged[gap.tp] = gap.first
            self._partitions.set_adrift(route, gap.tp)
            return
        error = DataLossError(
            f"route {route.lane.name}: a batch of {gap.tp} at offset {gap.first} fails its checksum",
            hint="restore the partition from a healthy replica, or accept the loss with on_data_loss: skip",
        )
        self._give_up(route, error)

    def _handle(self, route: Route, progress: Progress) -> None:
        """Act on a lane's progress."""
        for flushed in progress.flushed:
            self._watcher.flushed(route.lane.name, flushed)
            ours = self._partitions.assigned & flushed.staged.last.keys()
            self._source.acknowledge({tp: flushed.staged.last[tp] + 1 for tp in ours})
        if progress.to_place:
            self._watcher.started_over(route.lane.name, progress)
            self._partitions.start_again(route, progress.to_place, later=bool(progress.unavailable))

    # --- rebalances: called by the source from inside poll ----------------------------------------------------------

    def on_assigned(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Place new partitions by the ledger; those that can't be placed in time stay paused and are placed later."""
        self._watcher.rebalanced("assigned", tps)
        self._joined = True
        starts: dict[TopicPartition, int] = {}
        if self._failure is not None:
            return starts
        try:
            grouped = list(self._partitions.by_route(tps))
            self._partitions.assigned.update(tps)
            grouped = [(route, wanted) for route, wanted in grouped if route.failure is None]
            for route, wanted in grouped:
                self._partitions.add(route, wanted)
            deadline = Deadline(self._times.place_seconds, self._clock)
            for route, wanted in grouped:
                starts |= self._place_now(route, wanted, deadline)
        except BaseException as error:  # noqa: BLE001 - must not pass through librdkafka: raised after the poll
            self._failure = error
        return starts

    def _place_now(
        self, route: Route, wanted: Collection[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        try:
            return self._partitions.place_now(route, wanted, deadline)
        except IngestorError as error:
            self._give_up(route, error)
            return {}

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Flush the partitions' records within the deadline; then forget the partitions."""
        self._watcher.rebalanced("revoked", tps)
        if self._failure is None:
            try:
                deadline = Deadline(self._times.revoke_seconds, self._clock)
                ours = self._partitions.by_route(self._partitions.assigned & set(tps))
                holding = [route for route, gone in ours if route.lane.holds(gone)]
                self._flush_and_wait(holding, FlushReason.REVOKED, deadline)
            except BaseException as error:  # noqa: BLE001 - raised after the poll
                self._failure = error
        self._partitions.let_go(tps)

    def on_lost(self, tps: Collection[TopicPartition]) -> None:
        """Forget partitions that another member may own already, and their records that are in no commit yet."""
        self._watcher.rebalanced("lost", tps)
        self._joined = False
        self._partitions.let_go(tps)

    def _flush_and_wait(self, routes: Collection[Route], reason: FlushReason, deadline: Deadline) -> None:
        for route in routes:  # concurrently: each lane has its own workers
            if not route.lane.landing:
                route.lane.flush(reason)
        for route in routes:
            try:
                self._handle(route, route.lane.flush_and_wait(reason, deadline.left))
            except IngestorError as error:
                self._give_up(route, error)
