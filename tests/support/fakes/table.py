"""A Delta log in memory, and handles on it that fail when and how a test plans it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.delta.deltalog import Entry
from ingestor.delta.guards import remembered_removal
from ingestor.delta.removals import Removal, removal_in
from ingestor.errors import RefusedError
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ingestor.delta.table_log import DataFile
    from tests.support.fakes.storage import MemoryStorage


class Crash(BaseException):
    """The process dies here: nothing of it runs on, nothing is caught."""


class Fault(StrEnum):
    """What can happen to one call."""

    NONE = "none"
    FAILED = "failed before it did anything"
    ANSWER_LOST = "applied, then raised"
    DELAYED = "raised, to be applied later if its slot is still free"
    CONFLICT = "a foreign writer takes the slot first"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"


@dataclass(slots=True)
class Faults:
    """What goes wrong, call by call; an empty queue means that all goes well."""

    refresh: deque[Fault] = field(default_factory=deque)
    attempt: deque[Fault] = field(default_factory=deque)
    slot: deque[Fault] = field(default_factory=deque)
    settle: deque[Fault] = field(default_factory=deque)
    holding: deque[Fault] = field(default_factory=deque)

    def next(self, call: str) -> Fault:
        """Take the next fault planned for a call."""
        planned: deque[Fault] = getattr(self, call)
        return planned.popleft() if planned else Fault.NONE

    def clear(self) -> None:
        """Plan nothing any more."""
        for planned in (self.refresh, self.attempt, self.slot, self.settle, self.holding):
            planned.clear()


@dataclass(frozen=True, slots=True)
class FakeEntry:
    """One entry of the log."""

    version: int
    commit_id: str  # "" if no ingestor wrote it
    files: tuple[DataFile, ...] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    takes_data: bool = False


class FakeLog:
    """The log that all handles share: put-if-absent at the next version, nothing else."""

    def __init__(self) -> None:
        self.table_id = "first"
        self.entries = [FakeEntry(0, "")]
        self.delayed: list[FakeEntry] = []

    @property
    def version(self) -> int:
        """Return the newest version."""
        return len(self.entries) - 1

    def put(self, entry: FakeEntry) -> bool:
        """Put an entry if its slot is free; a slot beyond the next one can't exist."""
        assert entry.version <= len(self.entries), "a handle is ahead of its log"
        if entry.version < len(self.entries):
            return False
        self.entries.append(entry)
        return True

    def write_foreign(self, txns: Mapping[str, int] | None = None) -> None:
        """Let another program commit: an append under its own app id, or (no txns) an OPTIMIZE."""
        assert self.put(FakeEntry(len(self.entries), "", txns=dict(txns or {})))

    def overwrite(self) -> None:
        """Let another program take the rows away; here they stay, for only the log is looked at."""
        info = {"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}
        assert self.put(FakeEntry(len(self.entries), "", info=info, takes_data=True))

    def land_delayed(self, index: int = 0) -> bool:
        """Let a delayed request arrive; tell whether its slot was still free."""
        return self.put(self.delayed.pop(index))

    def replace(self) -> None:
        """Delete the table, and create it again at the same place."""
        self.remove()
        self.entries = [FakeEntry(0, "")]

    def remove(self) -> None:
        """Delete the table."""
        self.table_id += "'"
        self.entries = []


def _as_entry(entry: FakeEntry) -> Entry:
    info = {"commit_id": entry.commit_id} if entry.commit_id else {}
    return Entry(entry.version, {**entry.info, **info}, txns=entry.txns, takes_data=entry.takes_data)


def _quiet(_step: str) -> None:
    """Do nothing between two steps."""


class FakeTable:
    """One handle; held to the contract of `RawTable` by tests/contract."""

    def __init__(
        self,
        log: FakeLog,
        storage: MemoryStorage,
        *,
        faults: Faults | None = None,
        hook: Callable[[str], None] = _quiet,
    ) -> None:
        self.log = log
        self.storage = storage
        self.faults = faults or Faults()
        self.hook = hook  # called before each step with its name: where a test lets others come in between
        self.calls: list[str] = []
        self.crashed = False
        self._table_id = log.table_id
        self._version = log.version
        self._followed: tuple[dict[str, int], Removal | None, FakeEntry | None] = ({}, None, None)
        self._followed_to = 0

    @property
    def version(self) -> int:
        """Return the version that this handle has seen."""
        return self._version

    @property
    def txns(self) -> Mapping[str, int]:
        """Return every txn at this version."""
        return self._txns_before(self._version + 1)

    def _txns_before(self, version: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self.log.entries[:version]:
            found.update(entry.txns)
        return found

    @property
    def removal(self) -> Removal | None:
        """Return the newest entry that took rows away, if no txn remembers it yet."""
        txns, found, followed = self._followed
        if followed is not self.log.entries[0]:  # the table was replaced
            txns, found, self._followed_to = {}, None, 0
        for entry in self.log.entries[self._followed_to : self._version + 1]:
            found = removal_in(_as_entry(entry), txns) or found
            if found is not None and remembered_removal(entry.txns) >= found.version:
                found = None
            txns.update(entry.txns)
        self._followed, self._followed_to = (txns, found, self.log.entries[0]), self._version + 1
        return found

    def refresh(self) -> None:
        """Look at the newest version."""
        with _Step(self, "refresh"):
            self._refuse_another_table()
            self._version = self.log.version

    def _refuse_another_table(self) -> None:
        if self.log.table_id != self._table_id or self.log.version < self._version:
            msg = "table was replaced"
            raise RefusedError(msg, hint="find out who did it")

    def attempt(self, files: tuple[DataFile, ...], txns: Mapping[str, int], info: Mapping[str, Any]) -> None:
        """Put one entry at `version + 1`, or raise; after a fault the entry may be there all the same."""
        with _Step(self, "attempt") as fault:
            entry = FakeEntry(self._version + 1, str(info.get("commit_id", "")), files, dict(txns), dict(info))
            if fault is Fault.DELAYED:
                self.log.delayed.append(entry)
                msg = "operation timed out"
                raise OSError(msg)
            if fault is Fault.CONFLICT:
                self.log.write_foreign({"somebody-else": self.log.version})
            if not self.log.put(entry):
                msg = f"version {entry.version} exists already"
                raise OSError(msg)

    def slot(self, version: int) -> str | None:
        """Return who wrote the entry of a version."""
        with _Step(self, "slot"):
            if version < len(self.log.entries):
                return self.log.entries[version].commit_id
            self._refuse_another_table()
            return None

    def settle(self, version: int) -> None:
        """Find the entry there: memory is durable enough."""
        with _Step(self, "settle"):
            assert version < len(self.log.entries), "only what landed is settled"

    def holding(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of the partitions that have rows."""
        with _Step(self, "holding"):
            self._refuse_another_table()
            return self._tps() & set(tps)

    def other_topics(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Return another topic of the same partition number, for those that have one."""
        others = [(tp, other) for tp in tps for other in self._tps()]
        return {tp: other.topic for tp, other in others if other.partition == tp.partition and other.topic != tp.topic}

    def _tps(self) -> set[TopicPartition]:
        found: set[TopicPartition] = set()
        for entry in self.log.entries:
            for file in entry.files:
                rows = pq.read_table(pa.BufferReader(self.storage.files[file.path])).to_pylist()
                found.update(TopicPartition(row["stream_topic"], row["stream_partition"]) for row in rows)
        return found


class _Step:
    """One call on a handle: the hook first, then the planned fault around what the call does."""

    def __init__(self, table: FakeTable, call: str) -> None:
        self._table = table
        self._call = call
        self._fault = Fault.NONE

    def __enter__(self) -> Fault:
        self._table.hook(self._call)
        self._table.calls.append(self._call)
        self._fault = self._table.faults.next(self._call)
        if self._fault is Fault.CRASH_BEFORE:
            self._crash()
        if self._fault is Fault.FAILED:
            msg = f"{self._call}: connection reset by peer"
            raise OSError(msg)
        return self._fault

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._fault is Fault.CRASH_AFTER:
            self._crash()
        if kind is None and self._fault is Fault.ANSWER_LOST:
            msg = f"{self._call}: connection reset by peer, after it was applied"
            raise OSError(msg)

    def _crash(self) -> NoReturn:
        self._table.crashed = True
        raise Crash
