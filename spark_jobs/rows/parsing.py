"""Turns raw rows into outcomes, by Spark's own expressions: no Python runs per row.

`outcomes` gives each raw row a `reason`: null for a row for silver, TOMBSTONE for a row that is only counted, otherwise
quarantine's `error_reason`. It depends on the record and the plan only, not on the clock or other rows.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan.plan import CONTENT
from spark_jobs.rows import formats
from spark_jobs.rows.formats import FIELDS, own

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

COORDINATES = ("stream_topic", "stream_partition", "stream_offset")
EXTRAS = {
    "message_key": "BINARY",
    "message_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "message_timestamp_type": "STRING",
}
REASON = "__reason"
COB = "__cob"
HASH = "__content"
TOMBSTONE = formats.HEADER
_NO_PARTITION = ("", "__HIVE_DEFAULT_PARTITION__")  # these mean null in the name of a partition's folder
_DAY_MICROS = 86_400_000_000
_CLASSES = {
    "empty": "UndecodableRecord",
    "undecodable": "UndecodableRecord",
    "malformed": "MalformedRecord",
    "required": "MissingField",
    "cob_invalid": "InvalidDate",
    "cob_future": "InvalidDate",
    "rule": "RuleViolation",
}


def outcomes(raw: DataFrame, plan: Plan) -> DataFrame:
    """Return coordinates, time, reason and parsed fields; for rejected rows also everything that was captured."""
    scope = _in_scope(formats.decode(raw, plan), plan)
    wrong = dict(_wrong(plan))
    fails = {told: f"__fails_{at}" for at, told in enumerate(wrong)}
    judged = scope.withColumns({fails[told]: this for told, this in wrong.items()}) if wrong else scope
    judged = judged.withColumn(REASON, _reason(plan, fails))
    rejected = F.col(REASON).isNotNull() & (F.col(REASON) != TOMBSTONE)
    columns = [own(name).alias(name) for name in (*COORDINATES, "message_timestamp")]
    columns += [F.col(REASON), F.col(FIELDS)]
    if plan.cob_field is not None:
        columns.append(F.col(COB))
    if plan.by_content:
        columns.append(F.when(F.col(REASON).isNull(), F.sha2(own("message_payload"), 256)).alias(HASH))
    for name, kind in (("message_payload", "BINARY"), *EXTRAS.items()):
        there = F.when(rejected, own(name)) if name in raw.columns else F.lit(None).cast(kind)
        columns.append(there.alias(name))
    return judged.select(*columns)


def _in_scope(decoded: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows with the columns that expressions may name: the business date and the fields."""
    if plan.cob_field is not None:
        decoded = decoded.withColumn(COB, _cob_date(plan))
    if not plan.rules:
        return decoded
    named = [F.col(FIELDS)[field.name].alias(field.name) for field in plan.fields]
    named += [F.lit(plan.processing_version).alias("processing_version"), own("stream_topic").alias("source_topic")]
    named += [own(name).alias(name) for name in ("stream_partition", "stream_offset", "message_timestamp")]
    if plan.cob_column is not None:
        named.append(F.col(COB).alias(plan.cob_column))
    return decoded.select("*", *named)


def silver_rows(found: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows of silver, in its columns."""
    columns = [F.col(FIELDS)[field.name].alias(field.name) for field in plan.fields]
    columns += [F.lit(plan.processing_version).alias("processing_version"), F.col("stream_topic").alias("source_topic")]
    columns += [F.col(name) for name in ("stream_partition", "stream_offset", "message_timestamp")]
    if plan.cob_column is not None:
        columns.append(F.col(COB).alias(plan.cob_column))
    if plan.by_content:
        columns.append(F.col(HASH).alias(CONTENT))
    return found.where(F.col(REASON).isNull()).select(*columns)


def quarantine_rows(found: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows of quarantine, in its columns."""
    columns = [F.col(name) for name in (*COORDINATES, "message_timestamp", "message_payload", *EXTRAS)]
    columns += [
        F.col(REASON).alias("error_reason"),
        error_class(plan, F.col(REASON)).alias("error_class"),
        error_message(plan, F.col(REASON)).alias("error_message"),
        F.lit(plan.processing_version).alias("processing_version"),
        F.lit(None).cast("timestamp").alias("replayed_at"),
    ]
    return found.where(F.col(REASON).isNotNull() & (F.col(REASON) != TOMBSTONE)).select(*columns)


def error_class(plan: Plan, reason: Column) -> Column:
    """Return the class of the first reason."""
    return _looked_up({told: _CLASSES[told.partition(":")[0]] for told in _messages(plan)}, F.split(reason, ";")[0])


def error_message(plan: Plan, reason: Column) -> Column:
    """Return all reasons in words, without the record's content."""
    return F.array_join(F.transform(F.split(reason, ";"), lambda told: _looked_up(_messages(plan), told)), "; ")


def _looked_up(table: dict[str, str], key: Column) -> Column:
    pairs = [F.lit(text) for pair in table.items() for text in pair]
    return F.create_map(*pairs)[key]


def _messages(plan: Plan) -> dict[str, str]:
    known = {
        "empty": "the record has no bytes, or only blanks",
        "undecodable": f"no format fits ({', '.join(plan.formats)})",
        "malformed": "the record does not fit the schema",
    }
    for field in plan.fields:
        partition = " or can't be a partition's name" if field.name in plan.partition_texts else ""
        loss = f"field {field.name} does not convert to {field.type} without loss or doubt{partition}"
        known[f"malformed:{field.name}"] = loss
    known |= {f"required:{name}": f"field {name} is missing" for name in plan.required}
    if plan.cob_field is not None:
        known["cob_invalid"] = f"field {plan.cob_field} is no date (YYYY-MM-DD)"
        known["cob_future"] = f"field {plan.cob_field} lies after the date of the record's own timestamp"
    return known | {f"rule:{name}": f"rule {name} does not hold: {sql}" for name, sql in plan.rules}


def _cob_date(plan: Plan) -> Column:
    """Return the business date, null if there is none; text is strictly YYYY-MM-DD."""
    field = F.col(FIELDS)[plan.cob_field]
    kind = next(each.type for each in plan.fields if each.name == plan.cob_field)
    if kind != "STRING":
        return field.cast("date")
    # With ten bytes, these dashes and a digit at the end, Spark's cast accepts this form only. A regex costs more.
    dashes = (F.substring(field, 5, 1) == "-") & (F.substring(field, 8, 1) == "-")
    digit = F.substring(field, 10, 1).between("0", "9")
    return F.when((F.octet_length(field) == 10) & dashes & digit, field.try_cast("date"))  # noqa: PLR2004 - YYYY-MM-DD


def _reason(plan: Plan, fails: Mapping[str, str]) -> Column:
    """Return why a row is not for silver: why it could not be read, otherwise every check that it fails.

    `fails` maps each reason to the column that says whether it applies.
    """
    tombstone = F.lit(TOMBSTONE if plan.tombstones == "ignore" else "empty")
    unread = F.col(formats.UNREAD)
    reason = F.when(formats.is_tombstone(), tombstone).when(unread.isNotNull(), unread)
    # Join the reasons only where there are any; joining none costs more than this check.
    anything = functools.reduce(operator.or_, map(F.col, fails.values()), F.lit(False))
    return reason.when(anything, F.concat_ws(";", *(F.when(F.col(name), F.lit(told)) for told, name in fails.items())))


def _wrong(plan: Plan) -> Iterator[tuple[str, Column]]:
    """Yield each reason that a readable record may have, and whether it applies (never null)."""
    for name in plan.partition_texts:
        yield f"malformed:{name}", F.coalesce(F.col(FIELDS)[name].isin(*_NO_PARTITION), F.lit(False))
    for name in plan.required:
        yield f"required:{name}", _path(plan, name).isNull()
    if plan.cob_field is not None:
        invalid = F.col(COB).isNull()
        if plan.cob_field in plan.required:  # a missing field has one reason, not two
            invalid &= F.col(FIELDS)[plan.cob_field].isNotNull()
        yield "cob_invalid", invalid
        yield "cob_future", F.coalesce(F.unix_date(F.col(COB)) > _days(own("message_timestamp")), F.lit(False))
    for name, sql in plan.rules:
        yield f"rule:{name}", ~F.coalesce(F.expr(sql), F.lit(False))


def _days(timestamp: Column) -> Column:
    """Return a time's days since 1970 in UTC by arithmetic, since Spark's cast is slower: it uses a time zone."""
    micros, day = F.unix_micros(timestamp), F.lit(_DAY_MICROS)
    before_its_day_began = (micros % day < 0).cast("int")  # div rounds towards zero, also before 1970
    return F.call_function("div", micros, day) - before_its_day_began


def _path(plan: Plan, name: str) -> Column:
    if name in (field.name for field in plan.fields):
        return F.col(FIELDS)[name]
    first, *rest = name.split(".")
    column = F.col(FIELDS)[first]
    for part in rest:
        column = column[part]
    return column
