"""A step of `reparse`: quarantined rows once more, by the present schema and rules.

What parses now goes to silver first, then leaves quarantine; what still fails stays, with the new reason. Both commits
are of one step, which reads the version of quarantine that its claim names, so whoever carries it out moves the same
rows. Nothing is removed before it is known where all went. Rewriting quarantine is an entry that also removes, so
nobody takes such rows for new dead letters. Rows that were replayed to their topic are left alone: they come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ingestor.records import COORDINATES
from spark_jobs.rows import duplicates, parsing
from spark_jobs.rows.balance import Balance
from spark_jobs.rows.parsing import EXTRAS, REASON, TOMBSTONE
from spark_jobs.runtime import retry
from spark_jobs.runtime.places import TableLog, spark_path
from spark_jobs.steps.batch import ROW, add_to_silver, count, keep, with_registry
from spark_jobs.steps.steps import Superseded
from spark_jobs.steps.tables import Landed, changing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.plan.plan import Plan
    from spark_jobs.steps.batch import Counted, Job
    from spark_jobs.steps.steps import Step


def plan_of(job: Job, version: int) -> Plan:
    """Return by which plan what is in quarantine would be parsed."""
    return with_registry(job.plan, _quarantined(job, version), job.registry_url)


def process(job: Job, step: Step) -> Balance:
    """Bring a reparse to its end; return where its rows are then."""
    plan, version = step.plan, step.quarantine_version
    assert plan is not None  # noqa: S101 - each claim of a reparse has both
    assert version is not None  # noqa: S101 - same
    outcomes = parsing.outcomes(_quarantined(job, version), plan)
    kept = keep(duplicates.one_of_each(outcomes))
    found = kept.select(f"{ROW}.*")
    try:
        counted = count(found, times=plan.dedupe is not None)
        if not counted.rows:
            return Balance()
        landed = _move(job, found, counted, plan, step)
        return _settle(job, found, counted, plan, step, landed)
    finally:
        kept.unpersist()


def _quarantined(job: Job, version: int) -> DataFrame:
    rows = TableLog(job.session, job.quarantine.table).at(version).where("replayed_at is null")
    return rows.select(*COORDINATES, "message_timestamp", "message_payload", *EXTRAS)


def _there(job: Job, found: DataFrame, counted: Counted, version: int) -> DataFrame:
    """Return the coordinates of rows that a version of silver has."""
    rows = TableLog(job.session, job.silver.table).at(version)
    there = duplicates.seen(rows, "source_topic", counted.ranges).distinct()
    return there.join(found.select(*COORDINATES), list(COORDINATES), "left_semi")


def _move(job: Job, found: DataFrame, counted: Counted, plan: Plan, step: Step) -> Landed:
    """Append to silver what parses now and is not there yet."""
    if not counted.valid:
        return Landed()
    log = TableLog(job.session, job.silver.table)
    version = log.version  # before it is known whether the step is in it
    landed = job.silver.landed(step)
    if landed is not None:
        return landed
    there = _there(job, found, counted, version).persist()
    try:
        fresh = duplicates.without(found, there, there.count())
        left = count(fresh, times=plan.dedupe is not None)
        return add_to_silver(job.silver, fresh, log.at(version), plan, left, step, 0)
    finally:
        there.unpersist()


def _settle(job: Job, found: DataFrame, counted: Counted, plan: Plan, step: Step, landed: Landed) -> Balance:
    """Take out of quarantine what has gone elsewhere, and give what stays its present reason.

    Not before it is known that each row has gone somewhere: to silver, or as a duplicate that was counted there.
    """
    if landed.void:
        raise Superseded(f"step {step.number}")
    there = _there(job, found, counted, TableLog(job.session, job.silver.table).version).persist()
    try:
        left = count(duplicates.without(found, there, there.count()), times=False)
        balance = Balance(
            raw=counted.rows,
            silver=counted.rows - left.rows,
            quarantine=left.rejected,
            duplicates=landed.duplicates,
            tombstones=left.tombstones,
        )
        balance.require_even(f"reparse, step {step.number}")
        retry.on_conflict(lambda: _rewrite(job, found, there, plan, step), doing=f"rewriting {job.quarantine.table}")
        return balance
    finally:
        there.unpersist()


def _rewrite(job: Job, found: DataFrame, there: DataFrame, plan: Plan, step: Step) -> None:
    if job.quarantine.landed(step) is not None:
        return
    reason = F.col(REASON)
    told = found.select(
        *COORDINATES,
        F.when(reason != TOMBSTONE, reason).alias("reason"),
        parsing.error_class(plan, reason).alias("class"),
        parsing.error_message(plan, reason).alias("message"),
    )
    told = told.join(there.withColumn("moved", F.lit(True)), list(COORDINATES), "left")
    same = " AND ".join(f"q.{name} = n.{name}" for name in COORDINATES)
    values = {
        "error_reason": F.col("n.reason"),
        "error_class": F.col("n.class"),
        "error_message": F.col("n.message"),
        "processing_version": F.lit(plan.processing_version),
    }
    changed = F.lit(False)
    for name, value in values.items():
        changed |= ~F.col(f"q.{name}").eqNullSafe(value)
    target = DeltaTable.forPath(changing(job.session, step), spark_path(job.quarantine.table)).alias("q")
    merge = target.merge(told.alias("n"), f"{same} AND q.replayed_at IS NULL")
    merge = merge.whenMatchedDelete(condition="n.reason IS NULL OR n.moved")
    merge.whenMatchedUpdate(condition=changed, set=values).execute()  # type: ignore[arg-type]  # a dict of columns
    if job.quarantine.landed(step) is None:  # there was nothing to change
        job.quarantine.fence(step)
