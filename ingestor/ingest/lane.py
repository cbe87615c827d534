"""One route's state between columns and the log: the positions, the open draft, and the commit under way.

The lane runs on the poll thread. One worker encodes files; another makes them durable and does all log access. Each
works in order, and the lane only checks their futures. At most one draft is open and one commit is under way, so a
store that does not answer stops the lane instead of filling the memory.

The *chain* holds, for each partition, the txn that the table will have after all earlier flushes. A draft expects it.
If a commit is fenced, everything that was built on its chain is dropped.
"""

from __future__ import annotations

from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingestor.delta.failures import classify
from ingestor.errors import Fenced, IngestorError
from ingestor.ingest import policy
from ingestor.ingest.buffer import Selection, select
from ingestor.ingest.stager import Draft, Staged
from ingestor.ingest.steps import SILENT, Steps
from ingestor.worker import run_into

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import date

    from ingestor.config.settings import FlushSettings
    from ingestor.delta.storage import Storage
    from ingestor.ingest.budget import Budget
    from ingestor.ingest.committer import Landed
    from ingestor.ingest.policy import FlushReason
    from ingestor.ledger import Gap
    from ingestor.records import Columns, RawSchema, TopicPartition
    from ingestor.worker import Worker


@dataclass(frozen=True, slots=True)
class Landing:
    """A flush under way: its draft is closed, its commit has not ended."""

    reason: FlushReason
    landed: Future[tuple[Staged, Landed]]
    first_ms: Mapping[TopicPartition, int]  # of each partition that it has records of
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Flushed:
    """A flush whose commit succeeded."""

    staged: Staged
    landed: Landed
    reason: FlushReason
    gaps: tuple[Gap, ...]


@dataclass(slots=True)
class Progress:
    """What has happened since the last look at the lane."""

    flushed: list[Flushed] = field(default_factory=list)
    to_place: set[TopicPartition] = field(default_factory=set)  # dropped, to be placed again by the ledger
    fenced: str = ""  # the reason, if another process moved a txn
    unavailable: str = ""  # the reason, if a file could not be written


class Lane:
    """One route. All methods are for the poll thread."""

    def __init__(
        self,
        name: str,
        *,
        schema: RawSchema,
        storage: Callable[[], Storage],
        limits: FlushSettings,
        compression: str,
        land: Callable[[Staged, Mapping[str, Any]], Landed],
        encoder: Worker,
        store: Worker,
        budget: Budget,
        clock: Callable[[], float],
        today: Callable[[], date],
        steps: Steps = SILENT,
    ) -> None:
        self.name = name
        self.positions: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}  # as of the partitions' placement
        self._chain: dict[TopicPartition, int | None] = {}
        self._gaps: dict[TopicPartition, Gap] = {}
        self._draft: Draft | None = None
        self._landing: Landing | None = None
        self._schema = schema
        self._storage = storage
        self._limits = limits
        self._compression = compression
        self._land = land
        self._encoder = encoder
        self._store = store
        self._budget = budget
        self._clock = clock
        self._today = today
        self._steps = steps

    @property
    def blocking(self) -> Future[tuple[Staged, Landed]] | None:
        """Return the commit under way, if the open draft is due and has to wait for it."""
        return self._landing.landed if self._landing is not None and self._due() is not None else None

    @property
    def landing(self) -> bool:
        """Return whether a commit is under way."""
        return self._landing is not None

    @property
    def draft_bytes(self) -> int:
        """Return the uncompressed size of the open draft's records."""
        return 0 if self._draft is None else self._draft.stats.bytes

    @property
    def in_hand(self) -> dict[TopicPartition, int]:
        """Return the partitions that have records which are not durable yet; of each, its first one's timestamp."""
        draft = {} if self._draft is None else self._draft.first_ms
        landing = {} if self._landing is None else self._landing.first_ms
        return {**draft, **landing}

    def holds(self, tps: Collection[TopicPartition]) -> bool:
        """Return whether any of these partitions has records that are not committed yet."""
        in_draft = self._draft is not None and not self._draft.last.keys().isdisjoint(tps)
        return in_draft or (self._landing is not None and not self._landing.first_ms.keys().isdisjoint(tps))

    @property
    def idle(self) -> bool:
        """Return whether all records are committed."""
        return self._draft is None and self._landing is None

    def place(self, tp: TopicPartition, *, txn: int | None, position: int, gap: Gap | None = None) -> None:
        """Take a partition's records from this position on, as the ledger says."""
        self.positions[tp] = position
        self._chain[tp] = txn
        self._steps("placed", partition=tp, txn=txn, position=position)
        if gap is not None:
            self._gaps[tp] = gap

    def accept(self, columns: Columns) -> Selection:
        """Add new records to the draft; return what was taken and what was left out."""
        selection = select(columns, self.positions, self._schema)
        if selection.batch is None:
            return selection
        if self._draft is None:
            self._draft = Draft(
                self._storage(),
                self._schema,
                compression=self._compression,
                worker=self._encoder,
                budget=self._budget,
                opened_at=self._clock(),
                ingest_date=self._today(),
            )
        self._draft.add(selection.batch, self._chain)
        for tp, span in selection.batch.spans.items():
            self.positions[tp] = span.last + 1
        return selection

    def look(self) -> Progress:
        """Collect the workers' results, and flush the draft if it is due."""
        progress = Progress()
        self._look_at_landing(progress)
        if self._draft is not None and self._draft.failure is not None:
            self._start_over(progress, self._draft.failure, doing="writing a data file")
        if self._landing is None and (reason := self._due()) is not None:
            self.flush(reason)
        return progress

    def flush(self, reason: FlushReason) -> None:
        """Begin a flush: close the draft and queue its commit. The commit before must have ended."""
        draft, self._draft = self._draft, None
        if draft is None:
            return
        tps = frozenset(draft.last)
        self._steps("sealed", commit_id=draft.commit_id, expected=draft.expected, last=draft.last)
        gaps = tuple(self._gaps.pop(tp) for tp in sorted(tps) if tp in self._gaps)
        info = self._describe(tps, gaps)
        self._chain.update(draft.last)
        landed: Future[tuple[Staged, Landed]] = Future()

        def land() -> tuple[Staged, Landed]:
            """Settle and commit in one task: a placement in between would read a ledger that is about to change."""
            staged = draft.settle()
            return staged, self._land(staged, info)

        draft.finish().add_done_callback(lambda _finished: self._store.submit(lambda: run_into(landed, land)))
        self._landing = Landing(reason, landed, draft.first_ms, gaps)

    def flush_and_wait(self, reason: FlushReason, seconds_left: Callable[[], float]) -> Progress:
        """Flush the draft and wait for all commits, as long as there is time."""
        progress = Progress()
        self._wait_for_landing(progress, seconds_left)
        if self._landing is None and self._draft is not None and self._draft.failure is None:
            self.flush(reason)
            self._wait_for_landing(progress, seconds_left)
        return progress

    def drop(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Forget partitions that are no longer ours; return the others that have to be read again.

        A draft with rows of a dropped partition is discarded whole, since rows can't be removed from it. Its other
        partitions are read again. A commit under way goes on; the log decides about it.
        """
        again: set[TopicPartition] = set()
        if self._draft is not None and not self._draft.last.keys().isdisjoint(tps):
            again = set(self._draft.last) - set(tps)
            self._draft.abort()
            self._draft = None
        self._steps("dropped", partitions=list(tps), again=again)
        self._forget([*tps, *again])
        return again

    def _describe(self, tps: Collection[TopicPartition], gaps: Collection[Gap]) -> dict[str, Any]:
        topics = {tp.topic for tp in tps}
        return {
            "operation_kind": "flush",
            "topic_ids": {topic: self.topic_ids[topic] for topic in topics if topic in self.topic_ids},
            "gaps": [
                {"topic": g.tp.topic, "partition": g.tp.partition, "first": g.first, "last": g.last, "reason": g.reason}
                for g in gaps
            ],
        }

    def _wait_for_landing(self, progress: Progress, seconds_left: Callable[[], float]) -> None:
        if self._landing is not None:
            futures.wait([self._landing.landed], timeout=max(0.0, seconds_left()))
            self._look_at_landing(progress)

    def _look_at_landing(self, progress: Progress) -> None:
        landing = self._landing
        if landing is None or not landing.landed.done():
            return
        self._landing = None
        error = landing.landed.exception()
        if error is None:
            staged, landed = landing.landed.result()
            progress.flushed.append(Flushed(staged, landed, landing.reason, landing.gaps))
            return
        self._start_over(progress, error, doing="writing a data file")

    def _start_over(self, progress: Progress, error: BaseException, *, doing: str) -> None:
        """Drop the draft and all positions after a failed flush; raise a failure that reading again can't fix."""
        if self._draft is not None:
            self._draft.abort()
            self._draft = None
        if not isinstance(error, Fenced):
            failure = classify(error, doing=doing)
            if isinstance(failure, IngestorError):
                raise failure from error
            progress.unavailable = str(failure)
        else:
            progress.fenced = str(error)
        self._steps("started_over", landing=self._landing is not None)
        progress.to_place |= self.positions.keys()
        self._forget(list(self.positions))

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self.positions.pop(tp, None)
            self._chain.pop(tp, None)
            self._gaps.pop(tp, None)

    def _due(self) -> FlushReason | None:
        if self._draft is None:
            return None
        return policy.due(self._draft.stats, self._limits, now=self._clock(), today=self._today())
