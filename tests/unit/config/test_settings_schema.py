"""The JSON Schema that is shipped: that of the settings, valid, and of one mind with the program."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from jsonschema import Draft202012Validator

from ingestor.config import schema
from ingestor.config.load import check
from ingestor.errors import ConfigError
from tests.support.settings import FILE, document, with_kafka, without
from tests.support.tools import config_table
from tests.unit.config.test_settings_fuzz import PATHS, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads(schema.text())
VALIDATOR = Draft202012Validator(SCHEMA)


def valid(changed: object) -> bool:
    """Return whether the schema accepts a document, in which a time is text as in JSON."""
    found: bool = VALIDATOR.is_valid(json.loads(json.dumps(changed, default=date.isoformat)))
    return found


def test_it_is_that_of_the_settings() -> None:
    """`python -m tests.support.tools.config_table` makes it again."""
    assert schema.text() == config_table.schema_text()
    Draft202012Validator.check_schema(SCHEMA)


def test_every_key_of_the_page_is_explained() -> None:
    route, top = SCHEMA["$defs"]["Route"]["properties"], SCHEMA["properties"]
    assert all(
        one["description"] for one in (*route.values(), *SCHEMA["$defs"]["ParseSettings"]["properties"].values())
    )
    assert "sizing](" not in top["memory"]["description"]
    assert top["memory"]["description"].startswith("all record buffers of the process")


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every whole configuration of the documents and of the deployment files."""
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            found = yaml.safe_load(block)
            if {"app_id", "routes"} <= found.keys():
                yield path.name, found
    yield "orders.yaml", yaml.safe_load((ROOT / "docker" / "config" / "orders.yaml").read_text())


def test_it_accepts_what_is_shown() -> None:
    shown = list(configurations())
    assert len(shown) > 2
    for name, found in shown:
        VALIDATOR.validate(json.loads(json.dumps(found, default=date.isoformat))), name


def defaults(node: object) -> Iterator[tuple[dict[str, Any], object]]:
    """Every schema with a default, and the default."""
    if isinstance(node, dict):
        if "default" in node and not isinstance(node["default"], dict):
            yield node, node["default"]
        for one in node.values():
            yield from defaults(one)
    if isinstance(node, list):
        for one in node:
            yield from defaults(one)


def test_every_default_is_valid() -> None:
    found = list(defaults(SCHEMA))
    assert len(found) > 30
    for node, default in found:
        assert VALIDATOR.evolve(schema={**node, "$defs": SCHEMA["$defs"]}).is_valid(default), node


@pytest.mark.parametrize(
    "changed",
    [
        document(routes__events__flush={"seconds": "5m", "bytes": "64MiB", "rows": 5}),
        document(routes__events__flush={"seconds": "${SECONDS:-60}", "rows": "${ROWS}"}),
        document(routes__events__compression="zstd:3", http=None, parse=None, storage_options=None),
        document(parse={"events": None}, http__port="${PORT}"),
        document(parse__events__dedupe={"by": "content", "within": "30d"}),
        document(log__level="info", memory=64 << 20),
        with_kafka(session_timeout_ms=6000, enable_auto_commit=False),
    ],
)
def test_it_accepts_what_people_write(changed: dict[str, Any]) -> None:
    VALIDATOR.validate(changed)


@pytest.mark.parametrize(
    "changed",
    [
        without("app_id"),
        without("routes"),
        document(routes={}),
        document(kafka={"bootstrap.servers": "a"}),
        document(routes__events__tabel="x"),
        document(routes__events__topics="events"),
        document(routes__events__topics=[]),
        document(routes__events__start="never"),
        document(routes__events__flush__seconds="5 minutes"),
        document(routes__events__flush__seconds=0),
        document(routes__events__flush__rows="many"),
        document(routes__events__compression="brotli"),
        document(memory="lots"),
        document(memory=31 << 20),
        document(http__port=70_000),
        document(log__level="LOUD"),
        document(parse__events__dedupe={"by": []}),
    ],
)
def test_it_marks_what_the_program_refuses(changed: dict[str, Any]) -> None:
    assert not valid(changed)
    with pytest.raises(ConfigError):
        check(changed, FILE, {})


def has_text_for_numbers(value: object) -> bool:
    """Return whether a number is written as text somewhere, which the program takes from the environment."""
    if isinstance(value, dict):
        return any(map(has_text_for_numbers, value.values()))
    if isinstance(value, list):
        return any(map(has_text_for_numbers, value))
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


@given(PATHS, VALUES)
def test_it_accepts_whatever_loads(path: tuple[str, ...], value: object) -> None:
    """An editor that marks what is right is switched off."""
    small: dict[str, Any] = {"parse": {"events": {}}, "http": {}, "log": {}, "dead_letters": {}}
    changed = document(**(small | {"__".join(path): value}))
    try:
        check(changed, FILE, {})
    except ConfigError:
        return
    assert valid(changed) or has_text_for_numbers(value)
