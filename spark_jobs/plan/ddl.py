"""Schemas as Spark DDL, parsed without a JVM, so that a bad configuration is refused before Spark starts.

Only names and types are parsed here; Spark parses the text again before a table is touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SIMPLE = {
    "BOOLEAN": "BOOLEAN",
    "BYTE": "TINYINT",
    "TINYINT": "TINYINT",
    "SHORT": "SMALLINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BINARY": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\s*\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\))?")
_DECIMAL_DIGITS_MAX = 38
_NAME = re.compile(r"`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*)")
_AFTER_TYPE = re.compile(r"\s+(?:NOT\s+NULL|COMMENT\s+(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))\s*$", re.IGNORECASE)
_UNWRITABLE = re.compile(r"[ ,;{}()\n\t=]")  # in a column name, without column mapping


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its name, and its type in Spark's SQL."""

    name: str
    type: str

    @property
    def ddl(self) -> str:
        """Return the column as DDL."""
        return f"{quoted(self.name)} {self.type}"

    @property
    def flat(self) -> bool:
        """Return whether the type has no inner types; CSV can only have such columns."""
        return "<" not in self.type


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return f"`{name.replace('`', '``')}`"


def render(fields: Sequence[Field]) -> str:
    """Return columns as a DDL string."""
    return ", ".join(field.ddl for field in fields)


def parse(text: str) -> tuple[Field, ...]:
    """Return the columns of a DDL string; ValueError says what is wrong with it."""
    inner = re.fullmatch(r"\s*STRUCT\s*<(.*)>\s*", text, re.IGNORECASE | re.DOTALL)
    fields = tuple(map(_field, _split(inner[1] if inner else text)))
    refuse_names([field.name for field in fields])
    return fields


def refuse_names(names: Sequence[str]) -> None:
    """Refuse column names that Delta can't write, and duplicates."""
    seen: set[str] = set()
    for name in names:
        if not name or _UNWRITABLE.search(name):
            raise ValueError(f"{name!r} can't be the name of a Delta column")
        if name.lower() in seen:
            raise ValueError(f"{name} stands twice (upper and lower case are one to Spark)")
        seen.add(name.lower())


def members(kind: str) -> tuple[Field, ...]:
    """Return the fields of a STRUCT type, () of any other."""
    return parse(kind) if kind.startswith("STRUCT<") else ()


def leaves(fields: Sequence[Field], below: str = "") -> Iterator[tuple[str, str]]:
    """Yield each leaf's path and type; the elements of an array or map have its path."""
    for field in fields:
        path, kind = f"{below}{field.name}", field.type
        while kind.startswith(("ARRAY<", "MAP<")):
            kind = inner(kind)[-1]
        if kind.startswith("STRUCT<"):
            yield from leaves(members(kind), f"{path}.")
        else:
            yield path, kind


def inner(kind: str) -> tuple[str, ...]:
    """Return the types inside an ARRAY (element) or a MAP (key and value), as `parse` writes them."""
    return tuple(_split(kind[kind.index("<") + 1 : -1]))


def _field(piece: str) -> Field:
    match = _NAME.match(piece)
    if match is None:
        raise ValueError(f"{piece!r} is no column: write NAME TYPE")
    name = match[2] or match[1].replace("``", "`")
    rest = piece[match.end() :]
    while (shorter := _AFTER_TYPE.sub("", rest)) != rest:
        rest = shorter
    kind = rest.strip().removeprefix(":").strip()
    if not kind:
        raise ValueError(f"{name} has no type")
    return Field(name, _type(kind, name))


def _type(text: str, name: str) -> str:
    upper = text.upper().strip()
    if upper in _SIMPLE:
        return _SIMPLE[upper]
    decimal = _DECIMAL.fullmatch(upper)
    if decimal:
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise ValueError(f"{name}: {text} has more digits than a DECIMAL can")
        return f"DECIMAL({precision},{scale})"
    nested = re.fullmatch(r"\s*(ARRAY|MAP|STRUCT)\s*<(.*)>\s*", text, re.IGNORECASE | re.DOTALL)
    if nested is None:
        raise ValueError(f"{name}: type {text} is not one that silver can hold")
    kind, inner = nested[1].upper(), list(_split(nested[2]))
    if kind == "STRUCT":
        return f"STRUCT<{render([_field(piece) for piece in inner])}>"
    if len(inner) != (1 if kind == "ARRAY" else 2):
        raise ValueError(f"{name}: {text} is no {kind}")
    return f"{kind}<{', '.join(_type(piece, name) for piece in inner)}>"


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are outside brackets and quotes."""
    depth, start, quote = 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "`'\"":
            quote = char
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
        if depth < 0:
            break
    if depth or quote:
        raise ValueError("brackets or quotes don't match")
    if not text[start:].strip():
        raise ValueError("a column is missing" if start else "it names no column")
    yield text[start:].strip()
