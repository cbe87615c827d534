"""CSV records: one line with exactly the configured columns, as RFC 4180 writes them.

A text with a quote inside an unquoted field, text after a closing quote, a second line or a control character is not
CSV. Spark's own reader would read fields from all of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan import ddl
from spark_jobs.rows import values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

_TEXT, _FIELDS, _VALUES, _LOOSE = "__csv_text", "__csv_fields", "__csv_values", "__csv_loose"
_CORRUPT = "__corrupt"
_CONTROLS = [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)]  # all but tab and line ends


@dataclass(frozen=True, slots=True)
class Records:
    """The results of reading CSV records."""

    fits: Column  # whether it is CSV with these columns
    header: Column  # whether it is a header line
    fields: Column
    fault: Column


def read(rows: DataFrame, plan: Plan, text: Column) -> tuple[DataFrame, Records]:
    """Return the rows with helper columns, and the records; `text` is null for rows of other formats."""
    rows = rows.withColumn(_TEXT, F.regexp_replace(text, "\r?\n\\z", ""))
    rows = rows.withColumn(_FIELDS, _split(plan, F.when(~F.col(_TEXT).rlike(_controls(plan)), F.col(_TEXT))))
    fits = F.col(_FIELDS).isNotNull()
    header = F.col(_FIELDS) == F.array(*map(F.lit, plan.csv_columns))
    if plan.strict:
        texts = {each.name: _text(plan, each.name) for each in plan.fields if each.name in plan.csv_columns}
        rows = rows.withColumn(_VALUES, _strict(plan, texts))
        fields, fault = F.col(_VALUES), _fault(texts)
    else:
        rows = rows.withColumn(_LOOSE, _by_spark(plan, F.when(fits, F.col(_TEXT))))
        found = F.col(_LOOSE)
        there = {each.name: found[each.name] for each in plan.fields if each.name in plan.csv_columns}
        fields, fault = _record(plan, there), F.when(found[_CORRUPT].isNotNull(), F.lit("malformed"))
    if not plan.csv_header:
        fault = F.when(header, F.lit("malformed")).otherwise(fault)
    return rows, Records(fits, F.lit(plan.csv_header) & header, fields, fault)


def _controls(plan: Plan) -> str:
    """Return a regex class of the characters that CSV can't have, except configured ones."""
    own = {plan.csv_delimiter, plan.csv_quote, plan.csv_escape}
    return "[" + "".join(f"\\x{code:02x}" for code in _CONTROLS if chr(code) not in own) + "]"


def _split(plan: Plan, text: Column) -> Column:
    """Return a text's fields without quotes; null if it is not CSV with the right number of columns."""
    number = len(plan.csv_columns)
    between = re.escape(plan.csv_delimiter)
    plain = F.split(text, between)
    fits = (F.size(plain) == number) & ~text.rlike("[\r\n]")
    if plan.csv_quote is None:
        return F.when(fits, plain)
    quote, escape = plan.csv_quote, plan.csv_escape or plan.csv_quote
    special = f"{re.escape(quote)}{re.escape(escape)}"
    again = f"{re.escape(escape)}[{special}]"
    quoted = f"{re.escape(quote)}[^{special}]*+(?:{again}[^{special}]*+)*+{re.escape(quote)}"
    field = f"(?:{quoted}|[^{special}{between}\r\n]*+)"
    whole = f"^{field}(?:{between}{field}){{{number - 1}}}\\z"
    raw = F.regexp_extract_all(F.concat(F.lit(plan.csv_delimiter), text), F.lit(f"{between}({field})"), 1)
    inner = f"{re.escape(escape)}([{special}])"

    def bare(each: Column) -> Column:
        body = F.regexp_replace(F.substring(each, F.lit(2), F.length(each) - 2), inner, "$1")
        return F.when(F.startswith(each, F.lit(quote)), body).otherwise(each)

    has_special = F.contains(text, F.lit(quote)) | F.contains(text, F.lit(escape))
    return F.when(has_special, F.when(text.rlike(whole), F.transform(raw, bare))).otherwise(F.when(fits, plain))


def _text(plan: Plan, name: str) -> Column:
    text = F.col(_FIELDS)[plan.csv_columns.index(name)]
    return F.when(text != plan.csv_null, text)


def _strict(plan: Plan, texts: dict[str, Column]) -> Column:
    kinds = {each.name: each.type for each in plan.fields}
    found = {name: values.from_text(text, kinds[name], plan.unit(name)) for name, text in texts.items()}
    return _record(plan, found)


def _fault(texts: dict[str, Column]) -> Column:
    """Return the reasons of texts that do not convert, joined by ;, null if all do."""
    told = [
        F.when(text.isNotNull() & F.col(_VALUES)[name].isNull(), F.lit(f"malformed:{name}"))
        for name, text in texts.items()
    ]
    return F.nullif(F.concat_ws(";", *told), F.lit(""))


def _record(plan: Plan, there: dict[str, Column]) -> Column:
    return F.struct(*(there.get(each.name, F.lit(None).cast(each.type)).alias(each.name) for each in plan.fields))


def _by_spark(plan: Plan, text: Column) -> Column:
    """Read a line with Spark's own reader."""
    types = {field.name: field.type for field in plan.fields}
    columns = [ddl.Field(name, types.get(name, "STRING")) for name in plan.csv_columns]
    options = {
        "sep": plan.csv_delimiter,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "quote": plan.csv_quote or "",
        "escape": plan.csv_escape or plan.csv_quote or "\\",
        "nullValue": plan.csv_null,
        "lineSep": "\u0001",
        "maxColumns": str(max(512, 2 * len(columns))),
    }
    return F.from_csv(text, ddl.render([*columns, ddl.Field(_CORRUPT, "STRING")]), options)
