"""One batch of raw rows into silver and quarantine, exactly once each, whenever and however often it is tried.

Quarantine is written first, then silver, each with the batch's number as a txn in the same log entry. A try that finds
a write landed does not repeat it and takes its numbers from the log. What goes to quarantine follows from rows and plan
alone, so it does not matter that silver may have changed between two tries; which rows of silver are duplicates is
decided with silver as it is when it is written, where no row of this batch can be yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs import duplicates, parsing, registry
from spark_jobs.balance import Balance
from spark_jobs.duplicates import Range
from spark_jobs.parsing import REASON, TOMBSTONE
from spark_jobs.places import TableLog
from spark_jobs.tables import Landed, Sink

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.checkpoint import Checkpoint
    from spark_jobs.plan import Plan

WAITING = StorageLevel.MEMORY_AND_DISK_DESER  # PySpark's plain one compresses what is in memory too
_ROW = "__row"
_WORD_SHIFT, _WORD_MASK = 6, 63  # 64 offsets are the bits of one word
_REGISTRY_IDS_MAX = 1_000  # schemas of one batch; bytes that are no Avro must not become a million questions


@dataclass(frozen=True, slots=True)
class Job:
    """What a route's batches need."""

    session: SparkSession
    plan: Plan
    registry_url: str | None
    checkpoint: Checkpoint
    silver: Sink
    quarantine: Sink

    def process(self, raw: DataFrame, batch: int) -> Balance:
        """Bring a batch to its end; return where its rows went."""
        rejected, accepted = self.quarantine.landed(batch), self.silver.landed(batch)
        cached = raw.persist(WAITING) if self.plan.registry else raw
        if rejected is None and accepted is None:
            plan = with_registry(self.plan, cached, self.registry_url)
            self.checkpoint.keep_plan(batch, plan)
        else:
            plan = self.checkpoint.kept_plan(batch)
        # One column of whole rows: a cache of a dozen columns costs as much as half of the parsing.
        kept = parsing.outcomes(cached, plan).select(F.struct("*").alias(_ROW)).persist(WAITING)
        found = kept.select(f"{_ROW}.*")
        try:
            counted = count(found, times=plan.dedupe is not None)
            if rejected is None or accepted is None:
                rejected, accepted = self._write(found, counted, plan, batch, (rejected, accepted))
        finally:
            kept.unpersist()
            cached.unpersist()
        return Balance(
            raw=counted.rows,
            silver=accepted.rows,
            quarantine=rejected.rows,
            duplicates=rejected.duplicates + accepted.duplicates,
            tombstones=counted.tombstones,
        )

    def _write(
        self, found: DataFrame, counted: Counted, plan: Plan, batch: int, landed: tuple[Landed | None, Landed | None]
    ) -> tuple[Landed, Landed]:
        """Write what has not landed yet."""
        rejected, accepted = landed
        fresh, left = self._fresh(found, counted, times=plan.dedupe is not None)
        if rejected is None:
            again = counted.rejected - left.rejected
            rows = parsing.quarantine_rows(fresh, plan)
            rejected = self.quarantine.append(rows, batch, duplicates=again) if left.rejected else Landed(0, again)
        if accepted is None:
            accepted = self._accept(fresh, counted, left, plan, batch)
        return rejected, accepted

    def _accept(self, fresh: DataFrame, counted: Counted, left: Counted, plan: Plan, batch: int) -> Landed:
        again = counted.valid - left.valid
        if plan.dedupe is None or not left.valid or left.times is None:
            rows = parsing.silver_rows(fresh, plan)
            return self.silver.append(rows, batch, duplicates=again) if left.valid else Landed(0, again)
        doubles = duplicates.by_key(self.session, fresh, self.silver.table, plan, left.times).persist()
        try:
            number = doubles.count()
            rows = parsing.silver_rows(duplicates.without(fresh, doubles, number), plan)
            if number == left.valid:
                return Landed(0, again + number)
            return self.silver.append(rows, batch, duplicates=again + number)
        finally:
            doubles.unpersist()

    def _fresh(self, found: DataFrame, counted: Counted, *, times: bool) -> tuple[DataFrame, Counted]:
        """Return the rows whose coordinates are new, and count them again if some are not."""
        fresh = found
        if counted.distinct < counted.rows:
            fresh = duplicates.one_of_each(fresh)
        for table, topic in ((self.silver.table, "source_topic"), (self.quarantine.table, "stream_topic")):
            if TableLog(self.session, table).version > 0:  # else nothing was ever written there
                taken = duplicates.seen(self.session, table, topic, counted.ranges)
                if not taken.isEmpty():
                    fresh = duplicates.without(fresh, taken.distinct(), taken.count())
        return (fresh, counted) if fresh is found else (fresh, count(fresh, times=times))


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
    times: tuple[datetime, datetime] | None  # of valid rows; None if nobody asked, or none has one


def count(found: DataFrame, *, times: bool) -> Counted:
    """Count outcomes, and if asked for find the first and last time of valid ones.

    Distinct offsets are bits of words, one per 64 offsets: no rows are shuffled, none are sorted. Spark's own bitmaps
    are buffers that only a sorting aggregate can hold; a word fits into a hash table.
    """
    valid, tombstone = F.col(REASON).isNull(), F.coalesce(F.col(REASON) == TOMBSTONE, F.lit(False))
    word, bit = F.expr(f"stream_offset >> {_WORD_SHIFT}"), F.expr(f"1L << cast(stream_offset & {_WORD_MASK} AS INT)")
    at = F.col("message_timestamp") if times else F.lit(None).cast("timestamp")
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
        times=(min(since), max(until)) if since else None,
    )
