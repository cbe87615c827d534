"""Log entries by which somebody took rows away, or moved txns back, without saying which offsets that concerns.

A RESTORE, an overwrite, a truncation: the rows are gone, the txns still count them. Going on would leave a hole for
ever. Decided by what an entry does, not by its name alone. A person's DELETE, UPDATE or MERGE with a predicate is that
person's business, and so is a removal that declares its offsets (`commitInfo.removed`): the audit tells of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ingestor.delta import deltalog
from ingestor.errors import RefusedError
from ingestor.ledger import MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.delta.deltalog import Entry, Files

_BY_ROW = ("UPDATE", "MERGE")
_NO_PREDICATE = ("", "[]", "true", '["true"]')


class Removal(NamedTuple):
    """An entry that took rows away or moved txns back."""

    version: int
    what: str


def removal_in(entry: Entry, txns: Mapping[str, int]) -> Removal | None:
    """Return what an entry took away, None if nothing; `txns` are those before it."""
    info = entry.commit_info
    operation = str(info.get("operation", "an unknown operation"))
    if operation == "RESTORE":
        return Removal(entry.version, "the table was restored to an older version, its txns were not")
    if info.get("operation_kind") != "set":
        for app_id, version in entry.txns.items():
            if version < txns.get(app_id, version) and not app_id.startswith(MEMORY):
                return Removal(entry.version, f"{operation} moved txn {app_id!r} back to {version}")
    if entry.commit_id is not None or not entry.takes_data or "removed" in info or operation in _BY_ROW:
        return None
    if operation == "DELETE" and _has_predicate(info):
        return None
    return Removal(entry.version, f"{operation} removed files")


def _has_predicate(info: Mapping[str, object]) -> bool:
    parameters = info.get("operationParameters")
    predicate = parameters.get("predicate") if isinstance(parameters, dict) else None
    return str(predicate or "").strip().lower() not in _NO_PREDICATE


def latest_removal(files: Files, newest: int) -> Removal | None:
    """Return the last removal that no ingestor has seen: one behind the newest entry that an ingestor wrote.

    Whoever commits has followed all entries before its own, and has remembered in the log what was among them (see
    `guards`). Entries that were cleaned up meanwhile are not looked at: the audit tells what is missing then.
    """
    behind: list[Entry] = []
    seen = newest
    while (entry := deltalog.read_entry(files, seen)) is not None and entry.commit_id is None:
        behind.append(entry)
        seen -= 1
    found = None
    txns = _txns(files, seen) if any(entry.txns for entry in behind) else {}
    for entry in reversed(behind):
        found = removal_in(entry, txns) or found
        txns.update(entry.txns)
    return found


def _txns(files: Files, version: int) -> dict[str, int]:
    try:
        return deltalog.txns_at(files, version) if version >= 0 else {}
    except RefusedError:  # cleaned up: what the entries themselves say has to do
        return {}
