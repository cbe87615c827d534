"""Lands a staged file in the Delta log exactly once, by compare-and-swap on the txn actions: `Committer.land`.

    is each topic still the one that its records were read from? ─ no ─▶ Fenced: drop everything, start from the ledger
                     │ yes
                     ▼
    refresh ─▶ are all txns what the rows were built on? ─ no ─▶ Fenced
                     │ yes
                     ▼
               do the guards let it pass?  ─ no ─▶ refused, until a person answers     (see `guards`)
                     │ yes
                     ▼
               put our entry at version + 1, or find that another has it               (see `put`)
                     │ landed
                     ▼
               sync the entry ─▶ acknowledged ─▶ maintain the table now and then       (see `maintenance`)

Why this is exactly once: the commit is a compare-and-swap on the txns, so those of a partition form one chain of
adjacent ranges, each with its rows beside it in the same entry. The file is written once and never removed here: an
unreferenced file costs space until VACUUM, a removed one that did land costs rows.
"""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingestor.delta.commit_info import commit_info
from ingestor.delta.guards import Guards, removal_marks, removed_hint
from ingestor.errors import Fenced, IngestorError, OccExhaustedError, RefusedError
from ingestor.ingest.put import Conflict, Outcome, compare_and_swap, put_once, waits_between
from ingestor.ingest.retry import Patience
from ingestor.ingest.stager import set_positions
from ingestor.ingest.steps import SILENT, Steps
from ingestor.ledger import moved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ingestor.config.settings import OccSettings, RetrySettings
    from ingestor.delta.removals import Removal
    from ingestor.delta.table import Table
    from ingestor.ingest.stager import Staged
    from ingestor.records import TopicPartition

# Log cleanup may remove entries older than the log's retention (a day at the least that anyone sets); a process that
# was stopped that long between comparing and putting could fill a slot that was cleaned away. See `_check_fresh`.
_STALE_AFTER_SECONDS = 600.0


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
        topic_ids: Callable[[set[str]], Mapping[str, str]] = lambda _topics: {},
        maintain: Callable[[int], None] = lambda _version: None,
        remember: bool = True,
        steps: Steps = SILENT,
    ) -> None:
        """Take an open table.

        `topic_ids` tells which topics are there now, `maintain` is told of each version that landed. Without `remember`
        nothing is written into the log but what is committed.
        """
        self._table = table
        self._guards = guards
        self._app_ids = guards.app_ids
        self._occ = occ
        self._patience = patience
        self._clock = clock
        self._on_outcome = on_outcome
        self._topic_ids = topic_ids
        self._maintain = maintain
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
            try:
                self._put(set_positions({}, marks=marks), {"operation_kind": "refused"})
            except IngestorError as error:
                raise refusal from error  # the entry itself still stands there for the next start
            self._look()

    # --- exactly once ---

    def land(self, staged: Staged, said: Mapping[str, Any]) -> Landed:
        """Land a staged batch; raise Fenced or OccExhaustedError with nothing of it in the table.

        `said` goes into the commitInfo: the kind of operation, gaps, and the ids of the topics that the rows are from.
        """
        started = self._clock()
        self._refuse_recreated(staged, said.get("topic_ids", {}))

        def attempt(conflicts: int) -> Landed:
            self._compare(staged)
            compared_at = self._clock()
            slot = self._table.version + 1
            outcome = self._put(staged, said)
            self._on_outcome(outcome)
            if outcome is Outcome.CONFLICT:
                raise Conflict
            self._check_fresh(compared_at)
            self._patience.until_answered(lambda: self._table.settle(slot), doing="syncing the log entry")
            self._steps("acknowledged", commit_id=staged.commit_id, slot=slot)
            return Landed(slot, outcome, conflicts, self._clock() - started)

        landed = self._against_others(attempt)
        self._maintain(landed.version)
        return landed

    def _against_others(self, attempt: Callable[[int], Landed]) -> Landed:
        hint = "raise occ.max_retries, lengthen flush.seconds, or let fewer writers share the table, and start again"
        patience, log = self._patience, self._guards.table_uri
        try:
            return compare_and_swap(attempt, self._occ, sleep=patience.sleep, rng=patience.rng, log=log, hint=hint)
        except OccExhaustedError:
            self._on_outcome(Outcome.FAILED)
            raise

    def _refuse_recreated(self, staged: Staged, placed_ids: Mapping[str, str]) -> None:
        """Fence a batch if its topic is another one than when it was placed: its offsets may be of either.

        Topic ids never come back, so an unchanged id now proves that every record of the batch is of that topic.
        """
        for topic, now in self._topic_ids({tp.topic for tp in staged.last} & placed_ids.keys()).items():
            if now != placed_ids[topic]:
                msg = f"topic {topic} was deleted and created again"
                raise Fenced(msg)

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

    def _put(self, staged: Staged, said: Mapping[str, Any]) -> Outcome:
        """Put our entry into the slot behind what was compared, and find out from the log what became of it."""
        slot = self._table.version + 1
        txns = {self._app_ids.of(tp): last for tp, last in staged.last.items()}
        marks = {**staged.marks, **self._marks(staged, said.get("topic_ids", {}))}
        info = commit_info(self._app_ids.app_id, self._guards.route, staged.commit_id, said)

        def put() -> None:
            self._steps("put", commit_id=staged.commit_id, slot=slot, last=staged.last)
            try:
                self._table.attempt(staged.files, {**txns, **marks}, info)
            except Exception as error:
                self._steps("unanswered", commit_id=staged.commit_id, slot=slot, error=type(error).__name__)
                raise
            self._steps("answered", commit_id=staged.commit_id, slot=slot)

        def owner() -> str | None:
            found = self._table.slot(slot)
            self._steps("found", commit_id=staged.commit_id, slot=slot, owner=found)
            return found

        def try_once() -> Outcome:
            moved_away = [file.path for file in staged.files if not file.standing()]
            if moved_away:
                raise self._fenced(f"data file {moved_away[0]} was moved away or replaced after it was written")
            return put_once(put, owner, staged.commit_id)

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


def make_patience(retry: RetrySettings, **world: Any) -> Patience:  # noqa: ANN401 - breaker, sleep, …: see Patience
    """Return the patience that a route's `retry` settings describe."""
    waits = functools.partial(waits_between, retry.base_seconds, retry.max_seconds)
    return Patience(waits=waits, max_retries=retry.max_retries, jitter=retry.jitter, **world)


def system_rng() -> random.Random:
    """Return the randomness of production; tests bring their own."""
    return random.Random()  # noqa: S311 - jitter, not secrets
