"""An ingestor process made of the real parts over the fakes, which a test leads step by step.

Everything of a process that runs on threads in production waits in its two workers here until it is told to run, so a
test decides what happens between any two steps, also inside a commit (`Process.between`).
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from unittest import mock

from ingestor.config.settings import FlushSettings, OccSettings, RetrySettings
from ingestor.delta.guards import Guards
from ingestor.ingest import back_pressure
from ingestor.ingest import lane as lane_module
from ingestor.ingest import partitions as partitions_module
from ingestor.ingest.breaker import Breaker
from ingestor.ingest.budget import Budget
from ingestor.ingest.committer import Committer, make_patience
from ingestor.ingest.lane import Flushed, Lane, Progress
from ingestor.ingest.pipeline import Pipeline
from ingestor.ingest.placement import Placed, Placer
from ingestor.ingest.route import Route, Times
from ingestor.ingest.steps import Steps
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import RawSchema, TopicPartition
from tests.support.fakes.group import FakeGroup
from tests.support.fakes.judge import Judge
from tests.support.fakes.kafka import FakeKafka
from tests.support.fakes.source import FakeSource
from tests.support.fakes.storage import MemoryStorage
from tests.support.fakes.table import Crash, FakeLog, FakeTable
from tests.support.fakes.worker import FakeClock, ManualWorker, SteppedFutures
from tests.support.judge.traces import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ingestor.errors import IngestorError
    from ingestor.ingest.buffer import Selection
    from ingestor.ingest.put import Outcome

APP_ID = "app"
ROUTE = "route"
ALL = 1_000
SLEEPS_MAX = 3_000  # of one process: beyond, a call is being tried again for ever


class World:
    """What all processes share: the clock, Kafka, the group, the log and its files."""

    def __init__(self, topics: Mapping[str, int], *, eager: bool, traced: bool = False) -> None:
        self.clock = FakeClock()
        self.kafka = FakeKafka(topics)
        self.group = FakeGroup(self.kafka.partitions, eager=eager)
        self.log = FakeLog()
        self.storage = MemoryStorage()
        self.judge = Judge(self.log, self.storage, self.kafka, app_id=APP_ID)
        self.strangers = False  # let records of revoked partitions come out of the poll that revoked them
        self.running: list[Process] = []  # whose poll thread runs, the innermost last
        self._born = 0
        self.recorder = Recorder()
        self.traced = traced  # let processes tell their steps to the recorder

    def process(self, **settings: Any) -> Process:
        """Start a process and let it join the group."""
        self._born += 1
        return Process(self, f"member-{self._born}", **settings)

    @contextmanager
    def installed(self) -> Iterator[World]:
        """Let waiting run the workers of whoever waits, instead of taking time."""
        stepped = SteppedFutures(self._work, self.clock)
        with ExitStack() as patched:
            for module in (back_pressure, lane_module, partitions_module):
                patched.enter_context(mock.patch.object(module, "futures", stepped))
            yield self

    def _work(self) -> bool:
        waiting = self.running[-1]
        if waiting.patience_left <= 0:
            return False
        waiting.patience_left -= 1
        return waiting.work(1) > 0


class Told:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.flushes: list[Flushed] = []
        self.outcomes: list[Outcome] = []
        self.placements: list[Placed] = []
        self.duplicates = 0
        self.strangers = 0

    def accepted(self, _route: str, selection: Selection) -> None:
        """Count what was not taken."""
        self.duplicates += selection.duplicates
        self.strangers += selection.strangers

    def flushed(self, _route: str, flushed: Flushed) -> None:
        """Remember a flush."""
        self.flushes.append(flushed)
        self.events.append(f"flushed: {flushed.reason}")

    def started_over(self, _route: str, progress: Progress) -> None:
        """Remember that all was dropped."""
        self.events.append(f"started over: {'fenced' if progress.fenced else 'file lost'}")

    def rebalanced(self, event: str, _tps: Collection[TopicPartition]) -> None:
        """Remember a rebalance."""
        self.events.append(event)

    def placed(self, _route: str, placed: Placed) -> None:
        """Remember places."""
        self.placements.append(placed)

    def gone(self, _route: str, _tps: Collection[TopicPartition]) -> None:
        """Need no partitions that are not ours any more."""

    def waiting(self, why: str) -> None:
        """Remember a wait."""
        self.events.append(f"waiting: {why}")

    def gave_up(self, _route: str, error: IngestorError) -> None:
        """Remember an end."""
        self.events.append(f"gave up: {error.message}")

    def held_back(self, _route: str, *, paused: bool, why: str) -> None:
        """Remember back-pressure."""
        self.events.append(f"paused: {why}" if paused else "resumed")


class Process:
    """One ingestor. `step` is its poll thread, `encoder` and `store` are its other two."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        limits: FlushSettings | None = None,
        budget: int = 1 << 30,
        times: Times | None = None,
        skip_lost: bool = True,
        occ_retries: int = 100,
        poll_records: int = 5,
        breaker_successes: int = 1,
    ) -> None:
        self.world = world
        self.name = name
        self.told = Told()
        self._killed = False
        self.sleeps = 0
        self.patience_left = ALL  # how many calls the workers get done while the poll thread waits for them
        self.between: deque[tuple[str, Callable[[], None]]] = deque()
        self.encoder = ManualWorker()
        self.store = ManualWorker()
        self.budget = Budget(budget)
        self.table = FakeTable(world.log, world.storage, hook=self._hook)
        self.breaker = Breaker(failures=2, open_seconds=20, successes=breaker_successes, clock=world.clock)
        self._steps = Steps(world.recorder.of(name), on=lambda: world.traced and not self.dead)
        self.source = FakeSource(world.kafka, world.group, name, route_of=lambda _topic: ROUTE)
        self.source.strangers = world.strangers
        committer = self._committer(occ_retries)
        placer = Placer(ROUTE, "memory", committer, world.kafka, skip_lost=skip_lost)
        self.lane = self._lane(committer, limits or FlushSettings(rows=6, bytes=1 << 20, seconds=60))
        self.route = Route(self.lane, placer, self.store, self.breaker)
        self.pipeline = Pipeline(
            {ROUTE: self.route},
            self.source,
            route_of=lambda _topic: ROUTE,
            budget=self.budget,
            times=times or Times(revoke_seconds=30, place_seconds=10),
            watcher=self.told,
            clock=world.clock,
            poll_records=poll_records,
        )
        self.source.subscribe(self.pipeline)

    def _committer(self, occ_retries: int) -> Committer:
        patience = make_patience(
            RetrySettings(max_retries=1, base_seconds=1, max_seconds=4, jitter=0.25),
            breaker=self.breaker,
            sleep=self._sleep,
            rng=random.Random(0),
        )
        return Committer(
            self.table,
            Guards(ROUTE, "memory", AppIds(DEFAULT_TEMPLATE, APP_ID)),
            occ=OccSettings(max_retries=occ_retries, base_seconds=0.1, max_seconds=1),
            patience=patience,
            clock=self.world.clock,
            on_outcome=self.told.outcomes.append,
            steps=self._steps,
        )

    def _lane(self, committer: Committer, limits: FlushSettings) -> Lane:
        return Lane(
            ROUTE,
            schema=RawSchema(),
            storage=lambda: self.world.storage,
            limits=limits,
            compression="zstd",
            land=committer.land,
            encoder=self.encoder,
            store=self.store,
            budget=self.budget,
            clock=self.world.clock,
            today=self._today,
            steps=self._steps,
        )

    # --- what a test does with it -----------------------------------------------------------------------------------

    def step(self, *, patience: int = ALL) -> None:
        """Let the poll thread make one turn; while it waits, the workers get so many calls done."""
        if self.dead or self in self.world.running:
            return
        self.patience_left = patience
        self.world.running.append(self)
        try:
            self.pipeline.step(0.1)
        except Crash:
            self._killed = True
        finally:
            self.world.running.pop()

    def work(self, calls: int = ALL) -> int:
        """Let the workers run so many calls, files before commits; return how many ran."""
        ran = 0
        while ran < calls and not self.dead and (self.encoder.run(1) or self.store.run(1)):
            ran += 1
        return ran

    def go(self, turns: int = 1) -> None:
        """Make turns of a second, each with all the work that it brings."""
        for _ in range(turns):
            self.world.clock.advance(1)
            self.step()
            self.work()

    def crash(self) -> None:
        """Die: nothing of it ever runs again. The group does not know yet."""
        self._killed = True

    @property
    def dead(self) -> bool:
        """Tell whether the process was killed, or a planned fault did it."""
        return self._killed or self.table.crashed

    def interpose(self, call: str, action: Callable[[], None]) -> None:
        """Do something right before the table's next call of this name; in the order in which it was asked for."""
        self.between.append((call, action))

    # --- what the parts see of the world ----------------------------------------------------------------------------

    def _hook(self, call: str) -> None:
        if self.between and self.between[0][0] == call:
            self.between.popleft()[1]()
            if self.dead:
                raise Crash

    def _sleep(self, seconds: float) -> None:
        self.sleeps += 1
        if self.sleeps > SLEEPS_MAX:
            self.crash()  # an exception would only look like one more failure of the store
            raise Crash
        self.world.clock.advance(seconds + 1e-6)  # a clock that rounds a tiny rest away would never get there
        self._hook("sleep")

    def _today(self) -> date:
        return datetime.fromtimestamp(self.world.clock(), UTC).date()
