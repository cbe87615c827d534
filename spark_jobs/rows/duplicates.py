"""Finds valid rows that are duplicates of a row in silver or of an earlier row in the same batch.

First by coordinates: raw has each once, unless another program writes to it or `reset` lets rows be read again. Then by
key: rows in silver win. In the order of (message_timestamp, stream_partition, stream_offset), a row is kept if no kept
row with its key is within the window before it. Rows are not compared with their neighbours: of three rows at 0, 20 and
40 hours with a window of 24 hours, the third is kept because the second is not. So the result does not depend on how
rows that arrive in order are split into batches.

Tables are passed as rows of one version, so that reading them twice gives the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan.plan import CONTENT
from spark_jobs.rows.formats import FIELDS
from spark_jobs.rows.parsing import COORDINATES, HASH, REASON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

_RANGES_MAX = 100  # ranges as conditions, which let Delta skip files; more of them are joined
_BROADCAST_ROWS_MAX = 1_000_000
_MICROS = 1_000_000
_LONG_MAX = (1 << 63) - 1
_WINDOW_MAX = 1 << 60  # 36,000 years: sums with it do not overflow unnoticed


class Times(NamedTuple):
    """The first and last time of a batch's valid rows, in microseconds, since Python's datetime ends in 9999."""

    first: int
    last: int


class Range(NamedTuple):
    """A batch's offsets of one partition."""

    topic: str
    partition: int
    first: int
    last: int


def within(rows: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """Return the rows whose coordinates are in the ranges."""
    if len(ranges) <= _RANGES_MAX:
        inside = F.lit(False)
        for each in ranges:
            here = (F.col("stream_topic") == each.topic) & (F.col("stream_partition") == each.partition)
            inside |= here & F.col("stream_offset").between(each.first, each.last)
        return rows.where(inside)
    lowest, highest = min(each.first for each in ranges), max(each.last for each in ranges)
    bounds = rows.sparkSession.createDataFrame(
        list(ranges), "stream_topic string, stream_partition int, __first long, __last long"
    )
    found = rows.where(F.col("stream_offset").between(lowest, highest))
    found = found.join(F.broadcast(bounds), ["stream_topic", "stream_partition"])
    return found.where(F.col("stream_offset").between(F.col("__first"), F.col("__last"))).select(*rows.columns)


def seen(rows: DataFrame, topic_column: str, ranges: Sequence[Range]) -> DataFrame:
    """Return the coordinates of a table's rows in the ranges."""
    columns = [F.col(topic_column).alias("stream_topic"), F.col("stream_partition"), F.col("stream_offset")]
    return within(rows.select(*columns), ranges)


def one_of_each(rows: DataFrame) -> DataFrame:
    """Return one row for each set of equal coordinates."""
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


def by_key(fresh: DataFrame, silver: DataFrame, plan: Plan, times: Times) -> DataFrame:
    """Return the coordinates of valid rows with the key of a silver row or of an earlier row within the window.

    A row without a time is in no window and so is never a duplicate.
    """
    assert plan.dedupe is not None  # noqa: S101 - ensured by the caller
    window = min(plan.dedupe.within_seconds * _MICROS, _WINDOW_MAX)
    valid = fresh.where(F.col(REASON).isNull() & F.col("message_timestamp").isNotNull())
    keyed = valid.select(*COORDINATES, _micros().alias("__at"), _key(plan).alias("__key"))
    keyed = keyed.where(F.col("__key").isNotNull())
    bounds = (F.timestamp_micros(F.lit(_held(each))) for each in (times.first - window, times.last + window))
    kept = silver.where(F.col("message_timestamp").between(*bounds))
    kept = kept.select(_silver_key(plan).alias("__their_key"), _micros().alias("__there"))
    of_silver = _near(keyed, kept, window)
    return of_silver.unionByName(_within_batch(keyed.join(of_silver, list(COORDINATES), "left_anti"), window))


def _near(keyed: DataFrame, kept: DataFrame, window: int) -> DataFrame:
    """Return the coordinates of rows that have a row with the same key among the others within the window.

    Joined by key and by time stretches as long as the window, so that rows of a frequent key meet only a few others.
    """
    stretch = F.lit(max(window, 1))
    mine, theirs = (F.call_function("div", F.col(name), stretch) for name in ("__at", "__there"))
    asking = keyed.withColumn("__stretch", F.explode(F.array(mine - 1, mine, mine + 1)))
    there = kept.withColumn("__their_stretch", theirs)
    # The difference of two times in the same or neighbouring stretches does not overflow a long.
    near = F.abs(F.col("__at") - F.col("__there")) <= window
    same = (F.col("__key") == F.col("__their_key")) & (F.col("__stretch") == F.col("__their_stretch"))
    return asking.join(there, same & near, "left_semi").select(*COORDINATES).distinct()


def _within_batch(fresh: DataFrame, window: int) -> DataFrame:
    """Walk through each key's rows in order; return those within the window after a kept one.

    The rows are split into as many pieces as a piece has rows: the kept ones are copied once per piece, not per row.
    """
    at = F.struct("__at", "stream_partition", "stream_offset", "stream_topic")
    groups = fresh.groupBy("__key").agg(F.sort_array(F.collect_list(at)).alias("__rows"))
    groups = groups.where(F.size("__rows") > 1).withColumn("__piece", F.expr("cast(ceil(sqrt(size(__rows))) AS INT)"))
    none = "cast(array() AS ARRAY<INT>)"
    late = f"state.last <= {_LONG_MAX - window}L AND __rows[at].__at > state.last + {window}L"
    kept = f"""aggregate(sequence(0, (size(__rows) - 1) div __piece),
        named_struct('last', cast(null AS BIGINT), 'here', {none}, 'kept', {none}),
        (whole, piece) -> aggregate(
            sequence(cast(piece * __piece AS INT), cast(least(size(__rows), (piece + 1) * __piece) - 1 AS INT)), whole,
            (state, at) -> if(state.last IS NULL OR ({late}),
                named_struct('last', __rows[at].__at, 'here', concat(state.here, array(at)), 'kept', state.kept),
                state),
            state -> named_struct('last', state.last, 'here', {none}, 'kept', concat(state.kept, state.here))),
        whole -> whole.kept)"""
    others = groups.select("__rows", F.expr(f"array_except(sequence(0, size(__rows) - 1), {kept})").alias("__others"))
    rows = others.select(F.explode(F.expr("transform(__others, at -> __rows[at])")).alias("__row"))
    return rows.select(*(F.col("__row")[name].alias(name) for name in COORDINATES))


def _micros() -> Column:
    return F.unix_micros("message_timestamp")


def _held(micros: int) -> int:
    """Return a time limited to the range of a long."""
    return max(-_LONG_MAX, min(micros, _LONG_MAX))


def _key(plan: Plan) -> Column:
    assert plan.dedupe is not None  # noqa: S101 - the caller asks only then
    if plan.by_content:
        return F.col(HASH)
    return _combined([F.col(FIELDS)[name] for name in plan.dedupe.by])


def _silver_key(plan: Plan) -> Column:
    assert plan.dedupe is not None  # noqa: S101 - the caller asks only then
    return F.col(CONTENT) if plan.by_content else _combined([F.col(name) for name in plan.dedupe.by])


def _combined(columns: list[Column]) -> Column:
    """Return several fields as one struct, null if any of them is null.

    Not as text, in which different bytes that are not UTF-8 would become equal. Spark compares structs as it does
    columns: NaN equals NaN, and -0.0 equals 0.0.
    """
    whole = F.struct(*(column.alias(f"k{at}") for at, column in enumerate(columns)))
    missing = columns[0].isNull()
    for column in columns[1:]:
        missing |= column.isNull()
    return F.when(~missing, whole)
