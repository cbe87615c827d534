"""Reads JSON exactly: each value by its own text, and each doubtful field by its name.

Spark's reader converts numbers before their digits can be checked, keeps the last of two equal keys, and writes `?` for
half a surrogate pair. So the text is marked before it is read: every number, true and false becomes a string that
begins with the hash of the record, with which no string of the record can begin. A value with that prefix was not a
string, and the rest is its original text. This costs several times as much as Spark's reader: `json_records` sends only
those records here that a quicker check can't decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan import ddl
from spark_jobs.rows import shapes, values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

OPTIONS = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_MARK_CHARS = 32
_STRING_OR_BARE = r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|(-?[0-9][0-9.eE+-]*+|true|false)'
_SURE = r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # no halves: \\ and whole pairs
_HALF = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_FIRST, _SECOND = "\u0001", "\u0002"  # not in JSON, where control characters are escaped
_TEXT, _MARK, _WHOLE, _MARKED, _READ, _REPEATS, _KEYS, _VALUES = (
    f"__exact_{name}" for name in ("text", "mark", "whole", "marked", "read", "repeats", "keys", "values")
)


@dataclass(frozen=True, slots=True)
class Exact:
    """The results of reading records exactly."""

    fields: Column  # a struct of the schema's fields
    fault: Column  # null, `malformed`, or `malformed:FIELD` for each such field, joined by ;


def read(rows: DataFrame, plan: Plan, text: Column) -> tuple[DataFrame, Exact]:
    """Return the rows with helper columns, and the records; `text` is null for rows that are not wanted."""
    rows = rows.withColumn(_TEXT, text)
    text = F.col(_TEXT)
    rows = rows.withColumn(_MARK, F.md5(text))
    rows = rows.withColumn(_WHOLE, _whole(text)).withColumn(_MARKED, _marked(text))
    rows = rows.withColumns({_READ: _read(plan), _REPEATS: F.col(_WHOLE) & F.try_parse_json(text).isNull()})
    keys = F.json_object_keys(F.when(F.col(_REPEATS), text))
    leaf = shapes.Leaf(shapes.any_leaf, lambda x, kind, path: _value(x, kind, plan.unit(path)))
    rows = rows.withColumns({_KEYS: keys, _VALUES: F.when(F.col(_READ).isNotNull(), _fields(plan, leaf))})
    return rows, Exact(F.col(_VALUES), _fault(plan, leaf))


def _whole(text: Column) -> Column:
    """Return whether the whole text is one JSON value: only then an array of it and the mark ends with the mark."""
    wrapped = F.concat(F.lit("["), text, F.lit(',"'), F.col(_MARK), F.lit('"]'))
    found = F.from_json(wrapped, "ARRAY<STRING>", OPTIONS)
    return F.coalesce((F.size(found) == 2) & (found[1] == F.col(_MARK)), F.lit(False))  # noqa: PLR2004 - it and the mark


def _marked(text: Column) -> Column:
    """Return a text whose numbers, true and false are marked strings, and whose half surrogates are marked."""
    halved = F.contains(text, F.lit("\\ud")) | F.contains(text, F.lit("\\uD"))
    sure = F.regexp_replace(text, F.lit(_SURE), F.lit(f"$1{_FIRST}"))
    told = F.regexp_replace(sure, F.lit(_HALF), F.concat(F.col(_MARK), F.lit("?")))
    text = F.when(halved, F.replace(told, F.lit(_FIRST), F.lit(""))).otherwise(text)
    both = F.regexp_replace(text, F.lit(_STRING_OR_BARE), F.lit(f"$1{_FIRST}$2{_SECOND}"))
    bare = F.replace(both, F.lit(_FIRST + _SECOND), F.lit(""))
    opened = F.replace(bare, F.lit(_FIRST), F.concat(F.lit('"'), F.col(_MARK)))
    return F.when(F.col(_WHOLE), F.replace(opened, F.lit(_SECOND), F.lit('"')))


def _read(plan: Plan) -> Column:
    columns = [ddl.Field(each.name, shapes.retyped(each.type, lambda *_: "STRING", each.name)) for each in plan.fields]
    wrapped = F.concat(F.lit("["), F.col(_MARKED), F.lit("]"))
    return F.from_json(wrapped, f"ARRAY<STRUCT<{ddl.render(columns)}>>", OPTIONS)[0]


def _fields(plan: Plan, leaf: shapes.Leaf) -> Column:
    found = F.col(_READ)
    fields = (shapes.mapped(found[each.name], each.type, each.name, leaf).alias(each.name) for each in plan.fields)
    return F.struct(*fields)


def _fault(plan: Plan, leaf: shapes.Leaf) -> Column:
    mistyped = shapes.Leaf(lambda kind, _: kind != "STRING", lambda x, kind, _: _mistyped(x, kind))
    found = F.col(_READ)
    wrong = shapes.either(shapes.anywhere(found[each.name], each.type, each.name, mistyped) for each in plan.fields)
    told = []
    for each in plan.fields:
        lost = shapes.lost(found[each.name], F.col(_VALUES)[each.name], each, leaf)
        told.append(F.when(lost | _twice(each), F.lit(f"malformed:{each.name}")))
    fields = F.nullif(F.concat_ws(";", *told), F.lit(""))
    return F.when(found.isNull() | wrong, F.lit("malformed")).otherwise(fields)


def _twice(field: ddl.Field) -> Column:
    """Return whether a record has a field, or a member of it, more than once."""
    keys = F.filter(F.col(_KEYS), lambda key: key == field.name)
    again = F.size(keys) > 1
    if not field.flat:
        inner = F.lit(None).cast("string") if "'" in field.name else F.get_json_object(_TEXT, f"$['{field.name}']")
        again |= (F.col(_READ)[field.name].isNotNull()) & F.try_parse_json(inner).isNull()
    return F.coalesce(F.col(_REPEATS) & again, F.lit(False))


def _bare(text: Column) -> Column:
    """Return whether a value was a number, true or false, not a string."""
    return F.startswith(text, F.col(_MARK))


def _rest(text: Column) -> Column:
    return F.substring(text, F.lit(_MARK_CHARS + 1), F.length(text))


def _is_number(text: Column) -> Column:
    return _bare(text) & F.substring(text, _MARK_CHARS + 1, 1).between("-", "9")


def _mistyped(text: Column, kind: str) -> Column:
    """Return whether a value has another JSON type than this one requires."""
    if kind == "BOOLEAN":
        return ~(_bare(text) & _rest(text).isin("true", "false"))
    if values.is_number(kind):
        return ~_is_number(text)
    if kind == "BINARY":
        return _bare(text)
    return _bare(text) & ~_is_number(text)


def _value(text: Column, kind: str, unit: str) -> Column:
    """Return a value, null if it is not certain."""
    if kind == "STRING":
        half = F.contains(text, F.concat(F.col(_MARK), F.lit("?")))
        return F.when(~half, F.when(_bare(text), _rest(text)).otherwise(_unmarked(text)))
    if kind == "BOOLEAN" or values.is_number(kind):
        return values.from_string(_rest(text), kind)
    if kind == "TIMESTAMP":
        number = F.lit(None).cast(kind) if unit == values.ISO else values.instant(_rest(text), unit)
        return F.when(_bare(text), number).otherwise(values.moment(text))
    if kind.startswith("DECIMAL"):
        return values.from_string(F.when(_bare(text), _rest(text)).otherwise(text), kind)
    return F.when(~_bare(text), values.from_string(text, kind))


def _unmarked(text: Column) -> Column:
    """Return the text of an object or array with its original numbers."""
    pattern = F.concat(F.lit('"'), F.col(_MARK), F.lit('([^"?]*)"'))
    held = F.contains(text, F.col(_MARK))
    return F.when(held, F.regexp_replace(text, pattern, F.lit("$1"))).otherwise(text)
