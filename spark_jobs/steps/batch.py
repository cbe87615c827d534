"""One batch of raw rows into silver and quarantine, exactly once each, whenever and however often it is tried.

Quarantine is written first, then silver, each with the step's number as a txn in the same log entry. A try that finds
a write landed does not repeat it and takes its numbers from the log. Rows and plan are those of the step's claim, so
what goes to quarantine is the same in each try; which rows are duplicates is decided with silver as it is before the
step's commit, and between a claim and its commit nothing else of the route is written there.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.rows import duplicates, parsing
from spark_jobs.rows.balance import Balance
from spark_jobs.rows.duplicates import Range, Times
from spark_jobs.rows.parsing import REASON, TOMBSTONE
from spark_jobs.runtime import registry
from spark_jobs.runtime.places import TableLog
from spark_jobs.steps.steps import Superseded
from spark_jobs.steps.tables import Landed, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.plan.plan import Plan
    from spark_jobs.steps.raw import Raw
    from spark_jobs.steps.steps import Step

WAITING = StorageLevel.MEMORY_AND_DISK_DESER  # PySpark's plain one compresses what is in memory too
ROW = "__row"
_WORD_SHIFT, _WORD_MASK = 6, 63  # 64 offsets are the bits of one word
_REGISTRY_IDS_MAX = 1_000  # schemas of one batch; bytes that are no Avro must not become a million questions


@dataclass(frozen=True, slots=True)
class Job:
    """What a route's steps need."""

    session: SparkSession
    plan: Plan  # by the present configuration
    registry_url: str | None
    raw: Raw
    silver: Sink
    quarantine: Sink

    def process(self, step: Step) -> Balance:
        """Bring a batch to its end; return where its rows went."""
        plan, batch = step.plan, step.batch
        assert plan is not None  # noqa: S101 - each claim of a batch has both
        assert batch is not None  # noqa: S101 - same
        if not batch.files:
            return Balance()
        kept = keep(parsing.outcomes(self.raw.rows(batch), plan))
        found = kept.select(f"{ROW}.*")
        try:
            counted = count(found, times=plan.dedupe is not None)
            rejected, accepted = self._write(found, counted, plan, step)
        finally:
            kept.unpersist()
        if rejected.void or accepted.void:
            raise Superseded(f"step {step.number}")
        return Balance(
            raw=counted.rows,
            silver=accepted.rows,
            quarantine=rejected.rows,
            duplicates=rejected.duplicates + accepted.duplicates,
            tombstones=counted.tombstones,
        )

    def _write(self, found: DataFrame, counted: Counted, plan: Plan, step: Step) -> tuple[Landed, Landed]:
        """Write what has not landed yet.

        Whether there is a commit in a table follows from the claim alone, also where all rows are known there already:
        so it can be told from the tables whether a step is over.
        """
        silver = TableLog(self.session, self.silver.table)
        silver_version = silver.version  # before it is known whether the step is in it
        rejected = self.quarantine.landed(step) if counted.rejected else Landed()
        accepted = self.silver.landed(step) if counted.valid else Landed()
        if rejected is not None and accepted is not None:
            return rejected, accepted
        silver_rows = silver.at(silver_version)
        fresh, left = self._fresh(found, counted, silver_rows, times=plan.dedupe is not None)
        if rejected is None:
            again = counted.rejected - left.rejected
            rejected = self.quarantine.append(parsing.quarantine_rows(fresh, plan), step, duplicates=again)
        if accepted is None and not rejected.void:
            again = counted.valid - left.valid
            accepted = add_to_silver(self.silver, fresh, silver_rows, plan, left, step, again)
        return rejected, accepted or Landed()

    def _fresh(
        self, found: DataFrame, counted: Counted, silver: DataFrame, *, times: bool
    ) -> tuple[DataFrame, Counted]:
        """Return the rows whose coordinates are new, and count them again if some are not."""
        fresh = found
        if counted.distinct < counted.rows:
            fresh = duplicates.one_of_each(fresh)
        quarantine = TableLog(self.session, self.quarantine.table)
        for rows, topic in ((silver, "source_topic"), (quarantine.at(quarantine.version), "stream_topic")):
            taken = duplicates.seen(rows, topic, counted.ranges)
            if not taken.isEmpty():
                fresh = duplicates.without(fresh, taken.distinct(), taken.count())
        return (fresh, counted) if fresh is found else (fresh, count(fresh, times=times))


def keep(outcomes: DataFrame) -> DataFrame:
    """Return outcomes as one column of whole rows, which Spark keeps: a dozen columns cost half as much as the parsing.

    Spark finds what it keeps by its plan, and another run in this session may have the same one. That run must not
    throw away what this one still needs: all would be parsed again, in a plan that takes Spark minutes to optimize. So
    each has a mark of its own.
    """
    return outcomes.select(F.struct("*").alias(ROW), F.lit(uuid.uuid4().hex).alias("__mark")).persist(WAITING)


def add_to_silver(
    sink: Sink, fresh: DataFrame, silver: DataFrame, plan: Plan, left: Counted, step: Step, again: int
) -> Landed:
    """Append valid rows that are new to silver, less those that are duplicates by their key."""
    if plan.dedupe is None or left.times is None:
        return sink.append(parsing.silver_rows(fresh, plan), step, duplicates=again)
    doubles = duplicates.by_key(fresh, silver, plan, left.times).persist()
    try:
        number = doubles.count()
        rows = parsing.silver_rows(duplicates.without(fresh, doubles, number), plan)
        return sink.append(rows, step, duplicates=again + number)
    finally:
        doubles.unpersist()


def with_registry(plan: Plan, raw: DataFrame, url: str | None) -> Plan:
    """Return the plan with the schemas whose ids stand in front of the rows."""
    if url is None:
        return plan
    payload = F.col("message_payload")
    wrapped = raw.where((F.substring(payload, 1, 1) == F.unhex(F.lit("00"))) & (F.octet_length(payload) > 4))  # noqa: PLR2004 - magic byte and id
    number = F.conv(F.hex(F.substring(payload, 2, 4)), 16, 10).cast("bigint").alias("id")
    ids = wrapped.select(number).distinct().orderBy("id").limit(_REGISTRY_IDS_MAX).collect()
    return plan.with_writers(registry.writers(url, [row["id"] for row in ids]))


@dataclass(frozen=True, slots=True)
class Counted:
    """What a batch holds, counted in one pass over its outcomes."""

    rows: int
    distinct: int
    valid: int
    rejected: int
    tombstones: int
    ranges: tuple[Range, ...]
    times: Times | None  # of valid rows; None if nobody asked, or none has one


def count(found: DataFrame, *, times: bool) -> Counted:
    """Count outcomes, and if asked for find the first and last time of valid ones.

    Distinct offsets are bits of words, one per 64 offsets: no rows are shuffled, none are sorted. Spark's own bitmaps
    are buffers that only a sorting aggregate can hold; a word fits into a hash table.
    """
    valid, tombstone = F.col(REASON).isNull(), F.coalesce(F.col(REASON) == TOMBSTONE, F.lit(False))
    word, bit = F.expr(f"stream_offset >> {_WORD_SHIFT}"), F.expr(f"1L << cast(stream_offset & {_WORD_MASK} AS INT)")
    at = F.unix_micros("message_timestamp") if times else F.lit(None).cast("bigint")
    counted = found.groupBy("stream_topic", "stream_partition", word.alias("__word")).agg(
        F.count("*").alias("rows"),
        F.bit_count(F.bit_or(bit)).alias("distinct"),
        F.count_if(valid).alias("valid"),
        F.count_if(tombstone).alias("tombstones"),
        F.min("stream_offset").alias("first"),
        F.max("stream_offset").alias("last"),
        F.min(F.when(valid, at)).alias("since"),
        F.max(F.when(valid, at)).alias("until"),
    )
    parts = (
        counted.groupBy("stream_topic", "stream_partition")
        .agg(
            *(F.sum(name).alias(name) for name in ("rows", "distinct", "valid", "tombstones")),
            *(F.min(name).alias(name) for name in ("first", "since")),
            *(F.max(name).alias(name) for name in ("last", "until")),
        )
        .collect()  # one row per partition of a topic
    )
    rows, valid_rows, tombstones = (sum(part[name] for part in parts) for name in ("rows", "valid", "tombstones"))
    since = [part["since"] for part in parts if part["since"] is not None]
    until = [part["until"] for part in parts if part["until"] is not None]
    return Counted(
        rows=rows,
        distinct=sum(part["distinct"] for part in parts),
        valid=valid_rows,
        rejected=rows - valid_rows - tombstones,
        tombstones=tombstones,
        ranges=tuple(Range(p["stream_topic"], p["stream_partition"], p["first"], p["last"]) for p in parts),
        times=Times(min(since), max(until)) if since else None,
    )
