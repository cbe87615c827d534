"""Which valid rows are duplicates: of a row that silver has, or of an earlier one of the same batch.

Coordinates first: raw has each once, unless somebody else writes it, or `reset` lets it be read again. Then the key:
of rows with one key, silver's win; then, in the order of (message_timestamp, stream_partition, stream_offset), a row is
kept if no kept one lies within the window before it. That is a walk, not a comparison with the neighbour: of three rows
at 0, 20 and 40 hours and a window of 24, the third is kept, for the second is not. So rows that come in order have the
same fate however they were cut into batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.formats import FIELDS
from spark_jobs.parsing import COORDINATES, HASH, REASON
from spark_jobs.places import spark_path
from spark_jobs.plan import CONTENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_jobs.plan import Plan

_RANGES_MAX = 100  # as conditions, which let Delta skip files; more of them are joined
_BROADCAST_ROWS_MAX = 1_000_000


class Range(NamedTuple):
    """The offsets that a batch has of one partition."""

    topic: str
    partition: int
    first: int
    last: int


def seen(session: SparkSession, table: str, topic_column: str, ranges: Sequence[Range]) -> DataFrame:
    """Return the coordinates in a table that lie in the ranges."""
    rows = session.read.format("delta").load(spark_path(table))
    columns = [F.col(topic_column).alias("stream_topic"), F.col("stream_partition"), F.col("stream_offset")]
    rows = rows.select(*columns)
    if len(ranges) <= _RANGES_MAX:
        within = F.lit(False)
        for each in ranges:
            here = (F.col("stream_topic") == each.topic) & (F.col("stream_partition") == each.partition)
            within |= here & F.col("stream_offset").between(each.first, each.last)
        return rows.where(within)
    lowest, highest = min(each.first for each in ranges), max(each.last for each in ranges)
    bounds = session.createDataFrame(list(ranges), "stream_topic string, stream_partition int, first long, last long")
    found = rows.where(F.col("stream_offset").between(lowest, highest))
    found = found.join(F.broadcast(bounds), ["stream_topic", "stream_partition"])
    return found.where(F.col("stream_offset").between(F.col("first"), F.col("last"))).select(*COORDINATES)


def one_of_each(rows: DataFrame) -> DataFrame:
    """Return rows without those that share their coordinates with another one."""
    numbered = rows.withColumn("__at", F.monotonically_increasing_id())
    order = F.struct(F.col("message_timestamp"), F.hash(F.to_json(FIELDS)), F.col("__at"))
    first = numbered.groupBy(*COORDINATES).agg(F.min_by("__at", order).alias("__at"))
    return numbered.join(first.select("__at"), "__at", "left_semi").drop("__at")


def without(rows: DataFrame, coordinates: DataFrame, count: int) -> DataFrame:
    """Return rows whose coordinates are not among these."""
    if not count:
        return rows
    others = F.broadcast(coordinates) if count <= _BROADCAST_ROWS_MAX else coordinates
    return rows.join(others, list(COORDINATES), "left_anti")


def by_key(
    session: SparkSession, found: DataFrame, silver: str, plan: Plan, times: tuple[datetime, datetime]
) -> DataFrame:
    """Return the coordinates of valid rows that are duplicates by key; `times`: the batch's first and last."""
    assert plan.dedupe is not None  # noqa: S101 - the caller asks only then
    keyed = found.where(F.col(REASON).isNull()).select(*COORDINATES, "message_timestamp", _key(plan).alias("__key"))
    keyed = keyed.where(F.col("__key").isNotNull() & F.col("message_timestamp").isNotNull())
    kept = _kept(session, silver, plan, times)
    within = F.expr(f"INTERVAL {plan.dedupe.within_seconds} SECONDS")
    mine, theirs = F.col("message_timestamp"), F.col("__there")
    near = (F.col("__key") == F.col("__their_key")) & theirs.between(mine - within, mine + within)
    of_silver = keyed.join(kept, near, "left_semi")
    fresh = keyed.join(kept, near, "left_anti")
    return of_silver.select(*COORDINATES).unionByName(_within_batch(fresh, plan.dedupe.within_seconds))


def _kept(session: SparkSession, silver: str, plan: Plan, times: tuple[datetime, datetime]) -> DataFrame:
    """Return key and time of silver's rows around the batch's times."""
    assert plan.dedupe is not None  # noqa: S101 - the caller asks only then
    within = F.expr(f"INTERVAL {plan.dedupe.within_seconds} SECONDS")
    rows = session.read.format("delta").load(spark_path(silver))
    first, last = (F.lit(moment).cast("timestamp") for moment in times)
    rows = rows.where(F.col("message_timestamp").between(first - within, last + within))
    return rows.select(_silver_key(plan).alias("__their_key"), F.col("message_timestamp").alias("__there"))


def _within_batch(fresh: DataFrame, within_seconds: int) -> DataFrame:
    """Walk through each key's rows in order; return those that lie within the window after a kept one."""
    at = F.struct("message_timestamp", "stream_partition", "stream_offset", "stream_topic")
    groups = fresh.groupBy("__key").agg(F.sort_array(F.collect_list(at)).alias("__rows"))
    groups = groups.where(F.size("__rows") > 1)
    micros = within_seconds * 1_000_000
    # Gathers the kept rows, not the others: of a key that comes a million times in a day there is one.
    others = F.expr(
        f"""array_except(__rows, aggregate(__rows,
            named_struct('last', unix_micros(__rows[0].message_timestamp), 'kept', slice(__rows, 1, 1)),
            (state, row) -> if(unix_micros(row.message_timestamp) - state.last > {micros}L,
                named_struct('last', unix_micros(row.message_timestamp), 'kept', concat(state.kept, array(row))),
                state),
            state -> state.kept))"""
    )
    rows = groups.select(F.explode(others).alias("__row"))
    return rows.select(*(F.col("__row")[name].alias(name) for name in COORDINATES))


def _key(plan: Plan) -> Column:
    assert plan.dedupe is not None  # noqa: S101 - the caller asks only then
    if plan.by_content:
        return F.col(HASH)
    return _combined([F.col(FIELDS)[name] for name in plan.dedupe.by])


def _silver_key(plan: Plan) -> Column:
    assert plan.dedupe is not None  # noqa: S101 - the caller asks only then
    return F.col(CONTENT) if plan.by_content else _combined([F.col(name) for name in plan.dedupe.by])


def _combined(columns: list[Column]) -> Column:
    """Return several fields as one value; null if any of them is."""
    whole = F.to_json(F.struct(*(column.cast("string").alias(f"k{at}") for at, column in enumerate(columns))))
    missing = columns[0].isNull()
    for column in columns[1:]:
        missing |= column.isNull()
    return F.when(~missing, whole)
