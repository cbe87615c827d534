"""How records of one Avro schema are read by another: Avro's own resolution, and what it leaves to its users.

Avro resolves names, aliases, defaults and promotions. It does not look at logical types: milliseconds would be read as
microseconds, and a decimal of another scale as another number. So the reader takes over the writer's unit of a time,
and a pair of schemas whose logical types can't be reconciled is no pair: such records are malformed.

An int is written as a long is, but Avro's reader drops the bits that an int has no room for. So ints are read as longs,
and whether they fit is asked after.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.plan.avro import Json

_PRECISION_MAX = 38
_TIMES = ("timestamp-millis", "timestamp-micros")
_LOCAL = "local-"


def readable(schema: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
    """Return a schema that Spark reads without changing numbers; the bytes that it stands for are the same."""
    return _with_ints_as("long", _unrounded(schema))


def _unrounded(schema: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
    """Return a schema with room for all digits of its decimals, and its times in UTC.

    Of a decimal with more digits than its precision Spark keeps the lower half, unless the precision is the greatest;
    whether a number fits is asked after.
    """
    if isinstance(schema, list):
        return [_unrounded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = _inside(schema, _unrounded)
    logical = schema.get("logicalType")
    if logical == "decimal":
        digits = len(str(1 << (8 * schema["size"] - 1))) - 1 if "size" in schema else _PRECISION_MAX
        found["precision"] = min(digits, _PRECISION_MAX)  # of fixed bytes Avro allows no more than fit in them
    if isinstance(logical, str):
        found["logicalType"] = logical.removeprefix(_LOCAL)  # without a zone is UTC, as in a text
    return found


def _with_ints_as(whole: str, schema: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
    """Return a schema with another type, or the same, for each int, without its logical type.

    A union has each type once: beside a long an int stays one.
    """
    if isinstance(schema, list):
        mixed = {"int", "long"} <= set(map(_base, schema))
        return [_with_ints_as("int" if mixed else whole, each) for each in schema]
    if not isinstance(schema, dict):
        return whole if schema == "int" else schema
    found = _inside(schema, lambda inner: _with_ints_as(whole, inner))
    if schema.get("type") == "int":
        found.pop("logicalType", None)
    return found


def _base(schema: Any) -> str:  # noqa: ANN401 - a schema is any JSON
    while isinstance(schema, dict):
        schema = schema["type"]
    return str(schema)


def _inside(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a schema with the types that it is made of changed."""
    found = {key: change(value) if key in ("type", "items", "values") else value for key, value in schema.items()}
    if "fields" in schema:
        found["fields"] = [{**field, "type": change(field["type"])} for field in schema["fields"]]
    return found


def pair(schema: dict[str, Json], writer: dict[str, Json], *, lenient: bool) -> tuple[Json, Json] | None:
    """Return the writer's schema and ours as the reader's, None if records can't be read so.

    `lenient`: ours was made of a DDL, where a column that is missing is null. Where a long meets our int, which Avro
    refuses, ints stay ints.
    """
    written, reader = _unrounded(writer), _unrounded(copy.deepcopy(schema))
    alignment = _Alignment(written, reader)
    try:
        reader = alignment.record(written, reader)
    except ValueError:
        return None
    written, reader = (_with_ints_as("int" if alignment.narrows else "long", each) for each in (written, reader))
    fields = [_with_null(field, always=lenient) for field in reader["fields"]]
    aliases = [*reader.get("aliases", ()), _full_name(written)]  # its id says what it is, whatever it is called
    return written, {**reader, "fields": fields, "aliases": list(dict.fromkeys(aliases))}


def _with_null(field: dict[str, Any], *, always: bool) -> dict[str, Any]:
    """Return a field that is null where a writer lacks it, if it may be null."""
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    if "default" in field or not (always or "null" in kinds):
        return field
    return {**field, "type": ["null", *(kind for kind in kinds if kind != "null")], "default": None}


def _full_name(schema: dict[str, Any]) -> str:
    name, space = str(schema["name"]), schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


class _Alignment:
    """One walk through two schemas beside each other; named types are known from where they were defined on."""

    def __init__(self, written: Any, reader: Any) -> None:  # noqa: ANN401 - a schema is any JSON
        self._written: dict[str, Any] = {}
        self._read: dict[str, Any] = {}
        self.narrows = False  # whether a long would be read as an int
        _define(written, self._written)
        _define(reader, self._read)

    def record(self, written: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
        """Return the reader's record with the writer's units."""
        theirs = {field["name"]: field["type"] for field in written["fields"]}
        fields = []
        for field in reader["fields"]:
            names = [name for name in (field["name"], *field.get("aliases", ())) if name in theirs]
            kind = self.kind(theirs[names[0]], field["type"]) if names else field["type"]
            fields.append({**field, "type": kind})
        return {**reader, "fields": fields}

    def kind(self, written: Any, reader: Any) -> Any:  # noqa: ANN401 - a schema is any JSON
        """Return the reader's type with the writer's units; ValueError if they can't be reconciled."""
        if isinstance(reader, str):
            if reader in self._read:
                return self._named(written, reader)
            for theirs in self._branches(written):
                self._beside(theirs, {"type": reader})
            return reader
        if isinstance(reader, list):
            return [each if each == "null" else self.kind(written, each) for each in reader]
        if isinstance(reader["type"], dict | list):
            return {**reader, "type": self.kind(written, reader["type"])}
        for theirs in self._branches(written):
            reader = self._beside(theirs, reader)
        return reader

    def _branches(self, written: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a schema is any JSON
        """Return what a writer's type may be, with references and wrappings taken off."""
        if isinstance(written, list):
            return [branch for each in written if each != "null" for branch in self._branches(each)]
        if isinstance(written, str):
            written = self._written.get(written, {"type": written})
        return self._branches(written["type"]) if isinstance(written["type"], dict | list) else [written]

    def _named(self, written: Any, reader: str) -> str:  # noqa: ANN401 - a schema is any JSON
        """Return a reference to a type that was defined before: what it takes over is decided there."""
        defined = self._read[reader]
        if self.kind(written, defined) != defined:
            raise ValueError(f"{reader} has two meanings")
        return reader

    def _beside(self, written: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
        self.narrows |= (written["type"], reader["type"]) == ("long", "int")
        if reader["type"] not in ("record", "error", "array", "map"):
            return _reconciled(written, reader)
        if written["type"] != reader["type"]:
            return reader  # Avro refuses it
        if reader["type"] in ("record", "error"):
            return self.record(written, reader)
        inner = "items" if reader["type"] == "array" else "values"
        return {**reader, inner: self.kind(written[inner], reader[inner])}


def _reconciled(written: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = reader.get("logicalType"), written.get("logicalType")
    if ours in _TIMES and theirs in _TIMES:
        return {**reader, "logicalType": theirs}
    same = ours != "decimal" or (theirs == ours and written.get("scale", 0) == reader.get("scale", 0))
    if not same or (ours in (*_TIMES, "date") and theirs not in (ours, None)):
        raise ValueError(f"{theirs} is not {ours}")
    return reader


def _define(schema: Any, named: dict[str, Any], namespace: str = "") -> None:  # noqa: ANN401 - a schema is any JSON
    """Remember a schema's named types, by their names with and without namespace."""
    if isinstance(schema, list):
        for each in schema:
            _define(each, named, namespace)
    if not isinstance(schema, dict):
        return
    if schema.get("type") in ("record", "error", "enum", "fixed"):
        namespace = schema.get("namespace", namespace)
        name = str(schema["name"])
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        namespace = full.rpartition(".")[0]
        named[name] = named[full] = schema
    for key in ("type", "items", "values"):
        _define(schema.get(key), named, namespace)
    for field in schema.get("fields", ()):
        _define(field["type"], named, namespace)
