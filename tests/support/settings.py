"""Configurations for tests: a small one that loads, and ways to change it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.config.load import check
from ingestor.errors import ConfigError

if TYPE_CHECKING:
    from ingestor.config.settings import Settings

FILE = Path("/etc/orders/ingestor.yaml")
MINIMAL: dict[str, Any] = {
    "app_id": "orders",
    "kafka": {"bootstrap.servers": "kafka:9092", "group.id": "orders"},
    "routes": {"events": {"topics": ["events"], "table": "lake/events"}},
}


def document(**changes: Any) -> dict[str, Any]:
    """Return a small configuration with changes: `routes__events__start=…` reaches inside."""
    changed = copy.deepcopy(MINIMAL)
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        section = changed
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return changed


def checked(**changes: Any) -> Settings:
    return check(document(**changes), FILE, {})


def refusal(changed: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(changed, FILE, {})
    assert caught.value.message.startswith(f"{FILE}: ")
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None  # pydantic's error would quote secrets in a traceback
    return caught.value


def with_kafka(**options: Any) -> dict[str, Any]:
    changed = document()
    changed["kafka"] |= {name.replace("_", "."): value for name, value in options.items()}
    return changed


def two_routes(**other: Any) -> dict[str, Any]:
    return document(routes__other={"topics": ["other"], "table": "lake/other"} | other)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in document().items() if key != name}
