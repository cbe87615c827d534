"""Finds by the quarantine table's log which letters are new since the publisher's position, and their files now.

The rows of entries that only add files are new. Other entries rewrite, move or remove rows:
- compaction, `reparse`, UPDATE, a replay's mark: rows moved to other files; none is new;
- DELETE: a letter that was deleted before it was sent is not sent;
- RESTORE and overwrite may put back letters that were sent, deleted or never sent. The log does not show which, so a
  person answers (`--accept VERSION`), once: the answer is a txn. Until then the position stays before that entry, and
  each start refuses it, or refuses because log clean-up has removed it.
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
_QUIET_ENTRIES_MAX = 20  # after this many entries without new letters the txn moves past them
_KEEPS_ROWS = ("DELETE", "UPDATE", "MERGE")  # these add only rows of the files that they remove


@dataclass(frozen=True, slots=True)
class Names:
    """The app ids of one route's publisher in the quarantine table.

    `position`: the last log entry that is done. It includes the publisher's own commit if nothing new came in between,
    so that log clean-up of an idle table is no gap. `attempt`: a random number of the open attempt, 0 if there is
    none. `accepted`: the last RESTORE or overwrite that a person has accepted.
    """

    position: str
    attempt: str
    accepted: str

    @classmethod
    def of(cls, app_id: str) -> Names:
        """Return the names for an app_id."""
        return cls(f"{app_id}/dlq", f"{app_id}/dlq-attempt", f"{app_id}/dlq-accepted")

    def highest(self, tp: TopicPartition) -> str:
        """Return the name of the txn with the highest offset sent of a partition."""
        return f"{self.position}/{tp.topic}/{tp.partition}"


@dataclass(slots=True)
class Pending:
    """What the log has after the position."""

    position: int | None
    owner: int
    attempt: Attempt | None = None
    highest: dict[TopicPartition, int] = field(default_factory=dict)  # offsets sent since the table was read
    appends: list[Entry] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)  # files whose rows were moved
    homes: list[str] = field(default_factory=list)  # the files that they were moved to
    foreign: Entry | None = None  # the last RESTORE or overwrite that was not accepted
    passed: int = 0
    changed: bool = False

    @property
    def done(self) -> int:
        """Return the last log entry that is done."""
        return BEFORE_ALL if self.position is None else self.position

    @property
    def worth_noting(self) -> bool:
        """Return whether the position should move without new letters, so that log clean-up is no gap."""
        return not self.appends and (self.changed or self.passed > _QUIET_ENTRIES_MAX)

    def take(self, entry: Entry, names: Names, accepted: int) -> None:
        """Add the next log entry."""
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
    """Return whether an entry added new dead letters."""
    return bool(entry.adds) and not entry.removes and not puts_back(entry) and _changes(entry)


def is_quiet(entry: Entry) -> bool:
    """Return whether the position may pass an entry without further checks."""
    return not is_new(entry) and not puts_back(entry)


def _changes(entry: Entry) -> bool:
    return all(file.data_change for file in entry.adds)


def puts_back(entry: Entry) -> bool:
    """Return whether an entry adds rows that may have been there before."""
    operation = entry.commit_info.get("operation")
    if operation == "RESTORE":
        return bool(entry.adds)
    return bool(entry.adds and entry.removes) and _changes(entry) and operation not in _KEEPS_ROWS


def _paths(entry: Entry) -> list[str]:
    return [unquote(file.path) for file in entry.adds]


def read(table: Quarantine, version: Version, names: Names, *, skip_gap: bool) -> Pending:
    """Read the log after the position; refuse entries that a person has to judge."""
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
        pending.changed = True  # so that the position moves past the gap in any case
        why = "log clean-up removed them"
        logs.get(route=table.route).error("dead letters skipped", entries=f"{done + 1} to {first - 1}", why=why)
        for entry in version.entries(first):
            pending.take(entry, names, accepted)
    if pending.foreign is not None and done > BEFORE_ALL:  # before the first letter was sent, all rows are new
        raise _unanswered(table, pending.foreign)
    return pending


def _unanswered(table: Quarantine, entry: Entry) -> RefusedError:
    operation = entry.commit_info.get("operation", "a commit")
    msg = f"quarantine table {table.uri}: {operation} at version {entry.version} put rows there that may have been sent"
    command = f"ingestor dlq publish CONFIG --route {table.route} --accept {entry.version}"
    return RefusedError(
        msg, hint=f"`{command}` counts them as sent and continues; append those again that are to be sent anyway"
    )


def _gap(table: Quarantine, what: str) -> DataLossError:
    """Return the refusal to skip letters that are gone."""
    return DataLossError(
        f"quarantine table {table.uri}: {what} before its dead letters were published",
        hint=f"see what is in quarantine (`ingestor dlq list CONFIG --route {table.route}`), then continue after the "
        "gap with `ingestor dlq publish CONFIG --skip-gap`",
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Letters that are sent together, after which the position can move to `until`."""

    until: int
    files: Sequence[str]  # all their rows are to be sent
    homes: Sequence[str] = ()  # only their rows that are in `rewritten`, or above `highest` if that is given
    rewritten: Sequence[str] = ()
    highest: Callable[[TopicPartition], int] | None = None

    @property
    def paths(self) -> list[str]:
        """Return the files of its index."""
        return [*self.files, *self.homes]

    def index(self, table: Quarantine) -> pa.Table:
        """Return its letters in the order of sending."""
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
    """Return what to send: a batch per entry, or a single one if rows were moved or files are gone."""
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
    if pending.done == BEFORE_ALL:  # everything in the table is to be sent
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
    """Return each partition's highest offset sent; if an older version noted none, count everything as sent."""
    noted = any(name.startswith(f"{names.position}/") for name in version.txns)
    unknown = BEFORE_ALL if noted else _ALL_SENT
    return lambda tp: version.txns.get(names.highest(tp), unknown)


def _pass_over(table: Quarantine, gone: Mapping[str, int], *, skip_gap: bool) -> None:
    """Refuse missing files, given with their log entries, unless `skip_gap`."""
    if gone and not skip_gap:
        path, number = next(iter(gone.items()))
        raise _gap(table, f"VACUUM removed {path} of log entry {number}")
    if gone:
        logs.get(route=table.route).error("dead letters skipped", files=len(gone), why="VACUUM removed them")
