"""Lands a staged file in the Delta log exactly once, by compare-and-swap on the txn actions.

    refresh ─▶ are all txns what the rows were built on? ─ no ─▶ Fenced: drop everything, start from the ledger
                     │ yes
                     ▼
               do the guards let it pass?  ─ no ─▶ refused, until a person answers     (see `guards`)
                     │ yes
                     ▼
               try to put our entry at version + 1          (lands there or nowhere: see `table_log`)
                     │ answered: landed
                     │ anything raised: the outcome is unknown, so look at that very slot
                     ├─ holds our commit id   ─▶ landed, only the answer was lost
                     ├─ holds another's entry ─▶ conflict: back off, begin again from refresh
                     └─ is empty              ─▶ back off, try the SAME slot again

Why this is exactly once: put-if-absent gives every version one winner; our entry can only ever stand at the version
right after the one whose txns were compared, so the commit is a compare-and-swap on them; hence the txns of a
partition form one chain of adjacent ranges, each with its rows beside it in the same entry. Moving on to another slot
while ours is empty would break it: a delayed request of ours may still fill it. The file is written once and never
removed here: an unreferenced file costs space until VACUUM, a removed one that did land costs rows.
"""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import backoff

from ingestor.delta.guards import Guards, removal_marks, removed_hint
from ingestor.errors import Fenced, IngestorError, OccExhaustedError, RefusedError
from ingestor.ingest.retry import Patience
from ingestor.ingest.stager import set_positions
from ingestor.ingest.steps import SILENT, Steps
from ingestor.ledger import moved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ingestor.config.settings import OccSettings, RetrySettings
    from ingestor.delta.removals import Removal
    from ingestor.delta.table import Table
    from ingestor.ingest.stager import Staged
    from ingestor.records import TopicPartition

# Log cleanup may remove entries older than the log's retention (a day at the least that anyone sets); a process that
# was stopped that long between comparing and putting could fill a slot that was cleaned away. See `_check_fresh`.
_STALE_AFTER_SECONDS = 600.0


class Outcome(StrEnum):
    """How a commit ended, as the metric names it."""

    LANDED = "landed"
    LANDED_UNANSWERED = "landed_unanswered"
    CONFLICT = "conflict"
    FENCED = "fenced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Landed:
    """A batch that is durable in the table."""

    version: int
    outcome: Outcome
    conflicts: int
    seconds: float


class Committer:
    """Owns one route's handle on the table. Runs on that route's storage thread only."""

    def __init__(
        self,
        table: Table,
        guards: Guards,
        *,
        occ: OccSettings,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
        on_outcome: Callable[[Outcome], None] = lambda _outcome: None,
        remember: bool = True,
        steps: Steps = SILENT,
    ) -> None:
        """Take an open table. Without `remember` nothing is written into the log but what is committed."""
        self._table = table
        self._guards = guards
        self._app_ids = guards.app_ids
        self._occ = occ
        self._patience = patience
        self._clock = clock
        self._on_outcome = on_outcome
        self._remember = remember
        self._seen_removal: Removal | None = None
        self._harmless = -1  # the newest log entry that took rows away before any were landed
        self._steps = steps
        steps("opened", version=table.version)

    def read(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the last landed offset of each partition, as the newest version of the log has it.

        Refuse if somebody took rows away, and nobody has answered for it.
        """
        found = self.known(tps)
        self._steps("looked", version=self._table.version, txns=found)
        self._guards.refuse_removed(self._table.txns, self._seen_removal)
        return found

    def known(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the last landed offset of each partition, whatever the guards would say."""
        self._look()
        self._remember_removal()
        return self._app_ids.look_up(self._table.txns, tps)

    def unanswered(self) -> tuple[int, list[TopicPartition]]:
        """Return the newest log entry that took rows away, and our partitions that nobody has answered for."""
        self.known([])
        return self._guards.removed(self._table.txns)

    def txns(self) -> Mapping[str, int]:
        """Return every txn of the table as of the last look, also those of others."""
        return self._table.txns

    def recreated(self, tp: TopicPartition, topic_id: str | None) -> bool:
        """Tell whether the topic is another one, of the same name, than the one that the landed rows came from."""
        return self._guards.recreated(self._table.txns, tp, topic_id)

    def check_guards(self, tps: Collection[TopicPartition]) -> None:
        """Refuse partitions that the guards do not let pass, as of the last look."""
        txns = self._table.txns
        self._guards.refuse_removed(txns, self._seen_removal)
        self._guards.check(txns, tps, self._other_topics)
        fresh = [tp for tp in tps if self._app_ids.of(tp) not in txns]
        held = self._held(fresh) if fresh else set()
        if not held:
            return
        self._look()  # another member of our group may have landed its first rows since the last one
        owned = {tp for tp in held if self._app_ids.of(tp) not in self._table.txns}
        if owned:
            raise self._guards.foreign_error(min(owned), "without a txn action")
        raise Fenced("another member of the group has just begun with these partitions")

    def _look(self) -> None:
        self._patience.until_answered(self._table.refresh, doing="reading the Delta log")

    def _held(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        return self._patience.until_answered(lambda: self._table.holding(tps), doing="reading the table")

    def _other_topics(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        return self._patience.until_answered(lambda: self._table.other_topics(tps), doing="reading the table")

    def _remember_removal(self) -> None:
        """Write into the log that rows were taken away: the refusal then stands for every process, for ever."""
        while (removal := self._table.removal) is not None and removal.version > self._harmless:
            self._seen_removal = removal
            marks = removal_marks(self._table.txns, removal.version)
            if not marks:
                self._harmless = removal.version  # nothing had been landed, so nothing is missing
                return
            refusal = RefusedError(
                f"table {self._guards.table_uri}: log entry {removal.version} ({removal.what}): "
                "rows may be gone that count as landed",
                hint=removed_hint(removal.version),
            )
            if not self._remember:
                raise refusal
            info = {"app_id": self._app_ids.app_id, "route": self._guards.route, "operation_kind": "refused"}
            try:
                self._put(set_positions({}, marks=marks), info)
            except IngestorError as error:
                raise refusal from error  # the entry itself still stands there for the next start
            self._look()

    def commit(self, staged: Staged, info: Mapping[str, Any]) -> Landed:
        """Land a staged batch; raise Fenced or OccExhaustedError with nothing of it in the table."""
        started = self._clock()
        waits = waits_between(self._occ.base_seconds, self._occ.max_seconds)
        for conflicts in range(self._occ.max_retries + 1):
            self._compare(staged)
            compared_at = self._clock()
            outcome = self._put(staged, info)
            self._on_outcome(outcome)
            if outcome is not Outcome.CONFLICT:
                slot = self._table.version + 1
                self._check_fresh(compared_at)
                self._patience.until_answered(lambda: self._table.settle(slot), doing="syncing the log entry")  # noqa: B023
                self._steps("acknowledged", commit_id=staged.commit_id, slot=slot)
                return Landed(slot, outcome, conflicts, self._clock() - started)
            self._patience.sleep(self._patience.rng.uniform(0, next(waits)))
        self._on_outcome(Outcome.FAILED)
        slots = "1 slot" if conflicts == 0 else f"{conflicts + 1} slots"
        msg = f"other writers won {slots} of the log in a row; nothing was lost"
        raise OccExhaustedError(
            msg,
            hint="raise occ.max_retries, lengthen flush.seconds, or let fewer writers share the table, and start again",
        )

    def _compare(self, staged: Staged) -> None:
        """Refuse a batch that was built on txns which are no longer the table's, or that the guards refuse."""
        actual = self.known(staged.expected)
        stale = moved(staged.expected, actual)
        if stale:
            shown = ", ".join(f"{tp} is at {now}, not {was}" for tp, (was, now) in sorted(stale.items())[:3])
            self._steps("compared", commit_id=staged.commit_id, version=self._table.version, txns=actual, moved=stale)
            raise self._fenced(shown)
        if staged.answer is None:
            try:
                self.check_guards(staged.expected)
            except Fenced as fenced:
                raise self._fenced(str(fenced)) from None
        self._steps("compared", commit_id=staged.commit_id, version=self._table.version, txns=actual, moved=stale)

    def _fenced(self, why: str) -> Fenced:
        self._on_outcome(Outcome.FENCED)
        return Fenced(why)

    def _put(self, staged: Staged, info: Mapping[str, Any]) -> Outcome:
        """Put our entry into the next slot, and find out from the log itself what became of it."""
        slot = self._table.version + 1
        txns = {self._app_ids.of(tp): last for tp, last in staged.last.items()}
        marks = {**staged.marks, **self._marks(staged, info.get("topic_ids", {}))}
        marked = {**info, "commit_id": staged.commit_id}

        def try_once() -> Outcome:
            moved_away = [file.path for file in staged.files if not file.standing()]
            if moved_away:
                raise self._fenced(f"data file {moved_away[0]} was moved away or replaced after it was written")
            self._steps("put", commit_id=staged.commit_id, slot=slot, last=staged.last)
            try:
                self._table.attempt(staged.files, {**txns, **marks}, marked)
            except Exception as error:
                self._steps("unanswered", commit_id=staged.commit_id, slot=slot, error=type(error).__name__)
                # No exception tells whether the entry is there. If this look fails too, the next try is for the
                # same slot again, so an entry of ours that did land is found then.
                owner = self._table.slot(slot)
                self._steps("found", commit_id=staged.commit_id, slot=slot, owner=owner)
                if owner is None:
                    raise
                return Outcome.LANDED_UNANSWERED if owner == staged.commit_id else Outcome.CONFLICT
            self._steps("answered", commit_id=staged.commit_id, slot=slot)
            return Outcome.LANDED

        return self._patience.until_answered(try_once, doing="committing to the Delta log")

    def _marks(self, staged: Staged, topic_ids: Mapping[str, str]) -> dict[str, int]:
        """Return what the guards are to remember of a batch."""
        txns, tps = self._table.txns, staged.last.keys()
        if staged.answer is None:
            return self._guards.new_origins(txns, tps, topic_ids)
        return self._guards.answers(txns, tps, staged.answer, topic_ids)

    def _check_fresh(self, compared_at: float) -> None:
        """Treat an overlong commit as fenced: whether or not its entry still counts, the ledger knows."""
        if self._clock() - compared_at > _STALE_AFTER_SECONDS:
            self._steps("overlong")
            raise self._fenced("the commit took so long that the log may have been cleaned up meanwhile")


def waits_between(base_seconds: float, max_seconds: float) -> Iterator[float]:
    """Return exponentially growing waits, before jitter."""
    waits = backoff.expo(factor=base_seconds, max_value=max_seconds)
    next(waits)  # backoff's generators answer nothing to the first call
    return waits


def make_patience(retry: RetrySettings, **world: Any) -> Patience:  # noqa: ANN401 - breaker, sleep, …: see Patience
    """Return the patience that a route's `retry` settings describe."""
    waits = functools.partial(waits_between, retry.base_seconds, retry.max_seconds)
    return Patience(waits=waits, max_retries=retry.max_retries, jitter=retry.jitter, **world)


def system_rng() -> random.Random:
    """Return the randomness of production; tests bring their own."""
    return random.Random()  # noqa: S311 - jitter, not secrets
