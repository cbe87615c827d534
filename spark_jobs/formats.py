"""Which format a record is in, and what its fields are: JSON, CSV, and Avro in three wrappings.

Spark's own readers are kinder than a table of facts can afford: JSON's stops at the record's last bracket whatever
comes after, Avro's where the schema ends, CSV's at the first line. Each is asked in a way that shows what was left:

- JSON whose only `}` is its last byte can't have ended before, and is read as it is. Any other is read as the one
  element of an array: more than one element, or text after it, shows. Only a record with a `]` of its own could close
  that array early, so such a record is read once more before a mark that it can't contain.
- Avro is read with sixteen bytes after it that must come out again (`avro.with_end`).
- CSV has no line end: a second line makes one field too many.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.avro.functions import from_avro

from spark_jobs import avro, ddl

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan import Plan

FIELDS = "__fields"  # the record as a struct of the schema's fields, and behind them a place for what is corrupt
UNREAD = "__unread"  # why it could not be read; null if it could
_TEXT = "__message_payload"  # called text: Spark asks nobody whether the bytes are that
_FORMAT = "__format"
_OBJECT = "__object"
_JSON = "__json"
_CSV = "__csv"
_AVRO = "__avro"
_CORRUPT = "__corrupt"
_BLANKS = " \\t\\r\\n\\f"
_SINGLE_OBJECT = "C301"
_SINGLE_HEAD_BYTES = 10
_REGISTRY_HEAD_BYTES = 5
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def own(name: str) -> Column:
    """Return a raw column; it steps aside here for fields that may be called the same."""
    return F.col(_TEXT).cast("binary") if name == "message_payload" else F.col(f"__{name}")


def is_tombstone() -> Column:
    """Tell whether a record has no payload; to ask for the payload itself would copy it."""
    return F.col(_TEXT).isNull()


def decode(raw: DataFrame, plan: Plan) -> DataFrame:
    """Return the raw columns (see `own`) with FIELDS and UNREAD."""
    carried = [F.col(name).alias(f"__{name}") for name in raw.columns if name != "message_payload"]
    rows = raw.select(*carried, F.col("message_payload").cast("string").alias(_TEXT))
    rows = rows.withColumn(_FORMAT, _detected(plan)).withColumns(_taken_by_text_readers())
    if "json" in plan.formats:
        rows = rows.withColumns({_OBJECT: _object(plan), _JSON: _json(plan)})
    if "csv" in plan.formats:
        rows = rows.withColumn(_CSV, _csv(plan))
    if "avro" in plan.formats:
        rows = _with_avro(rows, plan)
    kind = F.col(_FORMAT)
    fits, value = F.lit(False), F.lit(None).cast(f"STRUCT<{_with_corrupt(plan.fields)}>")
    for this, fit, found in reversed(_readings(plan)):  # what is tested first comes last
        fits = F.when(this, fit).otherwise(fits)
        value = F.when(this, found).otherwise(value)
    rows = rows.withColumn("__fits", fits)
    detected = len(plan.formats) > 1
    unfit = F.when(kind.isin("plain", "none"), F.lit("undecodable" if detected else "malformed"))
    unread = (
        F.when(kind == "empty", F.lit("empty"))
        .when(F.coalesce(F.col("__fits"), F.lit(False)), F.lit(None))
        .otherwise(F.coalesce(unfit, F.lit("malformed")))
    )
    return rows.withColumn(UNREAD, unread).withColumn(FIELDS, F.when(F.col(UNREAD).isNull(), value))


def _taken_by_text_readers() -> dict[str, Column]:
    """Return for each of Spark's readers of text whether it gets the record.

    `from_json` is interpreted for each row, and so is all that stands in its argument: there a column of true and
    false and the text itself are much quicker than a comparison and a cast.
    """
    kind = F.col(_FORMAT)
    gets = {"object": kind == "object", "json": kind == "json", "csv": (kind == "csv") & F.is_valid_utf8(F.col(_TEXT))}
    return {f"__is_{name}": F.coalesce(this, F.lit(False)) for name, this in gets.items()}


def _is(name: str) -> Column:
    return F.col(f"__is_{name}")


def _readings(plan: Plan) -> list[tuple[Column, Column, Column]]:
    """Return for each format, or several that are read alike: whether it is this one, whether it fits, its fields.

    Each branch makes the code of Spark's stage longer, and the JVM only interprets what is longer than 8,000 bytes.
    An object's fields are passed on as Spark read them, in one piece: taken apart they would be written twice.
    """
    found: list[tuple[Column, Column, Column]] = []
    if "json" in plan.formats:
        found.append((_is("object"), _taken(_OBJECT), F.col(_OBJECT)))
        found.append((_is("json"), _whole_json(), F.col(_JSON)["r"][0]))
    if "csv" in plan.formats:
        found.append((_is("csv"), _taken(_CSV), _record(plan, F.col(_CSV), plan.csv_columns)))
    if "avro" in plan.formats:
        ends = F.col(_AVRO)[avro.END] == _end(F.col("__body"))
        found.append((F.col(_FORMAT).isin("single", "registry", "plain"), ends, _record(plan, F.col(_AVRO))))
    return found


def _record(plan: Plan, read: Column, there: Collection[str] | None = None) -> Column:
    """Return what was read as the one type that all readings share; fields that are not `there` are null."""
    values = [F.lit(None) if there is not None and f.name not in there else read[f.name] for f in plan.fields]
    named = [value.cast(f.type).alias(f.name) for f, value in zip(plan.fields, values, strict=True)]
    return F.struct(*named, F.lit(None).cast("string").alias(_CORRUPT))


def _taken(name: str) -> Column:
    """Tell whether one of Spark's readers was given a record and took it."""
    return F.col(name).isNotNull() & F.col(name)[_CORRUPT].isNull()


def _with_corrupt(fields: Sequence[ddl.Field]) -> str:
    return ddl.render([*fields, ddl.Field(_CORRUPT, "STRING")])


# --- which format ---


def _detected(plan: Plan) -> Column:
    """Return object, json, broken, csv, single, registry, plain, empty, none; null for a tombstone."""
    payload, text = own("message_payload"), F.col(_TEXT)
    blank = F.octet_length(payload) == 0
    if plan.formats != ("avro",):
        blank |= (F.octet_length(payload) < 64) & (F.trim(text, F.lit(" \t\r\n")) == "")  # noqa: PLR2004 - see below
    kind = F.when(payload.isNull(), F.lit(None).cast("string"))
    if "json" in plan.formats:
        kind = kind.when(_closes_last(payload) & F.is_valid_utf8(text), F.lit("object"))
    if len(plan.formats) == 1 and plan.formats[0] != "avro":
        return kind.when(blank, F.lit("empty")).otherwise(_json_kind() if "json" in plan.formats else F.lit("csv"))
    if "json" in plan.formats:
        first = F.substring(text, 1, 1)
        later = F.substring(F.ltrim(text, F.lit(" \t\r\n")), 1, 1)
        kind = kind.when(first.isin("{", "["), _json_kind())
        kind = kind.when(first.isin(" ", "\t", "\r", "\n") & later.isin("{", "["), _json_kind())
    kind = kind.when(blank, F.lit("empty"))
    if "avro" in plan.formats:
        kind = kind.when(_starts(payload, _SINGLE_OBJECT), F.lit("single"))
        if plan.registry:
            kind = kind.when(
                _starts(payload, "00") & (F.octet_length(payload) >= _REGISTRY_HEAD_BYTES), F.lit("registry")
            )
    if "csv" in plan.formats:
        kind = kind.when(F.contains(text, F.lit(plan.csv_delimiter)) & F.is_valid_utf8(text), F.lit("csv"))
    return kind.otherwise(F.lit("plain" if "avro" in plan.formats else "none"))


def _closes_last(payload: Column) -> Column:
    """Tell whether a record begins with { and has one }, at its end. On bytes: a third of what characters cost."""
    bracket = F.lit(b"}")
    before = F.substring(payload, F.lit(1), F.octet_length(payload) - 1)
    return F.startswith(payload, F.lit(b"{")) & F.endswith(payload, bracket) & ~F.contains(before, bracket)


def _json_kind() -> Column:
    return F.when(F.is_valid_utf8(F.col(_TEXT)), F.lit("json")).otherwise(F.lit("broken"))


def _starts(payload: Column, hexadecimal: str) -> Column:
    head = F.substring(payload, 1, len(hexadecimal) // 2)
    return head == F.unhex(F.lit(hexadecimal))


# --- JSON ---


def _object(plan: Plan) -> Column:
    schema = _with_corrupt(plan.fields)
    return F.from_json(F.when(_is("object"), F.col(_TEXT)), schema, _JSON_OPTIONS)


def _json(plan: Plan) -> Column:
    schema = f"r ARRAY<STRUCT<{_with_corrupt(plan.fields)}>>, {_CORRUPT} STRING"
    wrapped = F.concat(F.lit('{"r":['), F.col(_TEXT), F.lit("]}"))
    return F.from_json(F.when(_is("json"), wrapped), schema, _JSON_OPTIONS)


def _whole_json() -> Column:
    """Tell whether the text is one object of the schema, all of it."""
    text, found = F.col(_TEXT), F.col(_JSON)
    mark = F.hex(F.xxhash64(text))
    before_mark = F.concat(F.lit("[["), text, F.lit('],"'), mark, F.lit('"]'))
    closed_early = F.when(
        F.contains(text, F.lit("]")), ~F.coalesce(F.get_json_object(before_mark, "$[1]") == mark, F.lit(False))
    )
    fits = _taken(_JSON) & (F.size(found["r"]) == 1) & found["r"][0].isNotNull()
    return fits & ~F.coalesce(closed_early, F.lit(False))


# --- CSV ---


def _csv(plan: Plan) -> Column:
    text = F.regexp_replace(F.col(_TEXT), "\r?\n$", "")
    types = {field.name: field.type for field in plan.fields}
    columns = [ddl.Field(name, types.get(name, "STRING")) for name in plan.csv_columns]
    schema = _with_corrupt(columns)
    options = {
        "sep": plan.csv_delimiter,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "escape": '"',
        "lineSep": "\u0001",
        "maxColumns": str(max(512, 2 * len(columns))),
    }
    return F.from_csv(F.when(_is("csv"), text), schema, options)


# --- Avro ---


def _with_avro(rows: DataFrame, plan: Plan) -> DataFrame:
    """Add the record's bytes without their wrapping, and what Avro makes of them."""
    assert plan.schema_avro is not None  # noqa: S101 - the job fills it in
    schema = avro.load(plan.schema_avro)
    payload, kind = own("message_payload"), F.col(_FORMAT)
    after_head = _behind(payload, _SINGLE_HEAD_BYTES)
    ours = F.substring(payload, 3, 8) == F.unhex(F.lit(avro.rabin(schema).hex()))
    body = F.when(kind == "plain", payload).when((kind == "single") & ours, after_head)
    known = [(number, text) for number, text in plan.writers if text is not None]
    if plan.registry:
        body = body.when(kind == "registry", _behind(payload, _REGISTRY_HEAD_BYTES))
    rows = rows.withColumns({"__body": body, "__writer": F.substring(payload, 2, 4)})
    read = F.concat(F.col("__body"), _end(F.col("__body")))
    ending = json.dumps(avro.with_end(schema))
    found = from_avro(F.when(kind != "registry", read), ending, {"mode": "PERMISSIVE"})
    for number, text in known:
        writer = avro.load(text)
        options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(avro.with_end(avro.as_reader(schema, writer)))}
        this = (kind == "registry") & (F.col("__writer") == F.unhex(F.lit(f"{number:08x}")))
        other = from_avro(F.when(this, read), json.dumps(avro.with_end(writer)), options)
        found = F.when(this, _columns(other, plan)).otherwise(_columns(found, plan))
    return rows.withColumn(_AVRO, found)


def _columns(found: Column, plan: Plan) -> Column:
    """Return a record of any Avro schema with the columns and types of ours, so that two can meet in one column."""
    columns = [found[field.name].cast(field.type).alias(field.name) for field in plan.fields]
    return F.struct(*columns, found[avro.END].alias(avro.END))


def _behind(payload: Column, head_bytes: int) -> Column:
    return F.substring(payload, F.lit(head_bytes + 1), F.octet_length(payload))


def _end(body: Column) -> Column:
    return F.unhex(F.md5(body))
