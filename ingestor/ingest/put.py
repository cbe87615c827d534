"""The one compare-and-swap on a Delta log: the raw table is committed to by it, and the quarantine table.

    look at the newest version ─▶ compare: may the entry follow it? ─ no ─▶ the caller raises
                     │ yes
                     ▼
               try to put our entry at version + 1          (lands there or nowhere: see `table_log`)
                     │ answered: landed
                     │ anything raised: the outcome is unknown, so look at that very slot
                     ├─ holds our commit id   ─▶ landed, only the answer was lost
                     ├─ holds another's entry ─▶ conflict: back off, begin again with a look
                     └─ is empty              ─▶ back off, try the SAME slot again

Put-if-absent gives every version one winner, and our entry can only ever stand right after the version that was
compared. So the commit is a compare-and-swap on all that this version says. Moving on to another slot while ours is
empty would break it: a delayed request of ours may still fill it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import backoff

from ingestor.errors import OccExhaustedError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from ingestor.config.settings import OccSettings

T = TypeVar("T")


class Outcome(StrEnum):
    """How a commit ended, as the metric names it."""

    LANDED = "landed"
    LANDED_UNANSWERED = "landed_unanswered"
    CONFLICT = "conflict"
    FENCED = "fenced"
    FAILED = "failed"


class Conflict(Exception):  # noqa: N818 - a verdict that steers the flow, not a failure
    """Another writer has the slot: look again."""


def compare_and_swap(
    attempt: Callable[[int], T],
    occ: OccSettings,
    *,
    sleep: Callable[[float], None],
    rng: random.Random,
    log: str,
    hint: str,
) -> T:
    """Return what an attempt returns that does not raise Conflict; it is told how many have.

    An attempt looks, compares, and puts at most one entry, right behind what it compared.
    """
    waits = waits_between(occ.base_seconds, occ.max_seconds)
    for conflicts in range(occ.max_retries + 1):
        try:
            return attempt(conflicts)
        except Conflict:
            sleep(rng.uniform(0, next(waits)))
    slots = "1 slot" if conflicts == 0 else f"{conflicts + 1} slots"
    raise OccExhaustedError(f"other writers won {slots} of the log of {log} in a row; nothing was lost", hint=hint)


def put_once(put: Callable[[], None], owner: Callable[[], str | None], commit_id: str) -> Outcome:
    """Put our entry into its slot; return what became of it, by the log itself. Raise while the slot is empty.

    Whoever tries again tries the same slot again. An entry of ours that did land is found then.
    """
    try:
        put()
    except Exception:
        found = owner()  # no exception tells whether the entry is there
        if found is None:
            raise
        return Outcome.LANDED_UNANSWERED if found == commit_id else Outcome.CONFLICT
    return Outcome.LANDED


def waits_between(base_seconds: float, max_seconds: float) -> Iterator[float]:
    """Return exponentially growing waits, before jitter."""
    waits = backoff.expo(factor=base_seconds, max_value=max_seconds)
    next(waits)  # backoff's generators answer nothing to the first call
    return waits
