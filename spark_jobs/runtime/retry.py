"""Retries a job's write that conflicts with another writer's commit."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException

from ingestor.errors import OccExhaustedError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_TRIES_MAX = 5
_BASE_SECONDS = 1.0


def on_conflict(run: Callable[[], T], *, doing: str, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what `run` returns; after a conflict repeat it, a few times."""
    for number in range(_TRIES_MAX):
        try:
            return run()
        except PySparkException as error:  # Delta's exceptions have no common class of their own
            if "DELTA_CONCURRENT" not in str(error):
                raise
            if number + 1 == _TRIES_MAX:
                msg = f"{doing}: another job changed the same files {_TRIES_MAX} times"
                raise OccExhaustedError(msg, hint="let only one such job run at a time; nothing is lost") from error
        sleep(_BASE_SECONDS * 2**number * random.uniform(0.75, 1.25))  # noqa: S311 - jitter
    raise AssertionError("unreachable")
