"""Committers on a table in an S3 store, and what the store then holds, read without them and without delta-rs."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ingestor.config.settings import OccSettings, RetrySettings
from ingestor.delta.guards import Guards
from ingestor.delta.storage import with_defaults
from ingestor.delta.table import RawTable
from ingestor.delta.table_log import CHECKPOINT_EVERY
from ingestor.errors import Fenced
from ingestor.ingest.breaker import Breaker
from ingestor.ingest.committer import Committer, Landed, make_patience
from ingestor.ingest.steps import SILENT, Steps
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import RawSchema, TopicPartition
from tests.support.fakes.staging import stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.ingest.put import Outcome
    from ingestor.ingest.stager import Staged
    from tests.support.stores.stores import Store

APP_ID = "faults"
TP = TopicPartition("t", 0)
ROWS = 5  # of each commit
# Faults are short here, so patience is too; production's is in ingestor/delta/storage.py.
QUICK = {
    "timeout": "1s",
    "connect_timeout": "1s",
    "max_retries": "5",
    "retry_timeout": "1s",
    "backoff_config.init_backoff": "10ms",
    "backoff_config.max_backoff": "50ms",
}


class Writer:
    """One ingestor's committer, and the rows that it commits."""

    def __init__(self, url: str, options: Mapping[str, str], *, seed: int = 0, steps: Steps = SILENT) -> None:
        self.outcomes: list[Outcome] = []
        self.failures = 0
        patience = make_patience(
            RetrySettings(max_retries=3, base_seconds=0.01, max_seconds=0.2, jitter=0.25),
            breaker=Breaker(failures=3, open_seconds=0.2, successes=1, clock=time.monotonic),
            sleep=time.sleep,
            rng=random.Random(seed),
            on_failure=self._failed,
        )
        self.patience = patience
        self._steps = steps
        self.table = patience.until_answered(
            lambda: RawTable(url, RawSchema(), with_defaults({**QUICK, **options})), doing="opening"
        )
        self.committer = Committer(
            self.table,
            Guards("s3", url, AppIds(DEFAULT_TEMPLATE, APP_ID)),
            occ=OccSettings(max_retries=200, base_seconds=0.01, max_seconds=0.1),
            patience=patience,
            on_outcome=self.outcomes.append,
            steps=steps,
        )

    def _failed(self, _failure: object) -> None:
        self.failures += 1

    def stage(self, tp: TopicPartition = TP) -> Staged:
        """Write a file with the partition's next rows."""
        self._steps("dropped", partitions=[tp], again=[])
        return self.stage_after(self.committer.read([tp])[tp], tp)

    def stage_after(self, before: int | None, tp: TopicPartition) -> Staged:
        """Write a file with the rows after an offset."""
        first = 0 if before is None else before + 1
        rows = [(tp, offset) for offset in range(first, first + ROWS)]
        staged = self.patience.until_answered(
            lambda: stage(self.table.storage, rows, chain={tp: before}), doing="staging"
        )
        self._steps("placed", partition=tp, txn=before, position=first)
        self._steps("sealed", commit_id=staged.commit_id, expected=staged.expected, last=staged.last)
        return staged

    def land(self, staged: Staged) -> Landed:
        """Commit what was staged, and write a checkpoint now and then, which may fail."""
        try:
            landed = self.committer.land(staged, {"app_id": APP_ID, "operation_kind": "flush"})
        except Fenced:
            self._steps("started_over", landing=False)
            raise
        if landed.version % CHECKPOINT_EVERY == 0:
            with contextlib.suppress(Exception):
                self.table.checkpoint()
        return landed


@dataclass
class Held:
    """What stands in a table's log, as the store has it."""

    versions: list[int] = field(default_factory=list)
    adds: Counter[str] = field(default_factory=Counter)
    txns: list[tuple[str, int]] = field(default_factory=list)
    commit_ids: Counter[str] = field(default_factory=Counter)
    rows: Counter[tuple[str, int, int]] = field(default_factory=Counter)


def log_texts(store: Store, bucket: str, path: str = "table") -> list[bytes]:
    """Return the log's entries from version 1 on, as the store has them."""
    keys = sorted(key for key in store.objects(bucket, f"{path}/") if re.fullmatch(r".*/_delta_log/\d{20}\.json", key))
    return [store.read(bucket, key) for key in keys[1:]]


def held(store: Store, bucket: str, path: str = "table") -> Held:
    """Read the whole log and every file that it names."""
    found = Held()
    keys = store.objects(bucket, f"{path}/")
    logs = sorted(key for key in keys if re.fullmatch(r".*/_delta_log/\d{20}\.json", key))
    for key in logs:
        found.versions.append(int(key[-25:-5]))
        for line in store.read(bucket, key).splitlines():
            _note(found, json.loads(line))
    for name in found.adds:
        assert keys[f"{path}/{name}"] > 0
        rows = pq.read_table(io.BytesIO(store.read(bucket, f"{path}/{name}")))
        columns = [rows.column(at).to_pylist() for at in ("stream_topic", "stream_partition", "stream_offset")]
        found.rows.update(zip(*columns, strict=True))
    return found


def _note(found: Held, action: dict[str, Any]) -> None:
    if "add" in action:
        found.adds[action["add"]["path"]] += 1
    if "txn" in action:
        found.txns.append((action["txn"]["appId"], action["txn"]["version"]))
    if "commitInfo" in action and "commit_id" in action["commitInfo"]:
        found.commit_ids[action["commitInfo"]["commit_id"]] += 1


def assert_exactly_once(found: Held, expected: Mapping[TopicPartition, int]) -> None:
    """Assert that a log has so many commits of each partition, in order, each once, and their rows."""
    assert found.versions == list(range(len(found.versions)))
    assert set(found.adds.values()) <= {1}, "a file was added twice"
    assert set(found.commit_ids.values()) <= {1}, "a commit landed twice"
    for tp, commits in expected.items():
        txns = [txn for name, txn in found.txns if name == f"{APP_ID}/{tp.topic}/{tp.partition}"]
        assert txns == [commit * ROWS - 1 for commit in range(1, commits + 1)]
    wanted = itertools.chain.from_iterable(
        ((tp.topic, tp.partition, offset) for offset in range(commits * ROWS)) for tp, commits in expected.items()
    )
    assert found.rows == Counter(wanted)
