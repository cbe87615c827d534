"""Opening Delta tables with delta-rs, or creating them, whoever else does the same at the same time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from ingestor.delta import deltalog, disk_log
from ingestor.delta.commit_info import counted
from ingestor.delta.failures import classify, plain
from ingestor.delta.storage import Storage, local_root, open_storage, with_defaults
from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ingestor.delta.storage import Sized
    from ingestor.records import RawSchema

_LOOK_AGAIN_SECONDS = (0.1, 0.4, 1.0)
_FIRST_ACTIONS = 2  # of a table's first entry: protocol and metadata
T = TypeVar("T")


def open_or_create(uri: str, schema: RawSchema, storage_options: Mapping[str, str]) -> DeltaTable:
    """Open a table; create it if there is none."""
    _refuse_a_file(uri)
    try:
        handle = open_handle(uri, storage_options)
    except TableNotFoundError:
        handle = _create(uri, schema, storage_options)
    root = local_root(uri)
    if root is not None:
        disk_log.anchor(root)
    return handle


def _refuse_a_file(uri: str) -> None:
    root = local_root(uri)
    if root is not None and root.exists() and not root.is_dir():
        msg = f"table {uri}: the path is a file, not a folder"
        raise RefusedError(msg, hint="choose another table path, or move the file away")


def _create(uri: str, schema: RawSchema, options: Mapping[str, str]) -> DeltaTable:
    """Create the table; whoever loses the race for version 0 opens what the winner made."""
    try:
        DeltaTable.create(
            uri,
            Schema.from_arrow(schema.table),
            mode="error",
            partition_by=schema.partition_by or None,
            storage_options=options_for(uri, options),
            commit_properties=CommitProperties(max_commit_retries=0, custom_metadata=counted({}, _FIRST_ACTIONS)),
        )
    except (DeltaError, OSError):
        try:
            return open_handle(uri, options)
        except TableNotFoundError:
            pass  # not a lost race: what was raised first tells why
        raise
    return open_handle(uri, options)


def open_existing(uri: str, storage_options: Mapping[str, str]) -> tuple[int, Storage] | None:
    """Return the newest version of a table and its storage for reading; None if there is no table."""
    try:
        handle = open_handle(uri, storage_options)
    except TableNotFoundError:
        _refuse_unknown_scheme(uri, storage_options)
        return None
    except (DeltaError, OSError) as error:
        raise classify(error, doing=f"opening table {uri}") from error
    return handle.version(), storage_of(uri, storage_options)


def _refuse_unknown_scheme(uri: str, storage_options: Mapping[str, str]) -> None:
    """Refuse a URL that no store is known for: delta-rs calls that a table that is not found, too."""
    try:
        storage_of(uri, storage_options)
    except (DeltaError, OSError) as error:
        raise classify(error, doing=f"opening table {uri}") from error


def reopen_handle(uri: str, storage_options: Mapping[str, str]) -> DeltaTable:
    """Open a table that was there before: it is not created anew, and refused once it is surely gone."""
    return believed(lambda: open_handle(uri, storage_options), gone=_table_gone)


def open_handle(uri: str, storage_options: Mapping[str, str]) -> DeltaTable:
    """Open a table with delta-rs; name the newest log entry if it is that which is damaged."""
    try:
        return believed(lambda: DeltaTable(uri, storage_options=options_for(uri, storage_options)))
    except TableNotFoundError:
        raise
    except DeltaError:
        deltalog.refuse_damage(storage_of(uri, storage_options))
        raise


def storage_of(uri: str, storage_options: Mapping[str, str], sized: Sized | None = None) -> Storage:
    """Return a table's storage; `sized` is for files whose sizes are known (see `open_storage`)."""
    options = options_for(uri, storage_options)
    return open_storage(uri, lambda: pafs.PyFileSystem(DeltaStorageHandler(uri, options)), sized)


def options_for(uri: str, storage_options: Mapping[str, str]) -> dict[str, str]:
    """Return what delta-rs is told about a store: the user's options, and time-outs where they set none."""
    return dict(storage_options) if local_root(uri) is not None else with_defaults(storage_options)


def _log_gone(error: DeltaError) -> bool:
    """Tell whether a handle no longer finds the version that it stands on."""
    return "Invalid table version" in str(error)


def _table_gone(error: DeltaError) -> bool:
    """Tell whether there is no table at all."""
    return isinstance(error, TableNotFoundError)


def believed(look: Callable[[], T], *, gone: Callable[[DeltaError], bool] = _log_gone) -> T:
    """Look at the log; that it is gone is only believed if it stays so: one listing may be cut short on its way."""
    pauses = iter(_LOOK_AGAIN_SECONDS)
    while True:
        try:
            return look()
        except DeltaError as error:
            if not gone(error):
                raise
            pause_seconds = next(pauses, None)
            if pause_seconds is None:
                msg = f"the table's log is gone, or the store does not list it as it should ({plain(str(error))})"
                hint = "put it back; a store that ignores where a listing is to start (Azurite does) can't hold tables"
                raise RefusedError(msg, hint=hint) from error
        time.sleep(pause_seconds)
