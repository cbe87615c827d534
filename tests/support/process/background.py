"""Work that goes on beside a test."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_END_SECONDS_MAX = 60.0


class Background:
    """Jobs that run while the `with` block runs, each in a thread of its own, until `_ending` is set.

    What one of them raises is raised at the end of the block, in the test's own thread.
    """

    def __init__(self, *jobs: Callable[[], None]) -> None:
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(len(jobs))
        self._running: list[Future[None]] = []
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        self._running = [self._pool.submit(job) for job in self._jobs]
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._pool.shutdown(wait=False)
        assert not wait(self._running, _END_SECONDS_MAX).not_done, "a thread does not end"
        for job in self._running:
            job.result()
