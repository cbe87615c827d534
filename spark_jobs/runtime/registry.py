"""The schema registry, called on the driver only: the schema of an id in front of a record."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ingestor.errors import RefusedError
from spark_jobs.plan import avro

# A dependency warns of its own next version, past every filter; users can't act on it.
with warnings.catch_warnings(record=True):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_FOUND = 404
_TIMEOUT_SECONDS = 10


def writers(url: str, ids: Iterable[int]) -> dict[int, str | None]:
    """Return each id's schema; None for an unknown id, or if its schema is no Avro record."""
    client = _client(url)
    return {number: _schema(client, number, url) for number in ids}


def _client(url: str) -> Any:  # noqa: ANN401 - the client is untyped
    parts = urlsplit(url)
    host = parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    conf: dict[str, Any] = {
        "url": urlunsplit((parts.scheme, place, parts.path, "", "")),
        "timeout": _TIMEOUT_SECONDS,
        "max.retries": 2,
    }
    if parts.username:
        conf["basic.auth.user.info"] = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return SchemaRegistryClient(conf)


def _schema(client: Any, number: int, url: str) -> str | None:  # noqa: ANN401 - same
    place = urlsplit(url).hostname
    hint = "start it, or correct parse.schema_registry; nothing was written"
    try:
        found = client.get_schema(number)
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            return None
        msg = f"the schema registry at {place} answers {error.http_status_code} for schema {number}"
        raise RefusedError(msg, hint=hint) from error
    except Exception as error:  # the HTTP library's own classes
        msg = f"the schema registry at {place} can't be reached ({type(error).__name__})"
        raise RefusedError(msg, hint=hint) from error
    if str(found.schema_type or "AVRO") != "AVRO" or found.schema_str is None:
        return None
    text = _with_references(client, found)
    try:
        avro.load(text)
    except ValueError:
        return None
    return text


def _with_references(client: Any, found: Any) -> str:  # noqa: ANN401 - same
    """Return a schema's text with referenced types inserted where they are first named."""
    text: str = found.schema_str
    named: dict[str, Any] = {}
    for reference in found.references or ():
        inner = client.get_version(reference.subject, reference.version)
        named[reference.name] = json.loads(_with_references(client, inner.schema))
    return json.dumps(_inlined(json.loads(text), named)) if named else text


def _inlined(schema: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(schema, str):
        return named.pop(schema, schema)  # defined at its first use, referenced by name afterwards
    if isinstance(schema, list):
        return [_inlined(each, named) for each in schema]
    if isinstance(schema, dict):
        inner = {key: _inlined(schema[key], named) for key in ("type", "items", "values") if key in schema}
        fields = [{**field, "type": _inlined(field["type"], named)} for field in schema.get("fields", ())]
        return {**schema, **inner, **({"fields": fields} if "fields" in schema else {})}
    return schema
