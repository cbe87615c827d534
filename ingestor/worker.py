"""One thread that runs submitted calls in order.

It is a daemon thread: a call that hangs in a dead store must not keep the process alive.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Worker(Protocol):
    """Runs calls in the order of submission, one at a time."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call and return its future."""


class ThreadWorker:
    """A worker on its own thread, which ends with the process."""

    def __init__(self, name: str) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call and return its future; a cancelled future's call is skipped."""
        future: Future[T] = Future()
        self._tasks.put(lambda: run_into(future, call))
        return future

    def _run(self) -> None:
        while True:
            self._tasks.get()()


def run_into(future: Future[T], call: Callable[[], T]) -> None:
    """Run a call and put its result or its exception into a future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised by future.result()
        future.set_exception(error)
    else:
        future.set_result(result)
