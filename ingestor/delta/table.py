"""The raw Delta table: its log, followed from version to version and committed to.

A `RawTable` is one handle at one version. `attempt` can land only at exactly `version + 1` (see `table_log`).
Together with the txns read at that same version this makes a commit a compare-and-swap (see `committer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ingestor.delta import deltalog, stats
from ingestor.delta.guards import remembered_removal
from ingestor.delta.open import open_or_create, options_for, reopen_handle
from ingestor.delta.removals import Removal, latest_removal, removal_in
from ingestor.delta.rules import verify_schema
from ingestor.delta.storage import local_root
from ingestor.delta.table_log import DataFile, NewEntry, TableLog
from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deltalake import DeltaTable

    from ingestor.delta.storage import Storage
    from ingestor.records import RawSchema, TopicPartition


class Table(Protocol):
    """What the committer needs of a table; held by `RawTable` and by the tests' fake to one contract suite."""

    @property
    def version(self) -> int:
        """The version that this handle has seen, and commits on top of."""

    @property
    def txns(self) -> Mapping[str, int]:
        """Every txn action's version at `version`, by app id."""

    @property
    def removal(self) -> Removal | None:
        """The newest entry up to `version` that took rows away and that no txn remembers yet (see `removals`)."""

    def refresh(self) -> None:
        """Look at the newest version; refuse if it is no longer the table that was opened."""

    def attempt(self, files: tuple[DataFile, ...], txns: Mapping[str, int], info: Mapping[str, Any]) -> None:
        """Put one log entry at `version + 1`. Whatever is raised, the entry may be there."""

    def slot(self, version: int) -> str | None:
        """Return who wrote the log entry of a version: its commit id, "" if foreign, None if there is no entry.

        Refuse if there is none because the log that it would go on from is no more: nothing can ever be put there.
        """

    def settle(self, version: int) -> None:
        """Return only when the log entry of a version survives a power cut."""

    def holding(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of the partitions that have rows in the table."""

    def other_topics(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Return for each of the partitions another topic that has rows of the same partition number."""


class RawTable:
    """One handle on the raw table. Not for two threads at once."""

    def __init__(self, uri: str, schema: RawSchema, storage_options: Mapping[str, str]) -> None:
        """Open the table, or create it. Refuse one that is not ours to write."""
        self.uri = uri
        self.schema = schema
        self._options = options_for(uri, storage_options)
        handle = open_or_create(uri, schema, self._options)
        self._log = TableLog(uri, schema, self._options, handle)
        self.storage: Storage = self._log.storage
        self._seen = self._landed = handle.version()
        self._table_id = str(handle.metadata().id)
        self._verify(handle)
        self._log.secure(deltalog.tail(self.storage, self._seen))
        self.txns: dict[str, int] = deltalog.txns_at(self.storage, self._seen)
        self.removal: Removal | None = latest_removal(self.storage, self._seen)
        self._tip = deltalog.fingerprint(self.storage, self._seen)
        if self._tip is None:
            msg = f"table {uri}: {deltalog.entry_path(self._seen)}, the newest log entry, is gone; a checkpoint has it"
            raise RefusedError(msg, hint="put it back, or let Spark commit once: delta-rs does not go on without it")

    @property
    def version(self) -> int:
        """The version that this handle has seen, and whose txns it knows."""
        return self._seen

    @property
    def table_id(self) -> str:
        """The table's own id, from its metadata."""
        return self._table_id

    def refresh(self) -> None:
        """Look at the newest version and take its txns; refuse if it is no longer the table that was opened.

        If it fails on the way, the next call goes on from the version that was last taken in whole.
        """
        newest = self._log.newest()
        known = max(self._seen, self._landed)
        if newest < known:
            raise self._replaced(f"its newest version is {newest}, it was at {known}")
        self._refuse_another_past(newest)
        if newest > self._seen:
            self._follow(newest)

    def _refuse_another_past(self, newest: int) -> None:
        """Refuse if the entry that was seen last is another one now: then it is another table, or a cut-off log."""
        tip = deltalog.fingerprint(self.storage, self._seen)
        if tip is None and newest > self._seen:  # cleaned up since: the table's id has to do
            self._verify(self._open())
        elif tip != self._tip:
            raise self._replaced(f"log entry {self._seen} is not what it was")

    def _follow(self, newest: int) -> None:
        """Take in the entries up to a version, all of them or none, then call it seen.

        If one could not be read after others were taken in, those would be read again and seem to move txns back.
        """
        txns, removal, changed = dict(self.txns), self.removal, False
        try:
            entries = [*deltalog.entries(self.storage, self._seen + 1, newest)]
            self._log.secure(entry for entry in entries if entry.version != self._landed)
            for entry in entries:
                removal = removal_in(entry, txns) or removal
                if removal is not None and remembered_removal(entry.txns) >= removal.version:
                    removal = None  # another ingestor has seen to it
                txns.update(entry.txns)
                changed |= entry.metadata is not None or entry.protocol is not None
        except LookupError:  # cleaned up meanwhile: a checkpoint has what they said
            txns = deltalog.txns_at(self.storage, newest)
            removal, changed = latest_removal(self.storage, newest), True
        if changed:
            self._verify(self._open())  # not for committing: that needs the very version whose txns we know
        tip = deltalog.fingerprint(self.storage, newest)
        self.txns, self.removal, self._tip, self._seen = txns, removal, tip, newest

    def attempt(self, files: tuple[DataFile, ...], txns: Mapping[str, int], info: Mapping[str, Any]) -> None:
        """Put one log entry at `version + 1`. Whatever is raised, the entry may be there."""
        self._log.put(self._seen + 1, NewEntry(files, txns, info), after=self._tip)

    def slot(self, version: int) -> str | None:
        """Return who wrote the log entry of a version: its commit id, "" if foreign, None if there is no entry."""
        entry = deltalog.read_entry(self.storage, version)
        if entry is None:
            self._refuse_another_past(self._seen)
            return None
        return entry.commit_id or ""

    def settle(self, version: int) -> None:
        """Return only when the log entry of a version survives a power cut; it is then acknowledged."""
        self.storage.settle(deltalog.entry_path(version))
        self._landed = version

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, through a handle of its own; return that version."""
        return self._log.checkpoint()

    def holding(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of the partitions that have rows in the table."""
        return set(self.last_offsets(tps))

    def last_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the greatest offset of each partition that has rows; statistics spare most files from being read."""
        return stats.last_offsets(self._open(), self.storage, tps) if tps else {}

    def other_topics(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Return for each of the partitions another topic that has rows of the same partition number."""
        return stats.other_topics(self._open(), self.storage, tps) if tps else {}

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what is equal for two handles on one table, however its path is spelled."""
        root = local_root(self.uri)
        if root is None:
            return ("id", self._table_id)
        found = (root / deltalog.LOG_DIR).stat()
        return ("folder", found.st_dev, found.st_ino)

    def _open(self) -> DeltaTable:
        return reopen_handle(self.uri, self._options)

    def _replaced(self, how: str) -> RefusedError:
        msg = f"table {self.uri} was replaced or its log cut off while it was being written: {how}"
        return RefusedError(msg, hint="find out who did it; then start again, and the table is read afresh")

    def _verify(self, handle: DeltaTable) -> None:
        """Refuse a table that is not the one that was opened, or that we would damage."""
        verify_schema(self.uri, handle, self.schema)
        if str(handle.metadata().id) != self._table_id:
            raise self._replaced("its id is another one")
