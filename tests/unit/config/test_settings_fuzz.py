from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingestor.config.load import check, load
from ingestor.config.settings import Settings
from ingestor.errors import ConfigError
from tests.support.settings import FILE, document

if TYPE_CHECKING:
    from pathlib import Path

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.datetimes()
    | st.dates()
    | st.text(max_size=20)
    | st.sampled_from(["^a", "a", "{topic}", "s3://a/b", "zstd:3", "24h", "content", "1e400", "9MiB"])
)
NAMES = st.text(max_size=5) | st.sampled_from(
    [
        *Settings.model_fields,
        *("topics", "table", "start", "flush", "rows", "bytes", "seconds", "occ", "retry", "by"),
        *("base_seconds", "max_seconds", "compression", "dedupe", "within", "csv", "cob", "field"),
        *("host", "port", "level", "format", "topic", "schema", "formats", "events", "rules"),
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PATHS = st.sampled_from(
    [
        *((name,) for name in Settings.model_fields),
        *(("routes", "events", name) for name in ("topics", "table", "start", "flush", "occ")),
        *(("routes", "events", name) for name in ("retry", "compression", "extra_columns")),
        *(("parse", "events", name) for name in ("schema", "dedupe", "csv", "cob", "formats")),
        *(("http", "port"), ("log", "level"), ("dead_letters", "topic"), ("kafka", "x")),
    ]
)


def loads_or_is_refused(changed: dict[str, Any]) -> None:
    try:
        check(changed, FILE, {})
    except ConfigError as error:
        assert "\n" not in error.message  # noqa: PT017 - loading is fine too


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_document_loads_or_is_refused(changed: dict[str, Any]) -> None:
    loads_or_is_refused(changed)


@given(st.lists(st.tuples(PATHS, VALUES), min_size=1, max_size=3))
def test_any_value_anywhere_loads_or_is_refused(
    changes: list[tuple[tuple[str, ...], object]],
) -> None:
    changed = document(parse__events={}, http={}, log={}, dead_letters={})
    for (*parents, last), value in changes:
        section: Any = changed
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section[last] = value
    loads_or_is_refused(changed)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_file_loads_or_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    file = tmp_path / "ingestor.yaml"
    file.write_text(yaml.safe_dump(document() | changed), encoding="utf-8")

    try:
        load(file, {})
    except ConfigError as error:
        assert error.exit_code == 2  # noqa: PT017 - loading is fine too
