"""Strict conversion of text: the exact value of a type, otherwise null (docs/values.md).

Spark's own casts read `12:30` as today at half past twelve and `1,5` as 15, round what does not fit a DECIMAL, and
complete partial dates. Here a text is checked first and cast only if it has exactly one meaning. Numbers are written as
in JSON: no plus sign, no leading zero, no blanks, no suffix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

ISO = "iso"
UNITS = {"seconds": 6, "millis": 3, "micros": 0}  # decimal places of a microsecond in this unit
_INTEGER = r"^-?(?:0|[1-9][0-9]*)\z"
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,5})?\z"
_SHORT_POWER = r"^[^eE]*(?:[eE][+-]?[0-9]{1,3})?\z"  # a larger exponent would be expanded into that many digits
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\z"
_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6}0*)?)?"
    r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?\z"
)
_MINUTES_CHARS = len("2026-01-05T10:11")
_BASE64 = r"^[A-Za-z0-9+/]*={0,2}\z"
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_LONG_MAX = 9.2e18  # the cast of a larger double to BIGINT changes the number


def is_number(kind: str) -> bool:
    """Return whether JSON writes a type only as a number."""
    return kind in (*_INTEGERS, "FLOAT", "DOUBLE")


def from_text(text: Column, kind: str, unit: str) -> Column:
    """Convert text outside JSON (a CSV field); null if its value is not certain."""
    if kind == "TIMESTAMP" and unit != ISO:
        return F.when(text.rlike(_NUMBER), instant(text, unit)).otherwise(moment(text))
    return from_string(text, kind)


def from_string(text: Column, kind: str) -> Column:
    """Convert text to a type; a number is not taken for an instant."""
    if kind in _BY_KIND:
        return _BY_KIND[kind](text)
    if kind in _INTEGERS:
        return F.when(text.rlike(_INTEGER), text.try_cast(kind))
    if kind in ("FLOAT", "DOUBLE"):
        return floating(text, kind)
    return decimal(text, *decimal_size(kind))


def decimal_size(kind: str) -> tuple[int, int]:
    """Return a DECIMAL's precision and scale."""
    match = _DECIMAL.fullmatch(kind)
    if match is None:
        raise ValueError(f"{kind} is no type of a field")
    return int(match[1]), int(match[2])


def boolean(text: Column) -> Column:
    """Return a boolean: true, True or TRUE, false, False or FALSE."""
    return F.when(text.isin(*_TRUE), F.lit(True)).when(text.isin(*_FALSE), F.lit(False))


def day(text: Column) -> Column:
    """Return an ISO 8601 date with a four-digit year."""
    return within_years(F.when(text.rlike(_DATE), text.try_cast("date")), "DATE")


def floating(text: Column, kind: str) -> Column:
    """Return the nearest floating-point number; null for overflow, underflow to 0 and inexact integers."""
    value = text.try_cast(kind)
    whole = (F.abs(value) < F.lit(_LONG_MAX)) & (value.cast("bigint") == text.try_cast("bigint"))
    fits = F.when(text.rlike(_INTEGER), whole).otherwise((value != 0) | ~text.rlike(r"^[^eE]*[1-9]"))
    finite = F.abs(value) < F.lit(float("inf")).cast(kind)
    return F.when(text.rlike(_NUMBER) & finite & fits, value)


def decimal(text: Column, precision: int, scale: int) -> Column:
    """Return a number without rounding, null if the type has too few digits before or after the point."""
    mantissa = F.regexp_replace(text, "[eE].*$", "")
    power = F.coalesce(F.regexp_extract(text, "[eE](.*)$", 1).try_cast("int"), F.lit(0))
    point = F.instr(mantissa, ".")
    behind = F.when(point > 0, F.length(mantissa) - point).otherwise(0)
    digits = F.replace(mantissa, F.lit("."), F.lit(""))
    kept = F.rtrim(digits, F.lit("0"))
    needed = behind - power - (F.length(digits) - F.length(kept))  # decimal places without trailing zeros
    exact = kept.isin("", "-") | (needed <= scale)
    certain = text.rlike(_NUMBER) & text.rlike(_SHORT_POWER) & exact
    return F.when(certain, text.try_cast(f"DECIMAL({precision},{scale})"))


def moment(text: Column) -> Column:
    """Return an ISO 8601 date and time; without a zone it is UTC, without seconds they are 0."""
    minutes, behind = F.substring(text, 1, _MINUTES_CHARS), F.substring(text, F.lit(_MINUTES_CHARS + 1), F.length(text))
    full = F.when(F.startswith(behind, F.lit(":")), text).otherwise(F.concat(minutes, F.lit(":00"), behind))
    but_two = F.substring(full, F.lit(1), F.length(full) - 2)
    written = (  # Spark requires seconds, and a colon before a zone's minutes
        F.when(full.rlike(r"[+-][0-9]{4}\z"), F.concat(but_two, F.lit(":"), F.right(full, F.lit(2))))
        .when(full.rlike(r":[0-9.]+[+-][0-9]{2}\z"), F.concat(full, F.lit(":00")))
        .otherwise(full)
    )
    return within_years(F.when(text.rlike(_TIMESTAMP), written.try_cast("timestamp")), "TIMESTAMP")


def instant(text: Column, unit: str) -> Column:
    """Return the time of a number of units since 1970."""
    digits = UNITS[unit]
    number = decimal(text, 20 + digits, digits)
    micros = (number * F.lit(10**digits)).try_cast("bigint")
    return F.when(micros.between(_FIRST_MICROS, _LAST_MICROS), F.timestamp_micros(micros))


def counted(number: Column, unit: str) -> Column:
    """Return the time of a BIGINT of units since 1970."""
    per = 10 ** UNITS[unit]
    inside = number.between(-(-_FIRST_MICROS // per), _LAST_MICROS // per)
    return F.when(inside, F.timestamp_micros(F.when(inside, number) * F.lit(per)))


def binary(text: Column) -> Column:
    """Return the bytes of a text in canonical base64, null for any other text."""
    looks = text.rlike(_BASE64) & (F.length(text) % 4 == 0)  # otherwise Spark's decoder ends the job
    bytes_ = F.unbase64(F.when(looks, text))
    return F.when(F.base64(bytes_) == text, bytes_)


def within_years(value: Column, kind: str) -> Column:
    """Return a DATE or TIMESTAMP within the years 1 to 9999, which every reader supports; otherwise null."""
    if kind == "DATE":
        return F.when(F.unix_date(value).between(_FIRST_DAY, _LAST_DAY), value)
    return F.when(F.unix_micros(value).between(_FIRST_MICROS, _LAST_MICROS), value)


_BY_KIND: dict[str, Callable[[Column], Column]] = {
    "STRING": lambda text: text,
    "BOOLEAN": boolean,
    "DATE": day,
    "TIMESTAMP": moment,
    "BINARY": binary,
}
