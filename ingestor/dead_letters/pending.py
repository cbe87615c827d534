"""What a quarantine table's log tells a publisher: which letters are new since its position, and where they lie now.

New are the rows of entries that only add files. Other entries rewrite, move or remove what was there:
- compaction, `reparse`, UPDATE, a replay's mark: their rows are where the files went; none is new;
- DELETE: a letter that was deleted before it was sent is not sent;
- RESTORE and overwrite may put back letters that were sent, deleted or never sent. Nobody can tell, so a person answers
  (`--accept VERSION`), once and for all: the answer is a txn. Until then the position stays before that entry, so each
  start finds it again, or finds that log clean-up has removed it and refuses for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from ingestor import logs
from ingestor.dead_letters.attempt import Attempt
from ingestor.dead_letters.letters import FILE, coordinates, index
from ingestor.errors import DataLossError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ingestor.dead_letters.quarantine import Quarantine, Version
    from ingestor.delta.deltalog import Entry
    from ingestor.records import Coordinate, TopicPartition

ATTEMPT = "dlq_attempt"
BEFORE_ALL = -1
_ALL_SENT = 2**63
_QUIET_ENTRIES_MAX = 20  # so many entries without anything may pass before the txn moves over them
_KEEPS_ROWS = ("DELETE", "UPDATE", "MERGE")  # what these add are rows of the files that they remove


@dataclass(frozen=True, slots=True)
class Names:
    """The app ids under which one route's publisher keeps its txns in the quarantine table.

    `position`: the last log entry that is dealt with, its own included where nothing new came in between, so that
    clean-up of an idle table's log is no loss. `attempt`: who is sending, a random number; 0 if nobody is.
    `accepted`: the last RESTORE or overwrite that a person has answered for.
    """

    position: str
    attempt: str
    accepted: str

    @classmethod
    def of(cls, app_id: str) -> Names:
        """Return the names under an app_id."""
        return cls(f"{app_id}/dlq", f"{app_id}/dlq-attempt", f"{app_id}/dlq-accepted")

    def highest(self, tp: TopicPartition) -> str:
        """Return the name of the txn that says up to which offset a partition's letters were sent."""
        return f"{self.position}/{tp.topic}/{tp.partition}"


@dataclass(slots=True)
class Pending:
    """What the log holds after the position."""

    position: int | None
    owner: int
    attempt: Attempt | None = None
    highest: dict[TopicPartition, int] = field(default_factory=dict)  # offsets sent since the table was read
    appends: list[Entry] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)  # files whose rows went into others
    homes: list[str] = field(default_factory=list)  # and these
    foreign: Entry | None = None  # the last RESTORE or overwrite that nobody has answered for
    passed: int = 0
    changed: bool = False

    @property
    def done(self) -> int:
        """Return the last log entry that is dealt with."""
        return BEFORE_ALL if self.position is None else self.position

    @property
    def worth_noting(self) -> bool:
        """Tell whether the position should move although nothing is new, lest log clean-up looks like a loss."""
        return not self.appends and (self.changed or self.passed > _QUIET_ENTRIES_MAX)

    def take(self, entry: Entry, names: Names, accepted: int) -> None:
        """Take in one entry, in the log's order."""
        if self.owner and entry.txns.get(names.attempt) == self.owner:
            self.attempt = Attempt.read(entry.commit_info.get(ATTEMPT))
        if entry.version <= self.done:
            return
        self.passed += 1
        self.changed |= bool(entry.removes or entry.adds)
        if is_new(entry):
            self.appends.append(entry)
        elif entry.adds:
            self.rewritten.update(map(unquote, entry.removes))
            self.homes += _paths(entry)
            if puts_back(entry) and entry.version > accepted:
                self.foreign = entry


def is_new(entry: Entry) -> bool:
    """Tell whether an entry brought new dead letters."""
    return bool(entry.adds) and not entry.removes and not puts_back(entry) and _changes(entry)


def is_quiet(entry: Entry) -> bool:
    """Tell whether the position may pass an entry without anybody looking at it."""
    return not is_new(entry) and not puts_back(entry)


def _changes(entry: Entry) -> bool:
    return all(file.data_change for file in entry.adds)


def puts_back(entry: Entry) -> bool:
    """Tell whether an entry adds rows of which nobody can tell whether they were there before."""
    operation = entry.commit_info.get("operation")
    if operation == "RESTORE":
        return bool(entry.adds)
    return bool(entry.adds and entry.removes) and _changes(entry) and operation not in _KEEPS_ROWS


def _paths(entry: Entry) -> list[str]:
    return [unquote(file.path) for file in entry.adds]


def read(table: Quarantine, version: Version, names: Names, *, skip_gap: bool) -> Pending:
    """Read the log after the position; refuse what nobody but a person can judge."""
    pending = Pending(version.txns.get(names.position), version.txns.get(names.attempt, 0))
    accepted = version.txns.get(names.accepted, BEFORE_ALL)
    done = pending.done
    own = table.entry(done) if done > BEFORE_ALL else None
    if own is not None:
        pending.take(own, names, accepted)
    try:
        for entry in version.entries(done + 1):
            pending.take(entry, names, accepted)
    except LookupError as gone:
        if not skip_gap:
            raise _gap(table, f"log clean-up removed {gone.args[0]}") from gone
        first = table.oldest_entry(version.number)
        pending.changed = True  # be it only to note that the gap is behind us
        why = "log clean-up removed them"
        logs.get(route=table.route).error("dead letters skipped", entries=f"{done + 1} to {first - 1}", why=why)
        for entry in version.entries(first):
            pending.take(entry, names, accepted)
    if pending.foreign is not None and done > BEFORE_ALL:  # before anything was sent all rows are new
        raise _unanswered(table, pending.foreign)
    return pending


def _unanswered(table: Quarantine, entry: Entry) -> RefusedError:
    operation = entry.commit_info.get("operation", "a commit")
    msg = f"quarantine table {table.uri}: {operation} at version {entry.version} put rows there that may have been sent"
    command = f"ingestor dlq publish CONFIG --route {table.route} --accept {entry.version}"
    return RefusedError(
        msg, hint=f"`{command}` counts them as sent and goes on; append again those that are to be sent all the same"
    )


def _gap(table: Quarantine, what: str) -> DataLossError:
    """Return the refusal to pass over letters that can't be found any more."""
    return DataLossError(
        f"quarantine table {table.uri}: {what} before its dead letters were published",
        hint=f"see what is in quarantine (`ingestor dlq list CONFIG --route {table.route}`), then go on behind the "
        "gap with `ingestor dlq publish CONFIG --skip-gap`",
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Letters that are sent together, after which the position can move to `until`."""

    until: int
    files: Sequence[str]  # all of their rows are letters to send
    homes: Sequence[str] = ()  # of their rows only those in `rewritten`, and those behind `highest` if that is told
    rewritten: Sequence[str] = ()
    highest: Callable[[TopicPartition], int] | None = None

    @property
    def paths(self) -> list[str]:
        """Return the files that its index speaks of."""
        return [*self.files, *self.homes]

    def index(self, table: Quarantine) -> pa.Table:
        """Return its letters, in the order in which they are sent."""
        with table.reading():
            found = index(table.storage, self.paths)
            known = set(coordinates(index(table.storage, self.rewritten)))
        if not self.homes:
            return found
        wanted = [
            file < len(self.files) or origin in known or self._is_behind(origin)
            for file, origin in zip(found.column(FILE).to_pylist(), coordinates(found), strict=True)
        ]
        return found.filter(pa.array(wanted, pa.bool_()))

    def _is_behind(self, origin: Coordinate) -> bool:
        return self.highest is not None and origin.offset > self.highest(origin.tp)


def batches(table: Quarantine, version: Version, pending: Pending, names: Names, *, skip_gap: bool) -> list[Batch]:
    """Return what is to be sent: entry by entry, or all at once where rows lie elsewhere by now, or nowhere."""
    if not pending.appends:
        return []
    live = set(version.paths())
    added = {path: entry.version for entry in pending.appends for path in _paths(entry)}
    there = _existing(table, added)
    if live.issuperset(added) and there.issuperset(added):
        ends = [*(entry.version for entry in pending.appends[:-1]), version.number]
        return [Batch(end, _paths(entry)) for end, entry in zip(ends, pending.appends, strict=True)]
    moved = [path for path in added if path not in live and path in pending.rewritten]
    missing = {path: number for path, number in added.items() if path in live and path not in there}
    if pending.done == BEFORE_ALL:  # whatever is in the table is to be sent, wherever it lies
        _pass_over(table, missing, skip_gap=skip_gap)
        return [Batch(version.number, sorted(live.difference(missing)))]
    unknown = {path: added[path] for path in moved if path not in there}
    _pass_over(table, missing | unknown, skip_gap=skip_gap)
    return [
        Batch(
            version.number,
            files=[path for path in added if path in live and path in there],
            homes=[path for path in dict.fromkeys(pending.homes) if path in live and path not in added],
            rewritten=[path for path in moved if path in there],
            highest=_highest(version, names) if unknown else None,
        )
    ]


def _existing(table: Quarantine, paths: Iterable[str]) -> set[str]:
    with table.reading():
        return {path for path in paths if table.storage.exists(path)}


def _highest(version: Version, names: Names) -> Callable[[TopicPartition], int]:
    """Return up to which offset each partition's letters were sent; where an older version noted none, of all."""
    noted = any(name.startswith(f"{names.position}/") for name in version.txns)
    unknown = BEFORE_ALL if noted else _ALL_SENT
    return lambda tp: version.txns.get(names.highest(tp), unknown)


def _pass_over(table: Quarantine, gone: Mapping[str, int], *, skip_gap: bool) -> None:
    """Refuse to go on without files, each given with its log entry, unless told to."""
    if gone and not skip_gap:
        path, number = next(iter(gone.items()))
        raise _gap(table, f"VACUUM removed {path} of log entry {number}")
    if gone:
        logs.get(route=table.route).error("dead letters skipped", files=len(gone), why="VACUUM removed them")
