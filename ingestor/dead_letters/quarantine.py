"""The quarantine table: what is new in it, and commits on it that are a compare-and-swap on its txn actions.

Spark writes its rows; here they are only read, and marked as replayed. `look` returns one version of the table, and
what is decided on that version is committed through it: at exactly the next version, or not at all (see `put`). A
conflict means that somebody wrote in between: `compare_and_swap` looks again, and lets decide again.
"""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError

from ingestor.dead_letters.letters import SCHEMA
from ingestor.dead_letters.portions import portions
from ingestor.delta import deltalog
from ingestor.delta.commit_info import commit_info, counted, with_txns_counted
from ingestor.delta.failures import classify
from ingestor.delta.open import open_handle, storage_of
from ingestor.delta.probe import probe
from ingestor.delta.rules import PROTOCOLS
from ingestor.delta.stats import live_files
from ingestor.delta.table_log import NO_HOOKS
from ingestor.errors import RefusedError, Unavailable
from ingestor.ingest.committer import system_rng
from ingestor.ingest.put import Conflict, Outcome, compare_and_swap, put_once, waits_between
from ingestor.records import COORDINATES, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ingestor.config.settings import Settings
    from ingestor.dead_letters.letters import DeadLetter
    from ingestor.delta.storage import Storage
    from ingestor.records import Coordinate

T = TypeVar("T")

_NEEDED = ("message_payload", "message_key", "error_reason", "error_class", "error_message", "replayed_at")
_SAME_RECORD = " AND ".join(f"letter.{name} = sent.{name}" for name in COORDINATES)


class Quarantine:
    """One route's quarantine table."""

    def __init__(self, settings: Settings, route: str) -> None:
        self.uri: str = settings.parse[route].quarantine
        self.options = settings.storage_options
        self._retry = settings.routes[route].retry
        occ = settings.routes[route].occ
        self._occ = occ
        self._app_id = settings.app_id
        self.route = route
        self._probed = False

    @functools.cached_property
    def storage(self) -> Storage:
        """The table's files; opened when first needed, so that what is wrong with one route stops only that one."""
        with self.reading():
            return storage_of(self.uri, self.options)

    def look(self) -> Version | None:
        """Return the table's newest version; None if there is no table, because nothing was ever parsed."""
        storage = self.storage  # first: delta-rs takes a URL that it can't read for a table that is not there
        with self.reading():
            try:
                handle = open_handle(self.uri, self.options)
            except TableNotFoundError:
                storage.list(deltalog.LOG_DIR)  # raises if the folder can't be read: delta-rs says the same of both
                return None
            self._refuse_foreign(handle)
            version = handle.version()
            return Version(self, handle, version, deltalog.txns_at(storage, version))

    def look_again(self) -> Version:
        """Return the newest version of a table that was there before."""
        version = self.look()
        if version is None:
            msg = f"quarantine table {self.uri} was removed meanwhile"
            raise RefusedError(msg, hint="find out who removed it, then start again")
        return version

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Make what storage raises while the table is read a failure of ours."""
        try:
            yield
        except Exception as error:
            raise classify(error, doing=f"reading quarantine table {self.uri}") from error

    def letters(self, paths: Sequence[str], found: pa.Table) -> Iterator[list[DeadLetter]]:
        """Yield the letters that an index of some files names, in portions."""
        parts = portions(self.storage, paths, found)
        while True:
            with self.reading():
                portion = next(parts, None)
            if portion is None:
                return
            yield portion

    def info(self, said: Mapping[str, Any], commit_id: str) -> dict[str, Any]:
        """Return what a commit of ours says of itself."""
        return commit_info(self._app_id, self.route, commit_id, said)

    def prepare_to_write(self) -> None:
        """Refuse a store that can't keep two writers apart."""
        if not self._probed:
            probe(self.uri, self.options)
            self._probed = True

    def _refuse_foreign(self, handle: DeltaTable) -> None:
        protocol = handle.protocol()
        if (protocol.min_reader_version, protocol.min_writer_version) not in PROTOCOLS:
            found = f"{protocol.min_reader_version}/{protocol.min_writer_version}"
            msg = f"quarantine table {self.uri} has protocol {found}, where 1/2 without table features is needed"
            raise RefusedError(msg, hint="drop the features (ALTER TABLE … DROP FEATURE), or choose a new quarantine")
        present = {field.name for field in handle.schema().fields}
        missing = [name for name in (*COORDINATES, *_NEEDED) if name not in present]
        if missing:
            msg = f"table {self.uri} is no quarantine table: it has no {', '.join(missing)}"
            raise RefusedError(msg, hint="correct parse.ROUTE.quarantine in the configuration")

    def compare_and_swap(self, decide: Callable[[Version], T]) -> T:
        """Return what `decide` returns: it is given the newest version, and commits through that at most once.

        If another writer comes first it decides again after a while, up to `occ.max_retries` times.
        """
        return compare_and_swap(
            lambda _conflicts: decide(self.look_again()),
            self._occ,
            sleep=time.sleep,
            rng=system_rng(),
            log=self.uri,
            hint="start again: what was sent is found and not sent twice",
        )

    def put(self, call: Callable[[], None], slot: int, commit_id: str) -> None:
        """Let a call put the log entry of a slot, and make that durable. Raise Conflict if another's is there."""
        waits = waits_between(self._retry.base_seconds, self._retry.max_seconds)
        rng = system_rng()
        for left in range(self._retry.max_retries, -1, -1):
            try:
                self._put_once(call, slot, commit_id)
            except Conflict:
                raise
            except Exception as error:
                failure = classify(error, doing=f"committing to quarantine table {self.uri}")
                if left == 0 or not isinstance(failure, Unavailable):
                    raise failure from error
                time.sleep(next(waits) * rng.uniform(0.5, 1))
            else:
                return

    def _put_once(self, call: Callable[[], None], slot: int, commit_id: str) -> None:
        def owner() -> str | None:
            entry = self.entry(slot)
            return None if entry is None else entry.commit_id or ""

        if put_once(call, owner, commit_id) is Outcome.CONFLICT:
            raise Conflict
        self._settle(slot)

    def entry(self, version: int) -> deltalog.Entry | None:
        """Return one entry of the log, None if there is none or clean-up has removed it."""
        try:
            return deltalog.read_entry(self.storage, version)
        except Exception as error:
            raise classify(error, doing=f"reading the log of {self.uri}") from error

    def oldest_entry(self, newest: int) -> int:
        """Return the first entry of the unbroken run that ends with the newest one."""
        version = newest
        while version > 0 and self.entry(version - 1) is not None:
            version -= 1
        return version

    def _settle(self, slot: int) -> None:
        """Return only when an entry, and the files that it adds, survive a power cut."""
        entry = self.entry(slot)
        for added in () if entry is None else entry.adds:
            self.storage.settle(unquote(added.path))
        self.storage.settle(deltalog.entry_path(slot))


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the table, as it was looked at."""

    table: Quarantine
    handle: DeltaTable
    number: int
    txns: Mapping[str, int]

    def entries(self, first: int) -> Iterator[deltalog.Entry]:
        """Yield the log's entries from one on; LookupError at one that log clean-up has removed."""
        try:
            yield from deltalog.entries(self.table.storage, first, self.number)
        except LookupError:
            raise
        except Exception as error:
            raise classify(error, doing=f"reading the log of {self.table.uri}") from error

    def paths(self) -> list[str]:
        """Return the files that hold this version's rows."""
        return [unquote(file.path) for file in live_files(self.table.uri, self.table.options, self.number)]

    def put_txn(self, txns: Mapping[str, int], said: Mapping[str, Any]) -> None:
        """Commit txns and no rows as the next version."""
        commit_id = uuid.uuid4().hex
        properties = _properties(txns, counted(self.table.info(said, commit_id), len(txns)))
        self.table.put(lambda: self._append_nothing(properties), self.number + 1, commit_id)

    def put_replayed(
        self, origins: Sequence[Coordinate], moment_us: int, txns: Mapping[str, int], said: Mapping[str, Any]
    ) -> None:
        """Mark letters as replayed, and commit txns with it, as the next version.

        A letter that is no longer there needs no mark: it was moved to silver meanwhile.
        """
        commit_id = uuid.uuid4().hex
        properties = _properties(txns, with_txns_counted(self.table.info(said, commit_id), len(txns)))

        def put() -> None:
            merge = self.handle.merge(
                _marks(origins, moment_us),
                predicate=_SAME_RECORD,
                source_alias="sent",
                target_alias="letter",
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
            if not merge.when_matched_update({"replayed_at": "sent.moment"}).execute()["num_target_rows_updated"]:
                self._append_nothing(properties)  # without a row to change, delta-rs commits nothing

        self.table.put(put, self.number + 1, commit_id)

    def _append_nothing(self, properties: CommitProperties) -> None:
        self.handle.create_write_transaction(
            [],
            mode="append",
            schema=self.handle.schema(),
            partition_by=list(self.handle.metadata().partition_columns),
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )


def _marks(origins: Sequence[Coordinate], moment_us: int) -> pa.Table:
    columns = {
        name: pa.array([origin[part] for origin in origins], SCHEMA.field(name).type)
        for part, name in enumerate(COORDINATES)
    }
    return pa.table({**columns, "moment": pa.array([moment_us] * len(origins), TIMESTAMP)})


def _properties(txns: Mapping[str, int], info: dict[str, Any]) -> CommitProperties:
    now_ms = time.time_ns() // 1_000_000
    return CommitProperties(
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, value, now_ms) for app_id, value in txns.items()],
        custom_metadata=info,
    )
