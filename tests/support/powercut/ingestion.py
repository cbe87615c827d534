"""What was being ingested when the power was cut: it goes on from whatever the disk still has, in this process.

`main` is a program of its own, to be recorded: the real table, stager and committer, without Kafka. Its arguments are
the pickled ingestion, the folder, and how many rows make a commit and how many commits a checkpoint.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from deltalake import DeltaTable

from ingestor.commands import repair
from ingestor.config.settings import OccSettings, RetrySettings
from ingestor.delta.guards import Guards
from ingestor.delta.table import RawTable
from ingestor.errors import Fenced, RefusedError
from ingestor.ingest.breaker import Breaker
from ingestor.ingest.budget import Budget
from ingestor.ingest.buffer import select
from ingestor.ingest.committer import Committer, make_patience
from ingestor.ingest.stager import Draft, Staged
from ingestor.ledger import DEFAULT_TEMPLATE, AppIds
from ingestor.records import Columns, RawSchema, TopicPartition
from tests.support.fakes.worker import InstantWorker
from tests.support.judge.history import check_table, read_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.judge.history import Content, Coordinate
    from tests.support.powercut.disk import Tree
    from tests.support.powercut.states import State


@dataclass(frozen=True)
class Ingestion:
    """One topic into one table."""

    app_id: str
    table: str  # below the folder that is recorded
    partitioned: bool
    expected: Mapping[Coordinate, Content]  # all that Kafka holds

    def open(self, folder: Path) -> Writer:
        """Open or create the table."""
        return Writer(self, RawTable(str(folder / self.table), RawSchema((), self.partitioned), {}))

    def survives(self, state: State, txns: Mapping[str, int], folder: Path) -> bool:
        """Rebuild a disk in an empty folder and start from it: `txns` hold, and all that is left lands.

        Return whether it was refused until its newest entry was set aside.
        """
        rebuild(state.tree, folder)
        repaired = False
        try:
            writer = self.open(folder)
        except RefusedError as refused:
            repaired = self._repair(folder, refused)
            writer = self.open(folder)
        found = writer.table.txns
        lost = {name: (txn, found.get(name)) for name, txn in txns.items() if found.get(name, -1) < txn}
        assert not lost, f"acknowledged, but gone: {lost}"
        writer.commit(len(self.expected))
        check_table(self.expected, folder / self.table, self.app_id)
        return repaired

    def _repair(self, folder: Path, refused: RefusedError) -> bool:
        """Set the torn entry aside as the refusal says; another start would have been refused as well."""
        assert "`ingestor repair CONFIG`" in refused.hint, refused
        with pytest.raises(RefusedError, match="is damaged"):
            self.open(folder)
        torn = repair.find(folder / self.table)
        assert torn is not None, refused
        torn.set_aside()
        return True


class Writer:
    """Commits what is not in the table yet."""

    def __init__(self, ingestion: Ingestion, table: RawTable) -> None:
        self.table = table
        self._ingestion = ingestion
        self._committer = Committer(
            table,
            Guards("route", table.uri, AppIds(DEFAULT_TEMPLATE, ingestion.app_id)),
            occ=OccSettings(max_retries=100, base_seconds=0.01, max_seconds=0.1),
            patience=make_patience(
                RetrySettings(max_retries=0, base_seconds=0.01, max_seconds=0.01, jitter=0),
                breaker=Breaker(failures=1, open_seconds=1, successes=1, clock=time.monotonic),
                sleep=time.sleep,
                rng=random.Random(0),
            ),
        )

    def commit(self, rows: int) -> int | None:
        """Commit at most so many rows of each partition; return the version, None if all rows are there."""
        before = self._committer.read({TopicPartition(*key[:2]) for key in self._ingestion.expected})
        staged = self._stage(before, rows)
        if staged is None:
            return None
        info = {"app_id": self._ingestion.app_id, "operation_kind": "flush", "gaps": [], "topic_ids": {}}
        return self._committer.land(staged, info).version

    def _stage(self, before: Mapping[TopicPartition, int | None], rows: int) -> Staged | None:
        schema = RawSchema((), self._ingestion.partitioned)
        positions = {tp: 0 if last is None else last + 1 for tp, last in before.items()}
        wanted = {
            key: content
            for key, content in sorted(self._ingestion.expected.items())
            if key[2] < positions[TopicPartition(*key[:2])] + rows
        }
        batch = select(_columns(wanted), positions, schema).batch
        if batch is None:
            return None
        draft = Draft(
            self.table.storage,
            schema,
            compression="zstd",
            worker=InstantWorker(),
            budget=Budget(1 << 30),
            opened_at=0.0,
            ingest_date=datetime.now(UTC).date(),
        )
        draft.add(batch, before)
        draft.finish()
        return draft.settle()


def rebuild(tree: Tree, folder: Path) -> None:
    """Make the files and folders."""
    for path, content in tree.items():  # in order, so each folder comes before what is in it
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)


def txns_by_version(table: Path) -> list[dict[str, int]]:
    """Return the txns that held at each version of a table whose log is whole."""
    txns: dict[str, int] = {}
    return [txns := txns | entry.txns for entry in read_log(table).entries]


def _columns(expected: Mapping[Coordinate, Content]) -> Columns:
    return Columns(
        topics=tuple({key[0]: None for key in expected}),
        topic_codes=np.zeros(len(expected), np.int32),
        partitions=np.array([key[1] for key in expected], np.int32),
        offsets=np.array([key[2] for key in expected], np.int64),
        timestamps_ms=np.array([content[0] for content in expected.values()], np.int64),
        values=[content[2] for content in expected.values()],
    )


def main(*, commits_max: int = 1_000, compact_after: int = 0) -> None:
    """Commit all there is in several pieces, with a checkpoint every so often; tell each commit as `ingestor` does."""
    file, folder, rows, checkpoint_every = sys.argv[1:]
    ingestion: Ingestion = pickle.loads(Path(file).read_bytes())  # noqa: S301 - the test's own
    writer = ingestion.open(Path(folder))
    commits = 0
    while commits < commits_max:
        try:
            version = writer.commit(int(rows))
        except Fenced:
            continue
        if version is None:
            return
        os.write(2, json.dumps({"event": "committed", "version": version}).encode() + b"\n")
        if version % int(checkpoint_every) == 0:
            writer.table.checkpoint()
        commits += 1
        if commits == compact_after:
            compact()


def compact() -> None:
    """Let delta-rs put larger files in place of the table's small ones."""
    file, folder, *_ = sys.argv[1:]
    ingestion: Ingestion = pickle.loads(Path(file).read_bytes())  # noqa: S301 - the test's own
    DeltaTable(str(Path(folder) / ingestion.table)).optimize.compact()
