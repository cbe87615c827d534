"""`ingestor check`: reaches for everything that `run` will need, one line each, and changes nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ingestor.broker import Broker
from ingestor.deltalog import txns_at
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable
from ingestor.kafka_source import KafkaSource
from ingestor.routing import app_ids, matching
from ingestor.storage import local_root
from ingestor.table_open import open_existing, open_handle
from ingestor.table_rules import verify_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ingestor.settings import Route, Settings


def check(settings: Settings, tell: Callable[[str], None]) -> None:
    """Tell what is well and what is not; raise the gravest of what is not, configuration first."""
    tell(f"ok    configuration: {len(settings.routes)} route(s), app_id {settings.app_id}")
    problems: list[IngestorError] = []

    def one(name: str, step: Callable[[], str]) -> None:
        try:
            tell(f"ok    {name}: {step()}")
        except IngestorError as error:
            problems.append(error)
            tell(f"FAIL  {name}: {str(error).removeprefix(f'{name}: ')}")
        except Unavailable as error:
            problems.append(RefusedError(f"{name}: {error}", hint="see that it runs and can be reached from here"))
            tell(f"FAIL  {name}: {error}")

    topics: dict[str, int] = {}

    def kafka() -> str:
        # Only a consumer can tell what is wrong with a consumer's options; this one joins no group.
        KafkaSource(settings.kafka, (), route_of=str, queue_bytes=settings.memory // 4, flush_seconds=1).close()
        topics.update(Broker(settings.kafka).topics())
        return f"{settings.kafka['bootstrap.servers']} answers, {len(topics)} topics"

    one("kafka", kafka)
    reached = not problems
    for name, route in settings.routes.items():
        if reached:
            one(f"topics of {name}", lambda route=route: _topics(route, topics))  # type: ignore[misc]
        one(f"table of {name}", lambda route=route: _table(settings, route))  # type: ignore[misc]
    if problems:
        raise min(problems, key=lambda error: error.exit_code)


def _topics(route: Route, existing: dict[str, int]) -> str:
    wanted = matching(route, existing)
    missing = [topic for topic in wanted if topic not in existing]
    if missing:
        msg = f"topic {', '.join(missing)} does not exist, or this user may not see it"
        raise ConfigError(msg, hint="create it, grant DESCRIBE on it, or correct the route's topics")
    if not wanted:
        return f"none matches {route.topics[0]} yet; what appears later is picked up"
    return ", ".join(f"{topic} ({existing[topic]} partitions)" for topic in wanted)


def _table(settings: Settings, route: Route) -> str:
    root = local_root(route.table)
    if root is not None:
        _check_folder(root, route.table)
    found = open_existing(route.table, settings.storage_options)
    if found is None:
        return f"{route.table} does not exist yet and will be created"
    version, storage = found
    verify_schema(route.table, open_handle(route.table, settings.storage_options), route.schema)
    known = app_ids(settings, route).read(txns_at(storage, version))
    return f"{route.table} at version {version}, {len(known)} partitions committed"


def _check_folder(root: Path, table: str) -> None:
    """Refuse a path that can't be written, without writing."""
    folder = root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        what = "the path is a file, not a folder" if folder == root else f"{folder} is a file"
        raise RefusedError(f"table {table}: {what}", hint="choose another table path, or move the file away")
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        msg = f"table {table}: {folder} lies on a read-only file system"
        raise RefusedError(msg, hint="mount it writable, or choose another table path")
    if not os.access(folder, os.W_OK | os.X_OK):
        msg = f"table {table}: {folder} can't be written by this user"
        raise RefusedError(msg, hint="give the ingestor's user write access, or choose another table path")
