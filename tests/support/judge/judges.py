"""Independent judges of values: what Python's json, csv, decimal and datetime make of a text.

A judge returns what a text may become as a type, or raises ValueError. Values are compared as JSON of the golden
tables: see `same`.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"seconds": 1, "millis": 1_000, "micros": 1_000_000}
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


class Object(dict[str, Any]):
    """A JSON object that knows which of its keys came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.twice = {key for key in keys if keys.count(key) > 1}


class Number(str):
    """The text of a JSON number."""

    __slots__ = ()


def json_record(payload: bytes) -> Object:
    """Return a JSON object whose numbers are still texts; a BOM is none of it."""
    found = json.loads(
        payload.decode("utf-8").removeprefix("\ufeff"),
        parse_int=Number,
        parse_float=Number,
        parse_constant=_refused,
        object_pairs_hook=Object,
    )
    if not isinstance(found, Object):
        raise ValueError("no object")  # noqa: TRY004 - a judge has one way to refuse
    return found


def field(record: Object, name: str) -> Any:
    """Return what a record says of a field; ValueError if it does so twice."""
    if name in record.twice:
        raise ValueError(f"{name} twice")
    return record.get(name)


def csv_record(payload: bytes) -> list[str]:
    """Return the fields of a line of CSV."""
    text = payload.decode("utf-8").removeprefix("\ufeff")
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if len(rows) != 1:
        raise ValueError("not one line")
    return rows[0]


def of_json(kind: str, found: Any) -> Any:
    """Return what a JSON value is as a type."""
    base, _, unit = kind.partition(" ")
    if found is None or isinstance(found, bool):
        return _of_bare(base, found)
    if base == "STRING":
        return found.encode("utf-8").decode() if isinstance(found, str) else json.dumps(found)
    if isinstance(found, Number):
        if base == "TIMESTAMP":
            return _instant(found, unit)
        return _refused("another type") if base in ("DATE", "BINARY", "BOOLEAN") else _number(base, found)
    if not isinstance(found, str) or base in (*_INTEGER_BITS, "FLOAT", "DOUBLE", "BOOLEAN"):
        return _refused("another type")
    return of_text(base, found)


def _of_bare(base: str, found: object) -> Any:
    if found is not None and base not in ("STRING", "BOOLEAN"):
        raise ValueError("another type")
    return json.dumps(found) if found is not None and base == "STRING" else found


def of_text(kind: str, text: str) -> Any:  # noqa: PLR0911 - a type each
    """Return what a text is as a type."""
    base, _, unit = kind.partition(" ")
    if base == "STRING":
        return text
    if base == "BOOLEAN":
        return {"true": True, "false": False}[text.lower()]
    if base == "DATE":
        return date.fromisoformat(text).isoformat() if len(text) == 10 else _refused(text)
    if base == "TIMESTAMP":
        if unit and _NUMBER.fullmatch(text):
            return _instant(text, unit)
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if base == "BINARY":
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    return _number(base, text)


def same(kind: str, given: Any, value: str) -> bool:
    """Tell whether a value, as JSON, is what a judge has given."""
    base = kind.partition(" ")[0]
    told = json.loads(value, parse_float=Decimal) if base.startswith("DECIMAL") else json.loads(value)
    if given is None or told is None:
        return given is told
    if base == "TIMESTAMP":
        return bool(datetime.fromisoformat(told) == given)
    if base in ("FLOAT", "DOUBLE"):
        return _nearest(base, float(told), given)
    if base == "STRING" and given != told:
        return bool(json.loads(given) == json.loads(told, parse_int=Number, parse_float=Number))
    return bool(type(told) is type(given) and told == given) or (base.startswith("DECIMAL") and Decimal(told) == given)


def _refused(text: str) -> Any:
    raise ValueError(text)


def _number(base: str, text: str) -> Any:
    if base in _INTEGER_BITS:
        found = int(text)
        if not -(1 << (_INTEGER_BITS[base] - 1)) <= found < 1 << (_INTEGER_BITS[base] - 1):
            raise ValueError("too large")
        return found
    if base.startswith("DECIMAL"):
        return Decimal(text)
    return str(text)


def _nearest(base: str, value: float, text: str) -> bool:
    """Tell whether a number is the nearest of its type to a text, and an integer met exactly."""
    if not math.isfinite(value):
        return False
    exact = Fraction(text)
    if text.lstrip("-").isdigit():
        return Fraction(value) == exact or (base == "FLOAT" and _as_float(value) == exact)
    if base == "DOUBLE":
        return value == float(text) and (value != 0 or exact == 0)
    bits = struct.unpack("<i", struct.pack("<f", abs(value)))[0]
    around = [struct.unpack("<f", struct.pack("<i", at))[0] for at in range(max(bits - 1, 0), bits + 2)]
    return abs(abs(exact) - Fraction(around[0 if bits == 0 else 1])) == min(
        abs(abs(exact) - Fraction(each)) for each in around if math.isfinite(each)
    )


def _as_float(value: float) -> Fraction:
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0])


def _instant(text: str, unit: str) -> datetime:
    micros = Fraction(text) * 1_000_000 / _PER_SECOND[unit]
    if micros.denominator != 1:
        raise ValueError("between two microseconds")
    return _EPOCH + timedelta(microseconds=int(micros))
