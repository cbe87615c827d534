"""Strict values: what a text says of a type, exactly, else null (docs/values.md).

Spark's own casts take `12:30` for today at half past twelve, `1,5` for 15, round what a DECIMAL can't hold, and fill in
whatever a date lacks. Here a text is looked at first and cast only if nothing about it is in doubt. Numbers are written
as JSON writes them: no plus sign, no zero in front, no blanks, no letters behind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

ISO = "iso"
UNITS = {"seconds": 6, "millis": 3, "micros": 0}  # digits that a microsecond has behind the point
_INTEGER = r"^-?(?:0|[1-9][0-9]*)\z"
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,5})?\z"
_SHORT_POWER = r"^[^eE]*(?:[eE][+-]?[0-9]{1,3})?\z"  # a power of a billion would be written out as a billion digits
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
_LONG_MAX = 9.2e18  # of a larger double the cast to BIGINT is no longer the same number


def is_number(kind: str) -> bool:
    """Tell whether JSON writes a type as a number, and only so."""
    return kind in (*_INTEGERS, "FLOAT", "DOUBLE")


def from_text(text: Column, kind: str, unit: str) -> Column:
    """Return what a text that is no JSON (a CSV field) says of a type; null if it says nothing certain."""
    if kind == "TIMESTAMP" and unit != ISO:
        return F.when(text.rlike(_NUMBER), instant(text, unit)).otherwise(moment(text))
    return from_string(text, kind)


def from_string(text: Column, kind: str) -> Column:
    """Return what a text says of a type, where numbers are no instants."""
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
    """Return true or false, written in small letters, in large ones, or with a large one first."""
    return F.when(text.isin(*_TRUE), F.lit(True)).when(text.isin(*_FALSE), F.lit(False))


def day(text: Column) -> Column:
    """Return an ISO 8601 date, with four digits of the year."""
    return within_years(F.when(text.rlike(_DATE), text.try_cast("date")), "DATE")


def floating(text: Column, kind: str) -> Column:
    """Return the nearest number that the type has; null for infinity, for 0 that is not 0, for an integer not met."""
    value = text.try_cast(kind)
    whole = (F.abs(value) < F.lit(_LONG_MAX)) & (value.cast("bigint") == text.try_cast("bigint"))
    fits = F.when(text.rlike(_INTEGER), whole).otherwise((value != 0) | ~text.rlike(r"^[^eE]*[1-9]"))
    finite = F.abs(value) < F.lit(float("inf")).cast(kind)
    return F.when(text.rlike(_NUMBER) & finite & fits, value)


def decimal(text: Column, precision: int, scale: int) -> Column:
    """Return a number without rounding it; null if the type has too few digits on either side of the point."""
    mantissa = F.regexp_replace(text, "[eE].*$", "")
    power = F.coalesce(F.regexp_extract(text, "[eE](.*)$", 1).try_cast("int"), F.lit(0))
    point = F.instr(mantissa, ".")
    behind = F.when(point > 0, F.length(mantissa) - point).otherwise(0)
    digits = F.replace(mantissa, F.lit("."), F.lit(""))
    kept = F.rtrim(digits, F.lit("0"))
    needed = behind - power - (F.length(digits) - F.length(kept))  # digits behind the point that are not 0
    exact = kept.isin("", "-") | (needed <= scale)
    certain = text.rlike(_NUMBER) & text.rlike(_SHORT_POWER) & exact
    return F.when(certain, text.try_cast(f"DECIMAL({precision},{scale})"))


def moment(text: Column) -> Column:
    """Return an ISO 8601 date and time of day; without a zone it is UTC, without seconds there are none."""
    minutes, behind = F.substring(text, 1, _MINUTES_CHARS), F.substring(text, F.lit(_MINUTES_CHARS + 1), F.length(text))
    full = F.when(F.startswith(behind, F.lit(":")), text).otherwise(F.concat(minutes, F.lit(":00"), behind))
    but_two = F.substring(full, F.lit(1), F.length(full) - 2)
    written = (  # Spark wants seconds, and a zone's minutes behind a colon
        F.when(full.rlike(r"[+-][0-9]{4}\z"), F.concat(but_two, F.lit(":"), F.right(full, F.lit(2))))
        .when(full.rlike(r":[0-9.]+[+-][0-9]{2}\z"), F.concat(full, F.lit(":00")))
        .otherwise(full)
    )
    return within_years(F.when(text.rlike(_TIMESTAMP), written.try_cast("timestamp")), "TIMESTAMP")


def instant(text: Column, unit: str) -> Column:
    """Return the time that a number of units since 1970 is."""
    digits = UNITS[unit]
    number = decimal(text, 20 + digits, digits)
    micros = (number * F.lit(10**digits)).try_cast("bigint")
    return F.when(micros.between(_FIRST_MICROS, _LAST_MICROS), F.timestamp_micros(micros))


def counted(number: Column, unit: str) -> Column:
    """Return the time that a BIGINT of units since 1970 is."""
    per = 10 ** UNITS[unit]
    inside = number.between(-(-_FIRST_MICROS // per), _LAST_MICROS // per)
    return F.when(inside, F.timestamp_micros(F.when(inside, number) * F.lit(per)))


def binary(text: Column) -> Column:
    """Return what a text says in base64, if it is just what base64 would write."""
    looks = text.rlike(_BASE64) & (F.length(text) % 4 == 0)  # else Spark's decoder ends the job
    bytes_ = F.unbase64(F.when(looks, text))
    return F.when(F.base64(bytes_) == text, bytes_)


def within_years(value: Column, kind: str) -> Column:
    """Return a DATE or TIMESTAMP of the years 1 to 9999, which every reader of silver can hold; else null."""
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
