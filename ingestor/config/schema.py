"""The configuration's JSON Schema, by which editors complete and check a file.

It is made from the settings and the table of docs/configuration.md, and kept as `schema.json` beside this module, since
the documents are not installed. It accepts whatever the program accepts; only the program finds contradictions.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from ingestor.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "schema.json"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}  # ${VAR} may stand for any scalar
_SECTIONS = {"routes.NAME.": "Route", "parse.NAME.": "ParseSettings"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
_TEXT_LIMITS = frozenset(("enum", "const", "pattern", "format", "minLength", "maxLength"))
_ABOUT = frozenset(("default", "description"))


def text() -> str:
    """Return the schema as it is shipped."""
    return resources.files("ingestor.config").joinpath(FILE).read_text(encoding="utf-8")


def make(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of the settings; `descriptions` has what to say of each key, such as `routes.NAME.start`."""
    made = Settings.model_json_schema()
    parse = made["properties"]["parse"]
    parse["additionalProperties"] = {"anyOf": [parse["additionalProperties"], {"type": "null"}]}
    parse["type"] = ["object", "null"]
    for key, words in descriptions.items():
        prefix = next((prefix for prefix in _SECTIONS if key.startswith(prefix)), "")
        section = made["$defs"][_SECTIONS[prefix]] if prefix else made
        section["properties"][key.removeprefix(prefix)]["description"] = words
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "ingestor's configuration"}
    return about | _mended(made)


def _mended(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without pydantic's titles, with bounds as keywords, and with `${VAR}` for every scalar."""
    made = {key: value for key, value in schema.items() if key != "title"}
    for bound, keyword in _BOUNDS.items():
        if bound in made:  # pydantic's own key, where it can't tell which member it is for
            limit = made.pop(bound)
            made["anyOf"] = [one | {keyword: limit} if one["type"] == "integer" else one for one in made["anyOf"]]
    for key in ("properties", "patternProperties", "$defs"):
        if key in made:
            made[key] = {name: _mended(value) for name, value in made[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _mended(made[key])
    members = made.get("anyOf", [made])
    if not any(_is_limited(one) for one in members) or any(one == {"type": "string"} for one in members):
        return made
    about = {key: value for key, value in made.items() if key in _ABOUT}
    rest = {key: value for key, value in made.items() if key not in _ABOUT}
    return {"anyOf": [*rest.get("anyOf", [rest]), _VARIABLE], **about}


def _is_limited(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema takes a scalar, but not any text."""
    return schema.get("type") in ("integer", "number", "boolean") or bool(schema.keys() & _TEXT_LIMITS)
