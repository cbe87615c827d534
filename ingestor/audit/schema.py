"""Checks that a table has the columns of its route, and no table feature that changes the meaning of its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ingestor.audit.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ingestor.audit.report import Findings
    from ingestor.records import RawSchema

_PROTOCOLS = ((1, 1), (1, 2))  # reader, writer: without deletion vectors, column mapping or any other table feature
_RETENTION = "delta.setTransactionRetentionDuration"
_TYPES = {
    "stream_topic": "string",
    "stream_partition": "integer",
    "stream_offset": "long",
    "message_timestamp": "timestamp",
    "message_payload": "binary",
    "message_key": "binary",
    "message_headers": "array<struct<key string, value binary>>",
    "message_timestamp_type": "string",
    "ingest_date": "date",
}


def check_schema(
    schema: RawSchema, metadata: Mapping[str, Any] | None, protocol: Mapping[str, Any] | None, findings: Findings
) -> None:
    """Report differences between the newest version and the route's configuration."""
    for sentence in _differences(schema, metadata or {}, protocol or {}):
        findings.add(Finding("schema", sentence))


def _differences(schema: RawSchema, metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> Iterator[str]:
    versions = (protocol.get("minReaderVersion"), protocol.get("minWriterVersion"))
    if versions not in _PROTOCOLS:
        yield f"the table has protocol {versions[0]}/{versions[1]}: its rows can't be judged by its files alone"
    if any(name == _RETENTION for name in dict(metadata.get("configuration") or {})):
        yield f"the table sets {_RETENTION}: txns expire, and partitions start afresh"
    if list(metadata.get("partitionColumns") or ()) != schema.partition_by:
        yield f"the table is partitioned by {metadata.get('partitionColumns')}, not by {schema.partition_by}"
    wanted = {name: _TYPES[name] for name in schema.table.names}
    fields = json.loads(metadata.get("schemaString") or "{}").get("fields", ())
    found = {field["name"]: _spelled(field["type"]) for field in fields}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            yield f"column {name} is {found.get(name, 'missing')}, the route wants {wanted.get(name, 'none')}"


def _spelled(kind: Any) -> str:  # noqa: ANN401 - a name, or an object that describes a nested type
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{_spelled(kind['elementType'])}>"
    if kind["type"] == "struct":
        fields = ", ".join(f"{field['name']} {_spelled(field['type'])}" for field in kind["fields"])
        return f"struct<{fields}>"
    return str(kind["type"])
