"""Avro records: plain, behind a schema's fingerprint (single-object encoding), or behind a registry's schema id.

Avro's decoder stops where the schema ends, whatever comes after. So each record is read with sixteen bytes after it
that must come out again (`avro.with_end`). It also drops the bits that a whole number has no room for: ints are read as
longs (`avro_resolution`), and the tenth byte of a long is looked at (`_cut`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.avro.functions import from_avro

from spark_jobs.plan import avro, ddl
from spark_jobs.rows import avro_resolution, shapes, values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_jobs.plan.plan import Plan

_BODY, _READ, _FOUND, _WRITER, _FRAMED, _VALUES, _LONG = (
    f"__avro_{name}" for name in ("body", "read", "found", "writer", "framed", "values", "long")
)
_SINGLE_OBJECT = "C301"
_SINGLE_HEAD_BYTES = 10
_REGISTRY_MAGIC = "00"
_REGISTRY_HEAD_BYTES = 5
_WHOLE = ("TINYINT", "SMALLINT", "INT", "DATE")  # Avro's int
_OF_LONG = (*_WHOLE, "BIGINT", "TIMESTAMP")
_OVERLONG = r"([\x80-\xff]{9}[\x02-\x7f])"  # of the tenth byte one bit is left for a long


@dataclass(frozen=True, slots=True)
class Records:
    """What came of Avro records."""

    fits: Column  # whether it is one to its last byte
    ambiguous: Column  # whether it is one too without five bytes that could be a registry's, where none is configured
    fields: Column
    fault: Column


def is_single_object(payload: Column) -> Column:
    """Tell whether a record begins as Avro's single-object encoding does."""
    return _starts(payload, _SINGLE_OBJECT)


def is_framed(payload: Column) -> Column:
    """Tell whether a record may begin with a registry's schema id."""
    return _starts(payload, _REGISTRY_MAGIC) & (F.octet_length(payload) >= _REGISTRY_HEAD_BYTES)


def read(rows: DataFrame, plan: Plan, payload: Column, kind: Column) -> tuple[DataFrame, Records]:
    """Return the rows with what is needed, and the records of those whose kind is single, registry or other."""
    assert plan.schema_avro is not None  # noqa: S101 - the job fills it in
    schema = avro.load(plan.schema_avro)
    ours = F.substring(payload, 3, 8) == F.unhex(F.lit(avro.rabin(schema).hex()))
    body = F.when(kind == "other", payload).when((kind == "single") & ours, _behind(payload, _SINGLE_HEAD_BYTES))
    if plan.registry:
        body = body.when(kind == "registry", _behind(payload, _REGISTRY_HEAD_BYTES))
    rows = rows.withColumn(_BODY, body)
    rows = rows.withColumns(
        {_READ: _with_end(F.col(_BODY)), _WRITER: F.when(kind == "registry", F.substring(payload, 2, 4))}
    )
    rows = rows.withColumn(_FOUND, _by_writer(plan, schema))
    ambiguous = F.lit(False)
    if not plan.registry:
        behind = F.when((kind == "other") & is_framed(payload), _behind(payload, _REGISTRY_HEAD_BYTES))
        rows = rows.withColumn(_FRAMED, _decoded(_with_end(behind), avro_resolution.readable(schema)))
        ambiguous = _ends(F.col(_FRAMED), behind)
    fits = _ends(F.col(_FOUND), F.col(_BODY))
    there = F.col(_FOUND).isNotNull()
    rows = rows.withColumns(
        {
            _VALUES: F.when(there, _values(plan)),
            _LONG: F.when(there, _overlong(F.col(_BODY))),
        }
    )
    return rows, Records(fits, ambiguous, F.col(_VALUES), _fault(plan))


def _by_writer(plan: Plan, schema: dict[str, avro.Json]) -> Column:
    """Return records as read by the schema that each was written by: a branch for each different one of them.

    All branches have the reader's type, so that no record is taken apart to be put into another branch's shape.
    """
    reader = avro_resolution.readable(schema)
    ids: dict[tuple[str, str], list[int]] = {}
    for number, text in plan.writers:
        pair = None if text is None else avro_resolution.pair(schema, avro.load(text), lenient=not plan.avro_by_user)
        if pair is not None:
            ids.setdefault((json.dumps(pair[0]), json.dumps(pair[1])), []).append(number)
    found, columns = F.when(F.col(_WRITER).isNull(), _decoded(F.col(_READ), reader)), _columns(reader)
    for (writer, as_reader), numbers in ids.items():
        heads = [F.unhex(F.lit(f"{number:08x}")) for number in numbers]
        read = _decoded(F.col(_READ), json.loads(writer), as_reader)
        if _columns(json.loads(as_reader)) != columns:  # its ints are ints
            read = read.cast(columns)
        found = found.when(F.col(_WRITER).isin(*heads), read)
    return found


def _columns(schema: dict[str, avro.Json]) -> str:
    return f"STRUCT<{ddl.render(avro.fields(avro.with_end(schema)))}>"


def _decoded(body: Column, writer: dict[str, avro.Json], reader: str | None = None) -> Column:
    options = {"mode": "PERMISSIVE"}
    if reader is not None:
        options["avroSchema"] = json.dumps(avro.with_end(json.loads(reader)))
    return from_avro(body, json.dumps(avro.with_end(writer)), options)


def _values(plan: Plan) -> Column:
    leaf, found = _leaf(plan), F.col(_FOUND)
    fields = (
        shapes.mapped(found[each.name], each.type, each.name, leaf).cast(each.type).alias(each.name)
        for each in plan.fields
    )
    return F.struct(*fields)


def _fault(plan: Plan) -> Column:
    """Return which values silver can't hold, in one text; null if none."""
    leaf, cut = _leaf(plan), shapes.Leaf(lambda kind, _: kind in _OF_LONG, lambda x, kind, _: _cut(x, kind))
    told = []
    for each in plan.fields:
        found = F.col(_FOUND)[each.name]
        lost = shapes.lost(found, F.col(_VALUES)[each.name], each, leaf)
        lost |= shapes.anywhere(found, each.type, each.name, cut)
        told.append(F.when(lost, F.lit(f"malformed:{each.name}")))
    return F.nullif(F.concat_ws(";", *told), F.lit(""))


def _leaf(plan: Plan) -> shapes.Leaf:
    return shapes.Leaf(
        lambda kind, _: kind in _WHOLE or (plan.strict and _limited(kind)),
        lambda x, kind, _: _value(x, kind, strict=plan.strict),
    )


def _limited(kind: str) -> bool:
    """Tell whether Avro's bytes may say what the type can't hold."""
    return kind in ("STRING", "TIMESTAMP") or kind.startswith("DECIMAL")


def _value(found: Column, kind: str, *, strict: bool) -> Column:
    if kind == "STRING":
        return F.when(F.is_valid_utf8(found), found)
    if kind == "DATE":
        day = F.date_from_unix_date(found.try_cast("int"))
        return values.within_years(day, kind) if strict else day
    return values.within_years(found, kind) if kind == "TIMESTAMP" else found.try_cast(kind)


def _cut(found: Column, kind: str) -> Column:
    """Tell whether the record spells a long of more than 64 bits that is read as this number."""
    if kind != "TIMESTAMP":
        return F.array_contains(F.col(_LONG), found)
    micros = F.unix_micros(found)
    millis = F.call_function("div", micros, F.lit(1000))
    return F.array_contains(F.col(_LONG), micros) | F.array_contains(F.col(_LONG), millis)


def _overlong(body: Column) -> Column:
    """Return what Avro's reader would make of all bytes that look like a long of more than 64 bits."""
    pieces = F.regexp_extract_all(F.decode(body, "ISO-8859-1"), F.lit(_OVERLONG))

    def number(piece: Column) -> Column:
        bits = F.lit(0).cast("bigint")
        for at in range(10):
            byte = F.ascii(F.substring(piece, at + 1, 1)).cast("bigint")
            bits = bits.bitwiseOR(F.shiftleft(byte.bitwiseAND(0x7F), 7 * at))
        return F.shiftrightunsigned(bits, 1).bitwiseXOR(-bits.bitwiseAND(1))

    return F.transform(pieces, number)


def _ends(found: Column, body: Column) -> Column:
    return F.coalesce(found[avro.END] == _end(body), F.lit(False))


def _with_end(body: Column) -> Column:
    return F.concat(body, _end(body))


def _end(body: Column) -> Column:
    return F.unhex(F.md5(body))


def _starts(payload: Column, hexadecimal: str) -> Column:
    head = F.substring(payload, 1, len(hexadecimal) // 2)
    return head == F.unhex(F.lit(hexadecimal))


def _behind(payload: Column, head_bytes: int) -> Column:
    return F.substring(payload, F.lit(head_bytes + 1), F.octet_length(payload))
