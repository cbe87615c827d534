"""What a route's checkpoint keeps beside Spark's own files: who it is, and by which plan its last batch was begun.

A batch writes into two tables, one after the other. If it dies in between, the second write must go by what the first
went by: so the plan is written down before the first. A plan is only taken up again if a write of its batch has landed;
else nothing depends on it, and the present configuration counts (which may be what mends a batch that failed).
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.errors import ConfigError, RefusedError
from spark_jobs.places import Files, TableLog, spark_path
from spark_jobs.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_FOLDER = "_spark_jobs"
_KEPT = 2
_RESET = "to parse from the start, keeping what the tables have, run `spark_jobs reset`; or bring the checkpoint back"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One route's checkpoint."""

    session: SparkSession
    place: str
    prefix: str  # of the txn ids of all checkpoints that the route ever had

    @property
    def path(self) -> str:
        """Return where it lies, as Spark calls it."""
        return spark_path(self.place)

    def app_id(self, tables: Sequence[str]) -> str:
        """Return the txn id of its batches; refuse a checkpoint that does not go with the tables.

        Batches are numbered from 0 in a new checkpoint: under an old id they would be skipped, under a new one all that
        was quarantined would be again.
        """
        files = Files(self.session)
        identity = files.read(f"{self.path}/{_FOLDER}/identity")
        logs = [TableLog(self.session, table) for table in tables]
        if identity is None:
            if self.last_batch() is not None:
                raise ConfigError(f"checkpoint {self.place} is not one of ours", hint="choose another checkpoint")
            for log, table in zip(logs, tables, strict=True):
                if log.exists and log.txn_ids(self.prefix):
                    raise ConfigError(f"checkpoint {self.place} is new, but {table} has batches of it", hint=_RESET)
            return self.found()
        last = self.last_batch()
        for log, table in zip(logs, tables, strict=True):
            txn = log.txn(identity) if log.exists else None
            if txn is not None and (last is None or txn > last):
                msg = f"checkpoint {self.place} ends before batch {txn}, which {table} has"
                raise ConfigError(msg, hint=_RESET)
        return identity

    def found(self) -> str:
        """Begin a new checkpoint; return its txn id."""
        identity = f"{self.prefix}{uuid.uuid4().hex[:12]}"
        Files(self.session).write(f"{self.path}/{_FOLDER}/identity", identity)
        return identity

    def clear(self) -> None:
        """Forget all progress, and begin anew."""
        Files(self.session).remove(self.path)
        self.found()

    def last_batch(self) -> int | None:
        """Return the number of the last batch that was begun."""
        numbers = [int(name) for name in Files(self.session).names(f"{self.path}/offsets") if name.isdecimal()]
        return max(numbers, default=None)

    def finished_batch(self) -> int | None:
        """Return the number of the last batch that was finished."""
        numbers = [int(name) for name in Files(self.session).names(f"{self.path}/commits") if name.isdecimal()]
        return max(numbers, default=None)

    def offset_of(self, batch: int) -> dict[str, object] | None:
        """Return where in the raw table a batch ends, as Delta's source notes it."""
        text = Files(self.session).read(f"{self.path}/offsets/{batch}")
        if text is None:
            return None
        found: dict[str, object] = json.loads(text.splitlines()[-1])
        return found

    def keep_plan(self, batch: int, plan: Plan) -> None:
        """Write down by which plan a batch goes."""
        files = Files(self.session)
        files.write(self._plan_path(batch), plan.to_json())
        for name in files.names(f"{self.path}/{_FOLDER}"):
            number = name.removeprefix("plan-").removesuffix(".json")
            if name.startswith("plan-") and number.isdecimal() and int(number) <= batch - _KEPT:
                files.remove(f"{self.path}/{_FOLDER}/{name}")

    def kept_plan(self, batch: int) -> Plan:
        """Return the plan by which a batch began to write."""
        text = Files(self.session).read(self._plan_path(batch))
        if text is None:
            msg = f"checkpoint {self.place}: batch {batch} is half written, and its plan is gone"
            raise RefusedError(msg, hint=_RESET)
        return Plan.from_json(text)

    def _plan_path(self, batch: int) -> str:
        return f"{self.path}/{_FOLDER}/plan-{batch}.json"
