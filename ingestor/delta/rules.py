"""Which tables the ingestor refuses to write: those it would damage, and those that would make it forget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltalake import Schema

from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ingestor.records import RawSchema

PROTOCOLS = ((1, 1), (1, 2))  # reader, writer
_RETENTION = "delta.setTransactionRetentionDuration"


def verify_schema(uri: str, handle: DeltaTable, schema: RawSchema) -> None:
    """Refuse a table of another schema, with a feature we can't keep, or whose txns expire."""
    protocol = handle.protocol()
    if (protocol.min_reader_version, protocol.min_writer_version) not in PROTOCOLS:
        features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
        msg = (
            f"table {uri} has protocol {protocol.min_reader_version}/{protocol.min_writer_version}"
            f"{' with ' + ', '.join(features) if features else ''}; the ingestor keeps 1/2 without table features"
        )
        raise RefusedError(msg, hint="drop the features (ALTER TABLE … DROP FEATURE) or ingest into a new table")
    metadata = handle.metadata()
    if _RETENTION in metadata.configuration:
        msg = f"table {uri} sets {_RETENTION}: txn actions would expire and partitions start afresh"
        raise RefusedError(msg, hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_RETENTION}')")
    if list(metadata.partition_columns) != schema.partition_by:
        msg = f"table {uri} is partitioned by {list(metadata.partition_columns)}, not by {schema.partition_by}"
        raise RefusedError(msg, hint="set the route's partition_by to match, or ingest into a new table")
    wanted = _fields(Schema.from_arrow(schema.table))
    found = _fields(handle.schema())
    if {name: kind for name, (kind, _) in wanted.items()} != {name: kind for name, (kind, _) in found.items()}:
        msg = f"table {uri} has another schema: {_difference(wanted, found)}"
        raise RefusedError(msg, hint="set the route's extra_columns to match, or ingest into a new table")
    strict = [name for name, (_, nullable) in found.items() if not nullable and wanted[name][1]]
    if strict:
        msg = f"table {uri} forbids nulls in {', '.join(strict)}, where Kafka may have none"
        raise RefusedError(msg, hint="ALTER TABLE … ALTER COLUMN … DROP NOT NULL, or ingest into a new table")


def _fields(schema: Schema) -> dict[str, tuple[str, bool]]:
    """Return each column's type as text, and whether it may be null."""
    fields = json.loads(schema.to_json())["fields"]
    return {field["name"]: (_type_text(field["type"]), field["nullable"]) for field in fields}


def _type_text(kind: object) -> str:
    """Spell a Delta type without the nullability of what is nested: writers differ in it."""
    if isinstance(kind, Mapping):
        inner = kind.get("elementType") or [(f["name"], _type_text(f["type"])) for f in kind.get("fields", ())]
        return f"{kind['type']}<{_type_text(inner)}>"
    return str(kind)


def _difference(wanted: Mapping[str, tuple[str, bool]], found: Mapping[str, tuple[str, bool]]) -> str:
    parts = [f"{name} is missing" for name in wanted if name not in found]
    parts += [f"{name} is not ours" for name in found if name not in wanted]
    both = [name for name in wanted if name in found and wanted[name][0] != found[name][0]]
    return "; ".join(parts + [f"{name} is {found[name][0]}, not {wanted[name][0]}" for name in both])
