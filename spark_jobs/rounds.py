"""Several routes in one run: a failure of one does not stop the others.

With `--every`, a failed route is tried again after growing pauses; the others keep their interval. Each route's state
is in the log and in `state.json` in its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingestor import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestor.errors import IngestorError
    from spark_jobs.rows.balance import Balance

_PAUSE_SECONDS_MAX = 600.0
_WORST_FIRST = (3, 4, 2, 5, 1)


def worst(errors: list[IngestorError]) -> IngestorError:
    """Return the gravest error by exit code: data loss, then what a person must fix, then what passes by itself."""
    return min(errors, key=lambda error: _WORST_FIRST.index(error.exit_code))


@dataclass
class Health:
    """The state of one route."""

    error: IngestorError | None = None
    failures: int = 0  # in a row
    due: float = 0.0  # monotonic time


@dataclass
class Rounds:
    """The state of every route."""

    pause_seconds: float | None  # between rounds; None: a single round
    clock: Callable[[], float] = time.monotonic
    health: dict[str, Health] = field(default_factory=dict)

    def due(self, route: str) -> bool:
        """Return whether a route is to be tried in this round."""
        return self.health.setdefault(route, Health()).due <= self.clock()

    def well(self, route: str) -> None:
        """Note that a route has succeeded."""
        self.health[route] = Health()

    def failed(self, route: str, error: IngestorError) -> None:
        """Note and log that a route has failed."""
        health = self.health[route]
        health.error = error
        health.failures += 1
        pause = self.pause_seconds or 0.0
        wait = min(pause * 2 ** min(health.failures - 1, 30), max(pause, _PAUSE_SECONDS_MAX))
        health.due = self.clock() + wait
        more = {} if self.pause_seconds is None else {"failures": health.failures, "retry_seconds": wait}
        logs.get().error("route failed", route=route, error=str(error), exit_code=error.exit_code, **more)

    def errors(self) -> list[IngestorError]:
        """Return the current errors."""
        return [each.error for each in self.health.values() if each.error is not None]

    def require_well(self) -> None:
        """Raise the worst of the current errors."""
        errors = self.errors()
        if errors:
            raise worst(errors)

    def state(self, route: str, balance: Balance | None) -> str:
        """Return a route's state as JSON, for monitoring."""
        health = self.health[route]
        error = health.error
        return json.dumps(
            {
                "route": route,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "state": "well" if error is None else "failing",
                "failures": health.failures,
                "exit_code": 0 if error is None else error.exit_code,
                "error": None if error is None else str(error),
                "retry_seconds": None if error is None else round(max(health.due - self.clock(), 0.0), 1),
                "balance": None if balance is None else asdict(balance),
            }
        )


def leave(write: Callable[[str], None], state: str) -> None:
    """Write a route's state; a failure to write it is ignored."""
    with contextlib.suppress(Exception):
        write(state)
