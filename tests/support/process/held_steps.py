"""Points at which a Spark job of a route can be held, or ended: before and after all that others can see of it.

A point is `NAME:NTH:WHEN`: `append:2:before` is right before the job's second append. Names: `claim` and `end`, of a
step; `append`, to a table; `change`, a DELETE or MERGE of one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from spark_jobs.runtime import retry
from spark_jobs.steps.checkpoint import Checkpoint
from spark_jobs.steps.tables import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

_OWNERS: dict[str, tuple[Any, str]] = {
    "claim": (Checkpoint, "claim"),
    "end": (Checkpoint, "end"),
    "append": (Sink, "append"),
    "change": (retry, "on_conflict"),
}
SECONDS_MAX = 900.0


def points(*calls: str) -> list[str]:
    """Return both sides of each call."""
    return [f"{call}:{when}" for call in calls for when in ("before", "after")]


PARSE = points("claim:1", "append:1", "append:2", "end:1")
REPARSE = points("claim:1", "append:1", "change:1", "end:1")
RESET = points("claim:1", "change:1", "change:2", "end:1")


def arm(point: str, act: Callable[[], None], patch: Callable[[Any, str, Any], None]) -> None:
    """Call `act` when this thread comes to the point; other threads pass."""
    name, nth, when = point.split(":")
    owner, method = _OWNERS[name]
    original, calls, me = getattr(owner, method), [0], threading.get_ident()

    def held(*arguments: Any, **named: Any) -> Any:
        if threading.get_ident() != me:
            return original(*arguments, **named)
        calls[0] += 1
        here = calls[0] == int(nth)
        if here and when == "before":
            act()
        result = original(*arguments, **named)
        if here and when == "after":
            act()
        return result

    patch(owner, method, held)


class Held(threading.Thread):
    """A job in a thread of its own, held at a point until it is let go; what it raises is kept."""

    def __init__(self, point: str, job: Callable[[], Any], patch: Callable[[Any, str, Any], None]) -> None:
        super().__init__(daemon=True)
        self._setup = (point, job, patch)
        self._there, self._go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.found: Any = None

    def run(self) -> None:
        """Do the job."""
        point, job, patch = self._setup
        arm(point, self._hold, patch)
        try:
            self.found = job()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            self._there.set()

    def _hold(self) -> None:
        self._there.set()
        assert self._go.wait(SECONDS_MAX)

    def __enter__(self) -> Self:
        """Start it, and wait until it is held (or over, if it does not come by there)."""
        self.start()
        assert self._there.wait(SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go on to its end."""
        self._go.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
