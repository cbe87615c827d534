"""Raw tables of any age, made without the hours that they would take: log entries copied from a real one."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from ingestor.config.settings import OccSettings, RetrySettings
from ingestor.delta.deltalog import LOG_DIR, entry_path
from ingestor.delta.guards import Guards
from ingestor.delta.table import RawTable
from ingestor.delta.table_log import CHECKPOINT_EVERY, DataFile
from ingestor.ingest.breaker import Breaker
from ingestor.ingest.committer import Committer, make_patience, system_rng
from ingestor.ingest.stager import Staged
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import RawSchema, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 1_000  # per partition and commit
COMPACTED_EVERY = 60  # entries: a commit a minute, `spark_jobs compact` every hour
_EXPIRED_SECONDS = 31 * 86_400
_STEADY = OccSettings(max_retries=0, base_seconds=0.1, max_seconds=1)
_INFO = {"app_id": "bench", "route": "records", "operation_kind": "flush", "topic_ids": {"records": "A" * 22}}


class OldTable:
    """A table with so many log entries, and what is needed to commit more."""

    def __init__(
        self,
        folder: Path,
        *,
        length: int,
        partitions: int,
        checkpoints: bool,
        compacted: bool = False,
        cleaned: bool = False,
        at: tuple[str, dict[str, str]] | None = None,
    ) -> None:
        """Make it in a folder; `at` is the URL and storage options of a store that serves the folder, if one does.

        Its files are all live, unless they are `compacted` now and then. Its entries are all there, unless those before
        the last checkpoint have expired and are `cleaned`.
        """
        uri, options = at or (str(folder), {})
        self._folder = folder
        self._tps = [TopicPartition("records", number) for number in range(partitions)]
        young = RawTable(uri, RawSchema(), options)
        self._committer = _committer(young)
        self.commit(1)
        self._age(length, young if checkpoints else None, compacted=compacted)
        if cleaned:
            self._expire()
            DeltaTable(uri, storage_options=options).cleanup_metadata()
        self.table = RawTable(uri, RawSchema(), options)
        self._committer = _committer(self.table)

    @property
    def app_ids(self) -> AppIds:
        """How the partitions are named in the log."""
        return app_ids()

    def commit(self, version: int) -> None:
        """Land one file with rows of every partition; it takes the slot of that version."""
        rows = len(self._tps) * ROWS
        stats = {
            "numRecords": rows,
            "minValues": {"stream_topic": "records", "stream_partition": 0, "stream_offset": (version - 1) * ROWS},
            "maxValues": {
                "stream_topic": "records",
                "stream_partition": len(self._tps) - 1,
                "stream_offset": version * ROWS - 1,
            },
            "nullCount": {"stream_topic": 0, "stream_partition": 0, "stream_offset": 0, "message_timestamp": 0},
        }
        name = f"{version:032x}"
        before = None if version == 1 else (version - 1) * ROWS - 1
        staged = Staged(
            commit_id=name,
            files=(DataFile(_path(version), 1 << 20, stats),),
            expected=dict.fromkeys(self._tps, before),
            last=dict.fromkeys(self._tps, version * ROWS - 1),
        )
        landed = self._committer.land(staged, _INFO)
        if landed.version != version:
            raise RuntimeError(f"landed at {landed.version}, not at {version}")

    def _age(self, length: int, checkpointer: RawTable | None, *, compacted: bool) -> None:
        """Write entries like the first commit's up to a version, and the checkpoint that would be the newest."""
        pattern = (self._folder / entry_path(1)).read_text()
        newest = length - length % CHECKPOINT_EVERY
        for version in range(2, length + 1):
            actions = list(_moved(pattern, version))
            if compacted and version % COMPACTED_EVERY == 0 and version < length:  # the last one has to have txns
                actions = list(_compacting(pattern, version))
            entry = "".join(f"{json.dumps(action)}\n" for action in actions)
            (self._folder / entry_path(version)).write_text(entry)
            if version == newest and checkpointer is not None:
                checkpointer.checkpoint()

    def _expire(self) -> None:
        """Make the whole log as old as what is removed; entries behind the last checkpoint stay all the same."""
        then = time.time() - _EXPIRED_SECONDS
        for path in (self._folder / LOG_DIR).iterdir():
            os.utime(path, (then, then))


def _compacting(entry: str, version: int) -> Iterator[dict[str, Any]]:
    """Return the actions that put the files of the entries before into one, but for those compacted before."""
    for action in _moved(entry, version):
        if "add" in action:
            action["add"]["dataChange"] = False
            for before in range(version - COMPACTED_EVERY + 1, version):
                old = {"path": _path(before), "deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": False}
                yield {"remove": old}
        if "txn" not in action:
            yield action


def _moved(entry: str, version: int) -> Iterator[dict[str, Any]]:
    """Return the actions of version 1 as those of another one."""
    for line in entry.splitlines():
        action: dict[str, Any] = json.loads(line)
        if "txn" in action:
            action["txn"]["version"] = version * ROWS - 1
        elif "add" in action:
            action["add"]["path"] = _path(version)
        elif "commitInfo" in action:
            action["commitInfo"]["commit_id"] = f"{version:032x}"
        yield action


def _path(version: int) -> str:
    return f"part-{version:032x}.zstd.parquet"


def app_ids() -> AppIds:
    """Return how the benchmark's partitions are named in the log."""
    return AppIds(DEFAULT_TEMPLATE, "bench")


def _committer(table: RawTable) -> Committer:
    patience = make_patience(
        RetrySettings(max_retries=0, base_seconds=0.1, max_seconds=1, jitter=0),
        breaker=Breaker(failures=5, open_seconds=60, successes=3, clock=time.monotonic),
        sleep=time.sleep,
        rng=system_rng(),
    )
    return Committer(table, Guards("bench", table.uri, app_ids()), occ=_STEADY, patience=patience)
