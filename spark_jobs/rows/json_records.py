"""JSON records: quickly where that is certain to be right, else to the letter (`json_exact`).

The quick look is Spark's reader with types that lose nothing: whole numbers, true and false as they are, and what is
written as a string as a string, which is then converted strictly. It is believed unless something in its answer could
have been something else: a STRING that looks like a number may have been a number with more digits, 0.0 one too small,
infinity one too large. What it could not read goes to the exact look too, which knows why.

With `strict: false` Spark's reader decides alone.

Spark's reader stops where an object ends, whatever comes after. A record whose only `}` is its last byte can't have
ended before. Any other is read as the first of two elements of an array: the second, a mark, must come out too.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan import ddl
from spark_jobs.rows import json_exact, shapes, values
from spark_jobs.rows.json_exact import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

_CORRUPT, _END = "__corrupt", "__end"
_TEXT, _IS_OBJECT, _IS_OTHER, _OBJECT, _PAIR, _QUICK, _VALUES, _CERTAIN = (
    f"__json_{name}" for name in ("text", "is_object", "is_other", "object", "pair", "quick", "values", "certain")
)
_LIKE_A_NUMBER = r"^-?(?:0|[0-9]+[.eE][0-9.eE+-]*)\z"  # of integers only -0 does not keep its text
_LIKE_BARE = r"^(?:[0-9.eE+-]+|true)\z"  # what could be base64 and a number or true
_INFINITE = ("Infinity", "-Infinity", '"Infinity"', '"-Infinity"')
_EXACT_TO = {"FLOAT": 2.0**24, "DOUBLE": 2.0**53}
_SMALL_CHARS = 300  # what a number has that is 0 for a DOUBLE and has no exponent


@dataclass(frozen=True, slots=True)
class Records:
    """What came of JSON records: the schema's fields, and null, `malformed`, or `malformed:FIELD` joined by ;."""

    fields: Column
    fault: Column


def read(rows: DataFrame, plan: Plan, text: Column) -> tuple[DataFrame, Records]:
    """Return the rows with what is needed, and the records; `text` is null for rows of other formats."""
    rows = rows.withColumn(_TEXT, text)
    text = F.col(_TEXT)
    rows = rows.withColumn(_IS_OBJECT, F.coalesce(_closes_last(text), F.lit(False)))
    # from_json is interpreted for each row, and so is all in its argument: a column of true and false is much quicker.
    rows = rows.withColumn(_IS_OTHER, text.isNotNull() & ~F.col(_IS_OBJECT))
    rows = rows.withColumns({_OBJECT: _object(plan, text), _PAIR: _pair(plan, text)})
    first = F.when(F.col(_IS_OBJECT), F.col(_OBJECT)).otherwise(F.col(_PAIR)[0])
    rows = rows.withColumn(_QUICK, F.when(_taken(), first))
    found = F.col(_QUICK)
    if not plan.strict:
        fields = F.struct(*(found[each.name].alias(each.name) for each in plan.fields))
        return rows, Records(fields, F.when(found.isNull(), F.lit("malformed")))
    rows = rows.withColumn(_VALUES, F.when(found.isNotNull(), _values(plan)))
    rows = rows.withColumn(_CERTAIN, F.when(found.isNull(), F.lit(False)).otherwise(_certain(plan, text)))
    certain = F.col(_CERTAIN)
    rows, exact = json_exact.read(rows, plan, F.when(~certain, text))
    return rows, Records(F.when(certain, F.col(_VALUES)).otherwise(exact.fields), F.when(~certain, exact.fault))


def _closes_last(text: Column) -> Column:
    """Tell whether a record begins with { and has one }, at its end. On bytes: a third of what characters cost."""
    payload, bracket = text.cast("binary"), F.lit(b"}")
    before = F.substring(payload, F.lit(1), F.octet_length(payload) - 1)
    return F.startswith(payload, F.lit(b"{")) & F.endswith(payload, bracket) & ~F.contains(before, bracket)


def _object(plan: Plan, text: Column) -> Column:
    options = {**OPTIONS, "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.when(F.col(_IS_OBJECT), text), _columns(plan), options)


def _pair(plan: Plan, text: Column) -> Column:
    wrapped = F.concat(F.lit("["), text, F.lit(f',{{"{_END}":"'), F.hex(F.xxhash64(text)), F.lit('"}]'))
    return F.from_json(F.when(F.col(_IS_OTHER), wrapped), f"ARRAY<STRUCT<{_columns(plan)}>>", OPTIONS)


def _columns(plan: Plan) -> str:
    """Return what Spark's reader is asked for: the fields, and places for what is corrupt and for the mark."""
    fields = list(plan.fields)
    if plan.strict:
        fields = [
            ddl.Field(each.name, shapes.retyped(each.type, lambda kind, path: _asked(kind, plan.unit(path)), each.name))
            for each in fields
        ]
    return ddl.render([*fields, ddl.Field(_CORRUPT, "STRING"), ddl.Field(_END, "STRING")])


def _taken() -> Column:
    """Tell whether Spark's reader took a record, all of it."""
    found, pair = F.col(_OBJECT), F.col(_PAIR)
    whole = (F.size(pair) == 2) & (pair[1][_END] == F.hex(F.xxhash64(F.col(_TEXT))))  # noqa: PLR2004 - it and the mark
    return F.when(F.col(_IS_OBJECT), found[_CORRUPT].isNull()).otherwise(whole)


# --- what a quick look is asked for, and when it is believed ---


def _asked(kind: str, unit: str) -> str:
    if kind == "TIMESTAMP":
        return "STRING" if unit == values.ISO else "BIGINT"
    if kind in ("DATE", "BINARY"):
        return "STRING"
    if kind == "TINYINT":
        return "INT"  # as TINYINT Spark's reader takes 255 for -1
    return "VARIANT" if kind.startswith("DECIMAL") else kind


def _values(plan: Plan) -> Column:
    leaf, found = _converted(plan), F.col(_QUICK)
    fields = (shapes.mapped(found[each.name], each.type, each.name, leaf).alias(each.name) for each in plan.fields)
    return F.struct(*fields)


def _converted(plan: Plan) -> shapes.Leaf:
    """Return which leaves were asked for as another type, and what is made of them."""
    return shapes.Leaf(lambda kind, path: _asked(kind, plan.unit(path)) != kind, lambda *at: _value(plan, *at))


def _value(plan: Plan, found: Column, kind: str, path: str) -> Column:
    if kind == "TIMESTAMP" and plan.unit(path) != values.ISO:
        return values.counted(found, plan.unit(path))
    if kind == "TINYINT":
        return F.when(found.between(-128, 127), found.cast(kind))
    return values.from_string(found.cast("string"), kind)


def _certain(plan: Plan, text: Column) -> Column:
    """Tell whether nothing in what Spark's reader made of a record could have been anything else."""
    leaf = shapes.Leaf(lambda kind, _: _may_deceive(kind), lambda found, kind, _: _deceives(text, found, kind))
    found, values_, doubts = F.col(_QUICK), F.col(_VALUES), []
    for each in plan.fields:
        doubts.append(shapes.anywhere(found[each.name], each.type, each.name, leaf))
        lost = shapes.lost(found[each.name], values_[each.name], each, _converted(plan))
        null = F.is_variant_null(found[each.name]) if each.type.startswith("DECIMAL") else F.lit(False)
        doubts.append(lost & ~null)
    half = F.contains(text, F.lit("\\ud")) | F.contains(text, F.lit("\\uD"))
    once = F.when(_says_all(plan, text), F.lit(True)).otherwise(F.try_parse_json(text).isNotNull())
    return ~shapes.either(doubts) & ~half & once


def _says_all(plan: Plan, text: Column) -> Column:
    """Tell cheaply whether no key can come twice; else parsing once more tells, which fails at a second one.

    Each key has a colon behind it. If a text has no more of them than fields were found, and their texts have colons,
    then there was no other key.
    """
    if not all(each.flat for each in plan.fields):
        return F.lit(False)
    found = F.col(_QUICK)
    there = functools.reduce(operator.add, (found[each.name].isNotNull().cast("int") for each in plan.fields))
    texts = [found[each.name] for each in plan.fields if _asked(each.type, plan.unit(each.name)) == "STRING"]
    within = functools.reduce(operator.add, (F.coalesce(_colons(each), F.lit(0)) for each in texts), F.lit(0))
    verbatim = ~F.contains(text, F.lit("\\"))
    return (_colons(text) == there) | (verbatim & (_colons(text) == there + within))


def _colons(text: Column) -> Column:
    return F.octet_length(text) - F.octet_length(F.replace(text, F.lit(":"), F.lit("")))


def _may_deceive(kind: str) -> bool:
    return kind in ("STRING", "BINARY", *_EXACT_TO) or kind.startswith("DECIMAL")


def _deceives(text: Column, found: Column, kind: str) -> Column:
    """Tell whether a value that was found may stand for another one."""
    if kind == "STRING":
        number = found.between("-", ":") & found.rlike(_LIKE_A_NUMBER)
        return number | F.startswith(found, F.lit("{")) | F.startswith(found, F.lit("[")) | found.isin(*_INFINITE)
    if kind == "BINARY":
        return found.rlike(_LIKE_BARE)
    if kind in _EXACT_TO:
        tiny = (F.length(text) > _SMALL_CHARS) | F.contains(text, F.lit("e-")) | F.contains(text, F.lit("E-"))
        return (F.abs(found) >= _EXACT_TO[kind]) | ((found == 0) & tiny)
    return F.schema_of_variant(found) == "DOUBLE"
