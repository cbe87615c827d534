"""Threads that a test runs by hand, and a clock that moves when told."""

from __future__ import annotations

from collections import deque
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from ingestor.worker import run_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


class FakeClock:
    """Seconds that pass only when a test, or somebody's sleep, lets them."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the present second."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class ManualWorker:
    """Queues what it is given; a test runs it call by call, later, or never."""

    def __init__(self) -> None:
        self._tasks: deque[Callable[[], None]] = deque()
        self._busy = False

    def __len__(self) -> int:
        return len(self._tasks)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call and return its future."""
        future: Future[T] = Future()
        self._tasks.append(lambda: run_into(future, call))
        return future

    def run(self, calls: int = 1_000) -> int:
        """Run up to so many calls, none while one is running; return how many ran."""
        ran = 0
        while self._tasks and not self._busy and ran < calls:
            self._busy = True
            try:
                self._tasks.popleft()()
            finally:
                self._busy = False
            ran += 1
        return ran


class InstantWorker:
    """Runs each call at once."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call and return its future, which is done."""
        future: Future[T] = Future()
        run_into(future, call)
        return future


class SteppedFutures:
    """Stands in for `concurrent.futures` where it is waited on: waiting is when the workers get to run.

    Install it by `monkeypatch.setattr(module, "futures", SteppedFutures(...))` in the modules that wait.
    """

    FIRST_COMPLETED = futures.FIRST_COMPLETED

    def __init__(self, work: Callable[[], bool], clock: FakeClock) -> None:
        self._work = work
        self._clock = clock

    def wait(
        self, wanted: Iterable[Future[object]], timeout: float | None = None, return_when: str = futures.ALL_COMPLETED
    ) -> None:
        """Run what may run until the futures are done; if nothing runs any more, the time-out passes."""
        enough = any if return_when == futures.FIRST_COMPLETED else all
        waiting = list(wanted)
        while not enough(future.done() for future in waiting):
            if not self._work():
                assert timeout is not None, "this wait would never end"
                self._clock.advance(timeout)
                return
