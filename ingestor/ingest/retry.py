"""Retries storage calls for as long as their failures are retriable: with backoff, then behind the breaker.

Only permanent failures are raised. Nothing here decides whether a commit succeeded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ingestor.delta.failures import classify
from ingestor.errors import Fenced, IngestorError, Unavailable
from ingestor.ingest.breaker import BreakerState

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from ingestor.ingest.breaker import Breaker

T = TypeVar("T")


class Stopped(BaseException):
    """The process ends: leave whatever was tried as it is."""


class Sleep(Protocol):
    """Waits, unless the process ends meanwhile: then it raises `Stopped`."""

    def __call__(self, seconds: float) -> None:
        """Wait that long."""


class Ending:
    """The one flag that says that the process ends; sleeping on it is what the workers do between tries."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def begin(self) -> None:
        """Wake and stop everybody who sleeps, now and from now on."""
        self._event.set()

    def sleep(self, seconds: float) -> None:
        """Wait, unless the process ends meanwhile."""
        if self._event.wait(seconds):
            raise Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How one route retries storage calls."""

    waits: Callable[[], Iterator[float]]  # the backoff of one round of retries, without jitter
    max_retries: int
    jitter: float
    breaker: Breaker
    sleep: Sleep
    rng: random.Random
    on_failure: Callable[[IngestorError | Unavailable], None] = lambda _failure: None

    def enter(self) -> None:
        """Wait until the breaker lets a call through."""
        while (seconds := self.breaker.enter()) > 0:
            self.sleep(seconds)

    def until_answered(self, call: Callable[[], T], *, doing: str) -> T:
        """Call until it succeeds, and return its result; raise only a permanent failure or `Fenced`."""
        tries = Tries(self)
        while True:
            self.enter()
            try:
                result = call()
            except Fenced:
                raise  # not a storage failure
            except Exception as error:  # noqa: BLE001 - classified just below
                tries.failed(classify(error, doing=doing), error)
                continue
            self.breaker.succeeded()
            return result


class Tries:
    """The tries of one call: waits between them, and tells the breaker after each round."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._waits = patience.waits()
        self._left = patience.max_retries

    def failed(self, failure: IngestorError | Unavailable, cause: BaseException) -> None:
        """Wait before the next try; raise a permanent failure."""
        patience = self._patience
        patience.on_failure(failure)
        if isinstance(failure, IngestorError):
            patience.breaker.succeeded()  # the store answered, so a refusal does not count as an outage
            raise failure from cause
        if self._left > 0 and patience.breaker.state is BreakerState.CLOSED:
            self._left -= 1
            patience.sleep(next(self._waits) * patience.rng.uniform(1 - patience.jitter, 1 + patience.jitter))
            return
        self._left, self._waits = patience.max_retries, patience.waits()
        patience.breaker.failed()
