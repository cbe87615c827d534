"""`ingestor repair`: sets aside the newest log entry of a table if a power cut tore it.

An ingestor syncs an entry before it acknowledges the commit, and before it puts another entry behind it. So an entry
that is torn, is the newest and is in no checkpoint was never acknowledged. Its rows are read from Kafka again, from
where the ledger then stands. The entry is kept under a name that no reader takes for one.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.delta import deltalog
from ingestor.delta.commit_info import is_ours
from ingestor.delta.failures import classify
from ingestor.delta.held import sync
from ingestor.delta.storage import LocalStorage, local_root
from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from ingestor.config.settings import Settings

_INGESTOR = "an ingestor"
_BACKUP = "restore the table's log from a backup"


@dataclass(frozen=True, slots=True)
class Torn:
    """A newest entry that is torn and that nothing was built on."""

    root: Path
    version: int
    why: str
    writer: str | None  # None: nobody can tell

    @property
    def ours(self) -> bool:
        """Tell whether an ingestor wrote it."""
        return self.writer == _INGESTOR

    @property
    def path(self) -> Path:
        """Where it stands."""
        return self.root / deltalog.entry_path(self.version)

    def lines(self) -> list[str]:
        """Return what is known of it, for people."""
        return [
            f"log entry {self.path} is torn: {self.why}",
            f"it is the newest, no checkpoint has it, and {self.writer or 'nobody can tell who'} wrote it",
            _UNACKNOWLEDGED if self.ours else _FOREIGN,
        ]

    def set_aside(self) -> Path:
        """Give it another name, for good; return that."""
        target = self.path.with_name(f"_torn_{self.version:020d}_{uuid.uuid4().hex[:8]}.aside")
        self.path.rename(target)
        sync(target.parent)
        return target


_UNACKNOWLEDGED = "an ingestor syncs before it acknowledges, so this commit was never acknowledged: no row is lost"
_FOREIGN = (
    "an ingestor syncs before it acknowledges, so it has acknowledged nothing of it; "
    "other programs (OPTIMIZE, DELETE) don't: one may have reported that it was done, then run it again"
)


def find(root: Path) -> Torn | None:
    """Return the newest entry of a table if it is torn, None if it is sound; refuse if anything was built on it."""
    storage = LocalStorage(root)
    entries, checkpoints = deltalog.versions(storage)
    newest = max(entries, default=None)
    if newest is None:
        return None
    _refuse_torn_below(storage, newest)
    text = storage.read(deltalog.entry_path(newest)) or b""
    try:
        deltalog.parse_entry(newest, text)
    except RefusedError as damage:
        if max(checkpoints, default=-1) >= newest:
            msg = f"{damage.message}, but the checkpoint of version {max(checkpoints)} has it: it was whole then"
            raise RefusedError(msg, hint=_BACKUP) from None
        return Torn(root, newest, str(damage.__cause__), _writer(text))
    return None


def _refuse_torn_below(storage: LocalStorage, newest: int) -> None:
    """Refuse if an older entry is torn: entries were built on it, so setting it aside would make a gap."""
    try:
        for _ in deltalog.tail(storage, newest - 1):
            pass
    except RefusedError as damage:
        msg = f"{damage.message}, and it is not the newest: others were built on it"
        raise RefusedError(msg, hint=_BACKUP) from None


def _writer(text: bytes) -> str | None:
    """Return who wrote an entry, as far as what is left of it tells; commitInfo is its first line."""
    try:
        info = json.loads(text.splitlines()[0])["commitInfo"]
        return _INGESTOR if is_ours(info) else str(info.get("engineInfo", "another program"))
    except (IndexError, ValueError, KeyError, TypeError):
        return None


def repair(settings: Settings, routes: Collection[str], tell: Callable[[str], None], *, yes: bool) -> None:
    """Look at the tables of some routes; with `yes` set aside what is torn, else only tell of it."""
    for route in routes:
        parse = settings.parse.get(route)
        for uri in filter(None, (settings.routes[route].table, parse.quarantine if parse else None)):
            try:
                _repair(f"{route}: table {uri}", local_root(uri), tell, yes=yes)
            except OSError as error:
                raise classify(error, doing=f"repairing table {uri}") from error


def _repair(name: str, root: Path | None, tell: Callable[[str], None], *, yes: bool) -> None:
    if root is None:
        tell(f"{name} is in a store, which keeps an entry whole or not at all: nothing to repair")
        return
    torn = find(root)
    if torn is None:
        tell(f"{name}: no log entry is torn, nothing to repair")
        return
    for line in torn.lines():
        tell(f"{name}: {line}")
    tell(f"{name}: set aside as {torn.set_aside()}" if yes else f"{name}: would be set aside; give --yes to do it")
