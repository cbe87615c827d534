"""The table of docs/configuration.md: every key and its default, taken from the settings; and the JSON Schema.

`python -m tests.support.tools.config_table` writes keys and defaults into the table; the third column stays. From both
it makes the schema that is shipped.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel, ByteSize

from ingestor.config import schema
from ingestor.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

_ROOT = Path(__file__).parents[3]
PAGE = _ROOT / "docs" / "configuration.md"
SCHEMA = _ROOT / "ingestor" / "config" / schema.FILE
HEAD = "| key | default | |\n|---|---|---|\n"
_NAMED = {"routes": "routes.NAME", "parse": "parse.NAME"}
_NEEDS_QUOTES = "{},: "  # at either end
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def rows() -> dict[str, str]:
    """Return every key with its default, as they are written in YAML."""
    return dict(_rows(Settings, ""))


def _rows(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        key = prefix + (field.alias or name)
        inner = _section_of(field)
        if key in _NAMED and inner is not None:
            yield from _rows(inner, f"{_NAMED[key]}.")
        else:
            yield key, "required" if field.is_required() else _yaml(field.get_default(call_default_factory=True), field)


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the section that a mapping from names holds."""
    values = get_args(field.annotation)[1:] if get_origin(field.annotation) is dict else ()
    return next((kind for kind in values if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _yaml(value: object, field: FieldInfo | None = None) -> str:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        inner = (f"{found.alias or name}: {_yaml(getattr(value, name), found)}" for name, found in fields.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    if isinstance(value, int) and not isinstance(value, bool) and field is not None and _is_size(field):
        return _size(value)
    return _scalar(value)


def _is_size(field: FieldInfo) -> bool:
    return field.annotation is ByteSize or ByteSize in get_args(field.annotation)


def _size(value: int) -> str:
    factor, unit = next((each for each in _UNITS if value % each[0] == 0), (1, ""))
    return f"{value // factor}{unit}"


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, timedelta):
        return f"{value // timedelta(hours=1)}h"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool):
        return str(value).lower()
    if value == '"':
        return f"'{value}'"
    return str(value) if str(value).strip(_NEEDS_QUOTES) == str(value) != "" else f'"{value}"'


def written() -> dict[str, tuple[str, str]]:
    """Return what the page says: by key the default, and the explanation."""
    return {
        key: (default, text)
        for key, default, text in re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*) \|$", _table(), re.MULTILINE)
    }


def _table() -> str:
    text = PAGE.read_text()
    start = text.index(HEAD) + len(HEAD)
    return text[start : text.index("\n\n", start) + 1]


def schema_text() -> str:
    """Return the schema's file, with what the page says of each key."""
    descriptions = {key: re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text) for key, (_, text) in written().items()}
    return json.dumps(schema.make(descriptions), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the table, then the schema."""
    known: dict[str, Any] = written()
    lines = "".join(
        f"| `{key}` | {default if default == 'required' else f'`{default}`'} | {known.get(key, ('', ''))[1]} |\n"
        for key, default in rows().items()
    )
    PAGE.write_text(PAGE.read_text().replace(HEAD + _table(), HEAD + lines))
    SCHEMA.write_text(schema_text())


if __name__ == "__main__":
    main()
