"""Detects a record's format and reads its fields: JSON, CSV, and Avro in three framings.

JSON is detected by its first character, framed Avro by its magic bytes. Anything else is plain Avro if it is a record
of the schema to its last byte, otherwise CSV if it is one line with the configured columns, otherwise undecodable.
An exact fit wins; a record with two readings is not guessed (docs/values.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan import ddl
from spark_jobs.rows import avro_records, csv_records, json_records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

FIELDS = "__fields"  # the record as a struct of the schema's fields; null if it could not be read
UNREAD = "__unread"  # why the record could not be read completely; null if it could
HEADER = "tombstone"  # the reason of an expected CSV header: counted and ignored
_TEXT = "__message_payload"  # cast to text, which Spark does without checking that the bytes are UTF-8
_FORMAT = "__format"
_BOM = b"\xef\xbb\xbf"
_BLANKS = " \t\r\n"
_BLANK_BYTES_MAX = 64  # longer payloads are not checked for being all blank, which would cost time


def own(name: str) -> Column:
    """Return a raw column, which is renamed here since a field may have its name."""
    return F.col(_TEXT).cast("binary") if name == "message_payload" else F.col(f"__{name}")


def is_tombstone() -> Column:
    """Return whether a record has no payload, without copying it."""
    return F.col(_TEXT).isNull()


def decode(raw: DataFrame, plan: Plan) -> DataFrame:
    """Return the raw columns (see `own`) with FIELDS and UNREAD."""
    carried = [F.col(name).alias(f"__{name}") for name in raw.columns if name != "message_payload"]
    rows = raw.select(*carried, F.col("message_payload").cast("string").alias(_TEXT))
    rows = rows.withColumn(_FORMAT, _detected(plan))
    kind, nothing = F.col(_FORMAT), F.lit("malformed" if len(plan.formats) == 1 else "undecodable")
    unread = F.when(kind == "empty", F.lit("empty")).when(kind == "broken", F.lit("malformed"))
    fields = F.when(F.lit(False), _no_fields(plan))
    is_plain = F.lit(False)
    if "json" in plan.formats:
        rows, json = json_records.read(rows, plan, F.when(kind == "json", _without_bom()))
        unread, fields = unread.when(kind == "json", json.fault), fields.when(kind == "json", json.fields)
    if "avro" in plan.formats:
        rows, avro = avro_records.read(rows, plan, own("message_payload"), kind)
        wrapped, is_plain = kind.isin("single", "registry"), (kind == "other") & avro.fits
        rows = rows.withColumn("__is_plain", is_plain)
        is_plain = F.col("__is_plain")
        unread = unread.when(wrapped & ~avro.fits, F.lit("malformed")).when(is_plain & avro.ambiguous, nothing)
        unread = unread.when(wrapped | is_plain, avro.fault)
        fields = fields.when(wrapped | is_plain, avro.fields)
    if "csv" in plan.formats:
        candidate = F.when((kind == "other") & ~is_plain & F.is_valid_utf8(F.col(_TEXT)), _without_bom())
        rows, csv = csv_records.read(rows, plan, candidate)
        unread = unread.when(csv.header, F.lit(HEADER)).when(csv.fits, csv.fault)
        fields = fields.when(csv.fits, csv.fields)
    rows = rows.withColumn(UNREAD, unread.when(kind == "other", nothing))
    told = F.coalesce(F.col(UNREAD), F.lit("malformed:"))
    return rows.withColumn(FIELDS, F.when(F.startswith(told, F.lit("malformed:")), fields))


def _no_fields(plan: Plan) -> Column:
    return F.lit(None).cast(f"STRUCT<{ddl.render(plan.fields)}>")


def _without_bom() -> Column:
    text = F.col(_TEXT)
    marked = F.startswith(text.cast("binary"), F.lit(_BOM))
    return F.when(marked, F.substring(text, F.lit(2), F.length(text))).otherwise(text)


def _detected(plan: Plan) -> Column:
    """Return json, broken (JSON that is not UTF-8), single, registry, other, empty; null for a tombstone."""
    payload, text = own("message_payload"), _without_bom()
    kind = F.when(payload.isNull(), F.lit(None).cast("string"))
    blank = F.octet_length(payload) == 0
    if plan.formats != ("avro",):
        blank |= (F.octet_length(payload) < _BLANK_BYTES_MAX) & (F.trim(text, F.lit(_BLANKS)) == "")
    json = F.when(F.is_valid_utf8(F.col(_TEXT)), F.lit("json")).otherwise(F.lit("broken"))
    if plan.formats == ("json",):
        return kind.when(blank, F.lit("empty")).otherwise(json)
    if "json" in plan.formats:
        first = F.substring(text, 1, 1)
        later = F.substring(F.ltrim(text, F.lit(_BLANKS)), 1, 1)
        kind = kind.when(first.isin("{", "["), json)
        kind = kind.when(first.isin(*_BLANKS) & later.isin("{", "["), json)
    kind = kind.when(blank, F.lit("empty"))
    if "avro" in plan.formats:
        kind = kind.when(avro_records.is_single_object(payload), F.lit("single"))
        if plan.registry:
            kind = kind.when(avro_records.is_framed(payload), F.lit("registry"))
    return kind.otherwise(F.lit("other"))
