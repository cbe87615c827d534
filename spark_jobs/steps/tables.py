"""Silver and quarantine: how they are made, and how a step is written into one exactly once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql.types import StructType

from ingestor.errors import RefusedError
from ingestor.records import COORDINATES
from spark_jobs.plan import ddl
from spark_jobs.rows.parsing import EXTRAS
from spark_jobs.runtime.places import TableLog, spark_path
from spark_jobs.steps.steps import Superseded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.plan.ddl import Field
    from spark_jobs.plan.plan import Plan
    from spark_jobs.runtime.places import Commit
    from spark_jobs.steps.steps import Step

# Nothing here may need a reader or writer newer than the ingestor's: delta-rs reads and writes these tables too.
_PROPERTIES = {
    "delta.enableDeletionVectors": "false",
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
}
_STATISTICS_MAX = 32
_NO_STATISTICS = ("BINARY", "BOOLEAN")
_NOT_TYPE = ("nullable", "containsNull", "valueContainsNull", "metadata")
QUARANTINE = (
    ddl.Field("stream_topic", "STRING"),
    ddl.Field("stream_partition", "INT"),
    ddl.Field("stream_offset", "BIGINT"),
    ddl.Field("message_timestamp", "TIMESTAMP"),
    ddl.Field("message_payload", "BINARY"),
    *(ddl.Field(name, kind) for name, kind in EXTRAS.items()),
    ddl.Field("error_reason", "STRING"),
    ddl.Field("error_class", "STRING"),
    ddl.Field("error_message", "STRING"),
    ddl.Field("processing_version", "STRING"),
    ddl.Field("replayed_at", "TIMESTAMP"),
)


def create_silver(session: SparkSession, table: str, plan: Plan, partition_by: Sequence[str]) -> None:
    """Create silver, or refuse one that the plan's rows don't fit into."""
    coordinates = ("source_topic", "stream_partition", "stream_offset", "message_timestamp")
    able = [field.name for field in plan.silver if field.flat and field.type not in _NO_STATISTICS]
    keys = () if plan.dedupe is None else plan.dedupe.by
    indexed = dict.fromkeys((*coordinates, *(name for name in keys if name in able), *able))
    names = [name for name in indexed if name not in partition_by][:_STATISTICS_MAX]
    _create(session, table, plan.silver, partition_by, names)


def create_quarantine(session: SparkSession, table: str) -> None:
    """Create quarantine, or refuse a table that is something else."""
    _create(session, table, QUARANTINE, (), [*COORDINATES, "message_timestamp", "error_reason", "replayed_at"])


def _create(
    session: SparkSession, table: str, fields: Sequence[Field], partition_by: Sequence[str], indexed: Sequence[str]
) -> None:
    if not TableLog(session, table).exists:
        builder = DeltaTable.createIfNotExists(session).location(spark_path(table))
        builder = builder.addColumns(StructType.fromDDL(ddl.render(fields)))  # type: ignore[arg-type]  # it returns one
        if partition_by:
            builder = builder.partitionedBy(*partition_by)
        columns = ",".join(ddl.quoted(name) for name in indexed)
        for key, value in {**_PROPERTIES, "delta.dataSkippingStatsColumns": columns}.items():
            builder = builder.property(key, value)
        try:
            builder.execute()
        except Exception:
            if not TableLog(session, table).exists:  # else another run was quicker, and `_verify` judges what it made
                raise
    _verify(session, table, fields, partition_by)


def _verify(session: SparkSession, table: str, fields: Sequence[Field], partition_by: Sequence[str]) -> None:
    """Refuse a table of other columns: a changed schema is a person's decision, not a batch's."""
    snapshot = TableLog(session, table).snapshot()
    there = _types(str(snapshot.schema().json()))
    wanted = _types(StructType.fromDDL(ddl.render(fields)).json())
    parts = [f"{name} is missing" for name in wanted if name not in there]
    parts += [f"{name} is {there[name]}, not {kind}" for name, kind in wanted.items() if there.get(name, kind) != kind]
    parts += [f"{name} is not of the schema" for name in there if name not in wanted]
    if parts:
        hint = "ALTER TABLE it by hand, or give the route a new table and run `spark_jobs reset`"
        raise RefusedError(f"table {table} has another schema: {'; '.join(parts)}", hint=hint)
    partitions = list(filter(None, str(snapshot.metadata().partitionColumns().mkString("\n")).split("\n")))
    if partitions != list(partition_by):
        msg = f"table {table} is partitioned by {partitions}, not by {list(partition_by)}"
        raise RefusedError(msg, hint="set partition_by to match, or give the route a new table")


def _types(schema: str) -> dict[str, str]:
    """Return each column's type, from a schema's JSON; what may be null is no matter."""
    fields = json.loads(schema)["fields"]
    return {field["name"]: json.dumps(_bare(field["type"]), sort_keys=True).strip('"') for field in fields}


def _bare(kind: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(kind, dict):
        return {key: _bare(value) for key, value in kind.items() if key not in _NOT_TYPE}
    return [_bare(each) for each in kind] if isinstance(kind, list) else kind


@dataclass(frozen=True, slots=True)
class Landed:
    """What one step put into one table, as the table's own log tells it."""

    rows: int = 0
    duplicates: int = 0
    void: bool = False  # nothing, and nothing of the step can land here any more


@dataclass(frozen=True, slots=True)
class Sink:
    """One table that steps write to, each once: its number is a txn of the commit, its hash stands in it."""

    session: SparkSession
    table: str

    def landed(self, step: Step) -> Landed | None:
        """Return what a step put here, None if it has not written here (or had nothing to write)."""
        log = TableLog(self.session, self.table)
        txn = log.txn(step.app_id)
        if txn is None or txn < step.number:
            return None
        for commit in log.commits():
            number = commit.txns.get(step.app_id)
            if number == step.number:
                self._require_claim(step, commit)
                return Landed(commit.rows, int(commit.mark.get("duplicates", 0)), bool(commit.mark.get("void")))
            if number is not None and number < step.number:
                raise Superseded(f"table {self.table}, step {step.number}")
        if txn > step.number:
            raise Superseded(f"table {self.table}, step {step.number}")
        msg = f"table {self.table}: the commit of batch {step.number} is no longer in its log"
        raise RefusedError(
            msg, hint="run `spark_jobs reset`: rows that are there already are then counted, not written"
        )

    def _require_claim(self, step: Step, commit: Commit) -> None:
        claim = commit.mark.get("claim")
        if claim != step.claim:
            msg = f"table {self.table}: batch {step.number} has landed by another plan ({claim}, not {step.claim})"
            hint = "two checkpoints are in use for these tables; stop one, then run `spark_jobs reset`"
            raise RefusedError(msg, hint=hint)

    def append(self, rows: DataFrame, step: Step, *, duplicates: int, void: bool = False) -> Landed:
        """Append rows as the step's commit, and return what the log then says, whoever was first."""
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", step.app_id).option("txnVersion", str(step.number))
        writer = writer.option("userMetadata", mark(step, duplicates=duplicates, void=void))
        try:
            writer.save(spark_path(self.table))
        except Exception:
            landed = self.landed(step)
            if landed is None:
                raise
            return landed
        landed = self.landed(step)
        if landed is None:
            raise RefusedError(
                f"table {self.table}: the commit of batch {step.number} did not land",
                hint="start again; if it stays so, report it with the table's newest log entries",
            )
        return landed

    def fence(self, step: Step, *, void: bool = False) -> Landed:
        """Land the step without rows: nothing of it, or of an earlier one, can land here after that."""
        nothing = self.session.read.format("delta").load(spark_path(self.table)).limit(0)
        return self.append(nothing, step, duplicates=0, void=void)


def mark(step: Step, **more: int) -> str:
    """Return what a step writes into its commits."""
    said = {"job": step.app_id, "kind": step.kind, "batch": step.number, "claim": step.claim}
    return json.dumps({**said, **more})


def changing(session: SparkSession, step: Step) -> SparkSession:
    """Return a session of its own, in which a DELETE or MERGE is the step's commit: skipped if that has landed."""
    own = session.newSession()
    own.conf.set("spark.databricks.delta.write.txnAppId", step.app_id)
    own.conf.set("spark.databricks.delta.write.txnVersion", str(step.number))
    own.conf.set("spark.databricks.delta.commitInfo.userMetadata", mark(step))
    return own
