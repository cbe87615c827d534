"""Avro schemas: their columns in Spark, and how a record is distinguished from bytes that only look like one.

Avro's decoder stops at the end of the schema, whatever follows, and random bytes often decode. So each record is read
with one more field at its end (`with_end`), whose sixteen bytes the job appends to the payload: the MD5 of the payload.
Only if that field has this value did the record take all its bytes and no more.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form

from spark_jobs.plan import ddl
from spark_jobs.plan.ddl import Field

Json = Any
END = "ingestor_end"
END_BYTES = 16
_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP",
    ("long", "local-timestamp-micros"): "TIMESTAMP",
}


def load(text: str) -> dict[str, Any]:
    """Return the schema of a record; ValueError says what is wrong with it."""
    try:
        schema = json.loads(text)
        fastavro.parse_schema(copy.deepcopy(schema))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except UnknownType as error:
        raise ValueError(f"type {error.name} is unknown") from None
    except (SchemaParseException, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no Avro schema: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise ValueError("it is not the schema of a record")
    return schema


def fields(schema: dict[str, Any]) -> tuple[Field, ...]:
    """Return the columns of a record; ValueError for a type that no column can have."""
    converted = _Converter().record(schema, "")
    ddl.refuse_names([field.name for field in converted])
    return converted


def units(schema: dict[str, Any]) -> dict[str, str]:
    """Return the unit of each TIMESTAMP of a record by its path, from the logical types."""
    found: dict[str, str] = {}
    named: dict[str, Any] = {}

    def walk(kind: Any, path: str) -> None:  # noqa: ANN401 - a schema is any JSON
        kind = named.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, list):
            for each in kind:
                walk(each, path)
        if not isinstance(kind, dict):
            return
        if "name" in kind:
            named[kind["name"]] = named[_full_name(kind, "")[0]] = kind
        unit = str(kind.get("logicalType", "")).removeprefix("local-").removeprefix("timestamp-")
        if unit in ("millis", "micros") and "timestamp" in kind["logicalType"]:
            found[path] = unit
        for key in ("type", "items", "values"):
            walk(kind.get(key), path)
        for field in kind.get("fields", ()):
            walk(field["type"], f"{path}.{field['name']}" if path else field["name"])

    walk(schema, "")
    return found


def rabin(schema: dict[str, Any]) -> bytes:
    """Return the fingerprint for single-object encoding: CRC-64-AVRO, little-endian."""
    canonical = to_parsing_canonical_form(copy.deepcopy(schema))
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


def with_end(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the field that proves where a record ends."""
    end = {"name": END, "type": {"type": "fixed", "name": f"{END}_type", "namespace": "", "size": END_BYTES}}
    return {**schema, "fields": [*schema["fields"], end]}


class _Converter:
    """Walks through a schema once; a named type is known after its definition."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._open: set[str] = set()

    def record(self, schema: dict[str, Any], namespace: str) -> tuple[Field, ...]:
        name, namespace = _full_name(schema, namespace)
        self._open.add(name)
        found = tuple(Field(f["name"], self._type(f["type"], namespace, f["name"])) for f in schema["fields"])
        self._open.discard(name)
        self._named[name] = f"STRUCT<{ddl.render(found)}>"
        return found

    def _type(self, kind: Any, namespace: str, field: str) -> str:  # noqa: ANN401 - a schema is any JSON
        if isinstance(kind, list):
            return self._union(kind, namespace, field)
        if isinstance(kind, str):
            return _PRIMITIVES.get(kind) or self._reference(kind, namespace, field)
        if isinstance(kind["type"], dict | list):
            return self._type(kind["type"], namespace, field)
        return self._complex(kind, namespace, field)

    def _complex(self, kind: dict[str, Any], namespace: str, field: str) -> str:
        base, logical = kind["type"], kind.get("logicalType")
        if base in ("record", "error"):
            self.record(kind, namespace)
            return self._named[_full_name(kind, namespace)[0]]
        if base == "array":
            return f"ARRAY<{self._type(kind['items'], namespace, field)}>"
        if base == "map":
            return f"MAP<STRING, {self._type(kind['values'], namespace, field)}>"
        if logical == "decimal" and base in ("bytes", "fixed"):
            found = f"DECIMAL({kind['precision']},{kind.get('scale', 0)})"
        elif base == "enum":
            found = "STRING"
        elif base == "fixed":
            found = "BINARY"
        else:
            found = _LOGICAL.get((base, str(logical))) or self._type(base, namespace, field)
        if base in ("enum", "fixed"):
            self._named[_full_name(kind, namespace)[0]] = found
        return found

    def _reference(self, name: str, namespace: str, field: str) -> str:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if {full, name} & self._open:
            raise ValueError(f"{field}: type {name} holds itself, which no column can")
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise ValueError(f"{field}: type {name} is unknown")
        return found

    def _union(self, kinds: list[Any], namespace: str, field: str) -> str:
        rest = [kind for kind in kinds if kind != "null"]
        if len(rest) == 1:
            return self._type(rest[0], namespace, field)
        if set(map(str, rest)) == {"int", "long"}:
            return "BIGINT"
        if set(map(str, rest)) == {"float", "double"}:
            return "DOUBLE"
        raise ValueError(f"{field}: a union of {len(rest)} types is no column; only null and one type are")


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    name: str = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    space = schema.get("namespace", namespace)
    return (f"{space}.{name}" if space else name), space
