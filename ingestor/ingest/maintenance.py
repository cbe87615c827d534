"""What keeps a table's commits cheap: checkpoints, and the removal of expired log entries. Never on the commit path.

delta-rs removes entries that are older than the table's `delta.logRetentionDuration` (30 days if it is not set) and
that a checkpoint stands for. That is put off as long as the Spark job `parse` has yet to read one of them.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Protocol

from ingestor.delta import deltalog
from ingestor.delta.failures import plain
from ingestor.delta.open import reopen_handle, storage_of
from ingestor.delta.table_log import CHECKPOINT_EVERY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.config.settings import Settings
    from ingestor.delta.storage import Storage
    from ingestor.delta.table import RawTable
    from ingestor.worker import Worker

_RETENTION = "delta.logRetentionDuration"
_RETENTION_DEFAULT = "interval 30 days"
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
# A commit that takes longer than 600 s is fenced (see `committer`): until then its slot must not become free again.
_RETENTION_MIN_SECONDS = 3_600
_STEPS = "_spark_jobs/steps"  # in a checkpoint of the Spark jobs: what they have claimed and ended


class Watcher(Protocol):
    """Who is told how it went."""

    def checkpointed(self, route: str, version: int) -> None:
        """The log has a new checkpoint."""

    def checkpoint_failed(self, route: str, why: str) -> None:
        """The log has no new checkpoint."""

    def log_kept(self, route: str, why: str) -> None:
        """Expired log entries were not removed."""


class Maintenance:
    """The maintenance of one route's table, on a thread that may be slow."""

    def __init__(self, settings: Settings, route: str, table: RawTable, *, worker: Worker, watcher: Watcher) -> None:
        parse = settings.parse.get(route)
        self._route = route
        self._table = table
        self._clean = settings.routes[route].clean_log
        self._parse_checkpoint = None if parse is None else parse.checkpoint
        self._options = settings.storage_options
        self._worker = worker
        self._watcher = watcher

    def landed(self, version: int) -> None:
        """Take notice of a commit, and maintain the table every so often."""
        if version % CHECKPOINT_EVERY == 0:
            self._worker.submit(self.run)

    def run(self) -> None:
        """Write a checkpoint, then remove what has expired. A failure costs time, and another run follows."""
        try:
            version = self._table.checkpoint()
        except Exception as error:  # noqa: BLE001 - maintenance must never stop ingestion
            self._watcher.checkpoint_failed(self._route, str(error))
            return
        self._watcher.checkpointed(self._route, version)
        try:
            why = self._remove_expired() if self._clean else None
        except Exception as error:  # noqa: BLE001 - as above
            why = plain(str(error))
        if why is not None:
            self._watcher.log_kept(self._route, why)

    def _remove_expired(self) -> str | None:
        """Remove expired log entries; return why they were kept, None if they were not."""
        handle = reopen_handle(self._table.uri, self._options)
        configuration = handle.metadata().configuration
        seconds = retention_seconds(configuration)
        if seconds is None or seconds < _RETENTION_MIN_SECONDS:
            return f"{_RETENTION} is {configuration[_RETENTION]!r}, not an interval of an hour or more"
        if self._parse_checkpoint is not None:
            unread = unread_from(storage_of(self._parse_checkpoint, self._options))
            if unread is not None and _expired(self._table.storage, unread, handle.version(), seconds):
                return f"`spark_jobs parse` has not read version {unread} yet"
        handle.cleanup_metadata()
        return None


def retention_seconds(configuration: Mapping[str, str | None]) -> float | None:
    """Return how long a table's log entries are kept, None if it is set to what is no interval."""
    text = configuration.get(_RETENTION) or _RETENTION_DEFAULT
    match = re.fullmatch(rf"interval (\d+) ({'|'.join(_UNITS)})s?", " ".join(text.lower().split()))
    return int(match[1]) * _UNITS[match[2]] if match else None


def unread_from(checkpoint: Storage) -> int | None:
    """Return the version from which on the Spark job has yet to read; None if it begins with the table's live files."""
    numbers = [name.removesuffix(".json") for name in checkpoint.list(_STEPS) if re.fullmatch(r"\d+\.json", name)]
    if not numbers:
        if checkpoint.list("offsets"):
            raise LookupError("the parse checkpoint is of an earlier version of the Spark jobs")
        return None
    newest = max(numbers, key=int)
    ended = checkpoint.read(f"{_STEPS}/{newest}.end")
    if ended is not None:
        position = json.loads(ended)["position"]
    else:
        step: dict[str, Any] = json.loads(checkpoint.read(f"{_STEPS}/{newest}.json") or b"{}")
        position = step["begin"] or (step["batch"] or {}).get("end")
    return None if position is None else int(position["version"])


def _expired(storage: Storage, version: int, newest: int, seconds: float) -> bool:
    """Tell whether an entry is as old as those that go, or is gone; those behind it are younger."""
    if version > newest:
        return False
    entry = deltalog.read_entry(storage, version)
    written_ms = None if entry is None else entry.commit_info.get("timestamp")
    return not isinstance(written_ms, int) or written_ms / 1000 <= time.time() - seconds
