"""`reparse`: quarantined rows once more, by the present schema and rules.

What parses now goes to silver first, then leaves quarantine. A run that dies in between leaves rows in both; the next
one finds their coordinates in silver and only removes them from quarantine. What still fails stays, with the new
reason; that rewrites files, in an entry that also removes, so nobody takes such rows for new dead letters. Rows that
were replayed to their topic are left alone: they come again by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs import duplicates, failures, parsing, retry
from spark_jobs.balance import Balance
from spark_jobs.batch import WAITING, count, with_registry
from spark_jobs.parse import prepare
from spark_jobs.parsing import COORDINATES, EXTRAS, REASON, TOMBSTONE
from spark_jobs.places import TableLog, spark_path
from spark_jobs.tables import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.batch import Counted, Job
    from spark_jobs.parse import Route
    from spark_jobs.plan import Plan


def reparse(session: SparkSession, route: Route) -> Balance:
    """Parse what is in quarantine; return where its rows are now."""
    try:
        job = prepare(session, route)
        return _Reparse(job, route).run()
    except Exception as error:
        raise failures.explain(error, doing=f"route {route.name}, reparse") from error


class _Reparse:
    def __init__(self, job: Job, route: Route) -> None:
        self._job = job
        self._session = job.session
        self._silver = Sink(job.session, route.settings.table, f"{job.silver.app_id}/reparse")
        self._quarantine = route.settings.quarantine

    def run(self) -> Balance:
        rows = self._session.read.format("delta").load(spark_path(self._quarantine)).where("replayed_at is null")
        raw = rows.select(*COORDINATES, "message_timestamp", "message_payload", *EXTRAS)
        if self._job.registry_url is not None:
            raw = raw.persist(WAITING)
        plan = with_registry(self._job.plan, raw, self._job.registry_url)
        found = duplicates.one_of_each(parsing.outcomes(raw, plan)).persist(WAITING)
        try:
            counted = count(found, times=plan.dedupe is not None)
            if not counted.rows:
                return Balance()
            balance = self._move(found, counted, plan)
            retry.on_conflict(lambda: self._settle(found, plan), doing=f"rewriting {self._quarantine}")
            return balance
        finally:
            found.unpersist()
            raw.unpersist()

    def _move(self, found: DataFrame, counted: Counted, plan: Plan) -> Balance:
        """Append to silver what parses now and is not there yet."""
        there = duplicates.seen(self._session, self._silver.table, "source_topic", counted.ranges)
        there = there.join(found.select(*COORDINATES), list(COORDINATES), "left_semi").persist()
        moved_before = there.count()
        self._there = there
        fresh = duplicates.without(found, there, moved_before)
        left = count(fresh, times=plan.dedupe is not None) if moved_before else counted
        doubles, number = None, 0
        if plan.dedupe is not None and left.valid and left.times is not None:
            doubles = duplicates.by_key(self._session, fresh, self._silver.table, plan, left.times).persist()
            number = doubles.count()
        if left.valid > number:
            rows = fresh if doubles is None else duplicates.without(fresh, doubles, number)
            txn = TableLog(self._session, self._silver.table).txn(self._silver.app_id)
            batch = 0 if txn is None else txn + 1
            appended = self._silver.append(parsing.silver_rows(rows, plan), batch, duplicates=number).rows
        else:
            appended = 0
        return Balance(
            raw=counted.rows,
            silver=appended + moved_before,
            quarantine=left.rejected,
            duplicates=number,
            tombstones=left.tombstones,
        )

    def _settle(self, found: DataFrame, plan: Plan) -> None:
        """Take out of quarantine what has gone elsewhere, and give what stays its present reason."""
        reason = F.col(REASON)
        told = found.select(
            *COORDINATES,
            F.when(reason != TOMBSTONE, reason).alias("reason"),
            parsing.error_class(plan, reason).alias("class"),
            parsing.error_message(plan, reason).alias("message"),
        )
        told = told.join(self._there.withColumn("moved", F.lit(True)), list(COORDINATES), "left")
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
        target = DeltaTable.forPath(self._session, spark_path(self._quarantine)).alias("q")
        merge = target.merge(told.alias("n"), f"{same} AND q.replayed_at IS NULL")
        merge = merge.whenMatchedDelete(condition="n.reason IS NULL OR n.moved")
        merge.whenMatchedUpdate(condition=changed, set=values).execute()  # type: ignore[arg-type]  # a dict of columns
