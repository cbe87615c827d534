"""`run --once`: when it is done, when it gives up, and what it reports if it ends before.

Done means that the table has every committed record up to the ends that Kafka had at the start. The pipeline knows this
of the partitions that are assigned to this process. For the others the table is read, whichever process committed them.
The drain waits while there is any progress; then it gives up with an error.
"""

from __future__ import annotations

import sys
import time
from concurrent import futures
from typing import TYPE_CHECKING, Protocol

from ingestor.commands.opening import OpenRoute, open_route
from ingestor.errors import IngestorError, RefusedError, Unavailable
from ingestor.kafka.reader import first_committed
from ingestor.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Future

    from ingestor.config.settings import Settings
    from ingestor.ingest.pipeline import Pipeline
    from ingestor.kafka.broker import Broker
    from ingestor.observe.membership import Membership
    from ingestor.observe.watch import Watch
    from ingestor.records import TopicPartition
    from ingestor.worker import Worker

_LOOK_EVERY_SECONDS = 2.0
_LAST_LOOK_SECONDS = 5.0
_SHOW_EVERY_SECONDS = 0.5
_AFTER_SESSION_SECONDS = 15.0  # for the rebalance that follows the end of a dead member's session
_SHOWN = 3
_GOES_ON = "start it again, it goes on where the table ends"


class Landed:
    """What the table lacks up to given ends, whichever process commits it. Called on a worker: it does I/O."""

    def __init__(self, settings: Settings, broker: Broker, ends: Mapping[TopicPartition, int]) -> None:
        self._settings = settings
        self._broker = broker
        self._ends = ends
        self._open: dict[str, OpenRoute] = {}

    def offsets_left(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how many offsets each partition is behind; refuse where `run` would refuse."""
        left: dict[TopicPartition, int] = {}
        for name, route in self._settings.routes.items():
            wanted = [tp for tp in tps if route.matches(tp.topic)]
            if not wanted:
                continue
            if name not in self._open:
                self._open[name] = open_route(self._settings, route, self._broker)
            placed = self._open[name].placer.place(wanted)
            left |= {tp: max(0, self._ends[tp] - at.position) for tp, at in placed.placements.items()}
        return left

    def records_left(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the same, but 0 where only markers and aborted records are left."""
        left = self.offsets_left(tps)
        behind = {tp: (self._ends[tp] - count, self._ends[tp]) for tp, count in left.items() if count}
        found = first_committed(self._settings.kafka, behind)
        return left | {tp: self._ends[tp] - at for tp, at in found.items()}


class Goal(Protocol):
    """When a run ends: `over` is called before every step, `verdict` at the end."""

    poll_seconds: float

    def over(self) -> bool:
        """Return whether the run is to end."""

    def verdict(self, rows: int) -> None:
        """Raise if the run ended before it was done; `rows` is how many it committed."""


class Endless:
    """Runs until a signal."""

    poll_seconds = 0.1

    def __init__(self, pipeline: Pipeline, membership: Membership) -> None:
        self._pipeline = pipeline
        self._membership = membership

    def over(self) -> bool:
        """Return False; log why nothing is assigned, if that is so."""
        self._membership.look(lacking=not self._pipeline.joined)
        self._membership.tell()
        return False

    def verdict(self, rows: int) -> None:
        """Do nothing: an endless run has no goal to miss."""


class Drain:
    """Runs until the ends that Kafka had at the start."""

    # After the last record there is nothing to wait for. Before it, polls fill up sooner than this.
    poll_seconds = 0.02

    def __init__(
        self,
        pipeline: Pipeline,
        ends: Mapping[TopicPartition, int],
        landed: Landed,
        membership: Membership,
        *,
        patience_seconds: float,
        watch: Watch,
        show: bool = False,
        worker: Worker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._ends = ends
        self._landed = landed
        self._membership = membership
        self._patience_seconds = patience_seconds
        self._watch = watch
        self._show_it = show
        self._shown_at = 0.0
        self._dropped_before = 0
        self._clock = clock
        self._worker = worker or ThreadWorker("left")
        self._moved_at = self._looked_at = clock()
        self._look: Future[dict[TopicPartition, int]] | None = None
        self._left: dict[TopicPartition, int] = {}
        self._trouble = ""
        self._ours: frozenset[TopicPartition] = frozenset()
        self._flushed = False  # whether a flush of all that was read up to the ends has begun
        self._done = False
        self._failure: IngestorError | None = None

    def over(self) -> bool:
        """Return whether everything has been read or committed, or waiting is pointless."""
        over = self._look_around(self._clock())
        if self._show_it:
            self._show(over=over)
        self._dropped_before = self._watch.dropped
        return over

    def _look_around(self, now: float) -> bool:
        ours = self._pipeline.assigned
        reading = bool(ours) and not self._pipeline.reached(self._ends)
        if reading or ours != self._ours:
            self._ours, self._moved_at, self._flushed = ours, now, False
        lacking = self._ends.keys() - ours
        self._membership.look(lacking=bool(lacking))
        if not ours:
            self._membership.tell()
        if reading:
            return False
        if lacking and not self._flushed:  # other members may wait for our commits
            self._flushed = self._pipeline.flush()
        self._done = not lacking or self._others_are_done(lacking, now)
        if not self._done and self._failure is None and now - self._moved_at > self._patience():
            self._failure = self._gives_up(lacking)
        return self._done or self._failure is not None

    def _others_are_done(self, lacking: Collection[TopicPartition], now: float) -> bool:
        """Read the table now and then; return whether it has all records of partitions that are not ours."""
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            self._take_in(look, now)
            if not any(self._left.get(tp, 1) for tp in lacking):
                return True
        if self._look is None and now - self._looked_at >= _LOOK_EVERY_SECONDS:
            self._looked_at = now
            wanted = tuple(lacking)
            self._look = self._worker.submit(lambda: self._landed.records_left(wanted))
        return False

    def _take_in(self, look: Future[dict[TopicPartition, int]], now: float) -> None:
        try:
            left = look.result()
        except Unavailable as error:
            self._trouble = str(error)
        except IngestorError as error:
            self._failure = error
        else:
            if sum(left.values()) != sum(self._left.values()):
                self._moved_at = now
            self._left, self._trouble = left, ""

    def _patience(self) -> float:
        """Return how long to wait without progress: if there are other members, for the partitions of a dead one."""
        if not self._membership.others:
            return self._patience_seconds
        return max(self._patience_seconds, self._membership.session_seconds + _AFTER_SESSION_SECONDS)

    def _gives_up(self, lacking: Collection[TopicPartition]) -> RefusedError:
        behind = sorted(tp for tp in lacking if self._left.get(tp, 1))
        shown = ", ".join(map(str, behind[:_SHOWN])) + (", …" if len(behind) > _SHOWN else "")
        what = "no partition was" if not self._ours else f"{len(lacking)} of {len(self._ends)} partitions were not"
        msg = f"{what} assigned to this process within {self._patience():g} s, and {shown} is not drained"
        hint = "let the group's other members finish or end them, see that Kafka serves groups, and start again"
        return RefusedError(f"{msg}: {self._trouble or self._membership.why}", hint=hint)

    def verdict(self, rows: int) -> None:
        """Raise if the drain ended before it was done, saying how much is left."""
        if self._failure is not None:
            raise self._failure
        if not self._done:
            raise ended_early(rows, self._left_now())
        if self._watch.dropped != self._dropped_before:  # the last flush was fenced by another process
            left = self._worker.submit(lambda: self._landed.records_left(tuple(self._ends))).result()
            if behind := sum(left.values()):
                msg = f"another process committed meanwhile: {rows:,} rows landed, {behind:,} offsets are left"
                raise IngestorError(msg, hint=_GOES_ON)

    def _show(self, *, over: bool) -> None:
        """Show the progress on a terminal."""
        now = time.monotonic()
        if over or now - self._shown_at > _SHOW_EVERY_SECONDS:
            self._shown_at = now
            left = self._pipeline.remaining(self._ends)
            end = "\n" if over else ""
            sys.stderr.write(f"\r{self._watch.rows_landed:,} rows in the table, {left:,} offsets to read   {end}")
            sys.stderr.flush()

    def _left_now(self) -> str:
        answer = self._worker.submit(lambda: self._landed.offsets_left(tuple(self._ends)))
        try:
            return f"{sum(answer.result(_LAST_LOOK_SECONDS).values()):,} offsets are left"
        except (IngestorError, Unavailable, futures.TimeoutError) as error:
            return f"how much is left is unknown ({str(error) or 'the table does not answer'})"


def ended_early(rows: int, left: str) -> IngestorError:
    """Return the error of a drain that a signal ended."""
    msg = f"ended by a signal before all was landed: {rows:,} rows landed, {left}"
    return IngestorError(msg, hint=_GOES_ON)
