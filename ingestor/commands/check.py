"""`ingestor check`: a preflight. It finds what `run` would refuse or wait for, by calling `run`'s own functions.

It prints a line per check and ends with the exit code that `run` would have. It leaves no change: the objects that
probe the store and the group that tries the group protocol have their own names, and are removed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ingestor.commands.group_trial import try_protocol
from ingestor.commands.opening import OpenRoute, open_if_there
from ingestor.config.routing import Router, matching, refuse_one_table_twice
from ingestor.delta.probe import probe
from ingestor.delta.storage import local_root
from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable
from ingestor.kafka.broker import Broker
from ingestor.kafka.consumer import KafkaSource
from ingestor.observe import http
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ingestor.config.settings import Route, Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    status: Literal["ok", "note", "FAIL"]
    text: str
    exit_code: int = 0

    def __str__(self) -> str:
        return f"{self.status:<4}  {self.name}: {self.text}"


def check(
    load: Callable[[], Settings], tell: Callable[[str], None], *, probing: bool = True, as_json: bool = False
) -> None:
    """Run and show all checks, beginning with the configuration; raise the failure with the lowest exit code."""
    found: list[Finding] = []
    show = found.append if as_json else lambda one: tell(str(one))
    code = IngestorError.exit_code
    try:
        _Preflight(_configuration(load, show), show, probing=probing).run()
        code = 0
    except IngestorError as error:
        code = error.exit_code
        raise
    finally:
        if as_json:
            checks = [dataclasses.asdict(finding) for finding in found]
            tell(json.dumps({"ok": code == 0, "exit_code": code, "checks": checks}))


def _configuration(load: Callable[[], Settings], tell: Callable[[Finding], None]) -> Settings:
    name = "configuration"
    try:
        settings = load()
    except ConfigError as error:
        tell(Finding(name, "FAIL", str(error), error.exit_code))
        raise
    tell(Finding(name, "ok", f"{len(settings.routes)} route(s), app_id {settings.app_id}"))
    return settings


class _Preflight:
    """The checks in order; each is shown as soon as it is done, and a failure does not stop the others."""

    def __init__(self, settings: Settings, tell: Callable[[Finding], None], *, probing: bool) -> None:
        self._settings = settings
        self._tell = tell
        self._probing = probing
        self._problems: list[IngestorError] = []
        self._topics: dict[str, int] | None = None  # None: Kafka does not answer
        self._identities: dict[str, object] = {}  # of the routes' tables

    def run(self) -> None:
        settings = self._settings
        if settings.http is not None:
            self._one("http", self._http)
        for name in settings.parse:
            self._one(f"parse of {name}", lambda name=name: self._parse(name))  # type: ignore[misc]
        broker = self._kafka()
        for name, route in settings.routes.items():
            self._route(name, route, broker)
        if self._problems:
            raise min(self._problems, key=lambda error: error.exit_code)

    def _one(self, name: str, step: Callable[[], str]) -> bool:
        """Run one check; return whether it passed."""
        try:
            text = step()
        except IngestorError as error:
            problem, text = error, str(error)
        except Unavailable as error:
            problem = RefusedError(f"{name}: {error}", hint="see that it runs and is reachable from here")
            text = str(error)
        else:
            self._tell(Finding(name, "ok", text))
            return True
        self._problems.append(problem)
        self._tell(Finding(name, "FAIL", text.removeprefix(f"{name}: "), problem.exit_code))
        return False

    def _note(self, name: str, text: str) -> None:
        self._tell(Finding(name, "note", text))

    def _http(self) -> str:
        wanted = self._settings.http
        assert wanted is not None  # noqa: S101 - for the type checker
        http.require_port(wanted.host, wanted.port)
        return f"{wanted.host}:{wanted.port} is free"

    def _parse(self, name: str) -> str:
        """Check what the Spark job checks before it starts a JVM."""
        try:
            from spark_jobs.plan import plan  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            return f"not checked, the extra `spark` is not installed here ({error.name} is missing)"
        made = plan.make(name, self._settings.parse[name])
        return f"{len(made.fields)} fields, {len(made.rules)} rules (the job checks them again with Spark)"

    def _kafka(self) -> Broker | None:
        """Check Kafka and the consumer group; return the broker, None if none answers."""
        brokers: list[Broker] = []

        def reach() -> str:
            settings = self._settings
            # Only librdkafka can check a consumer's options; this consumer joins no group.
            KafkaSource(settings.kafka, (), route_of=str, queue_bytes=settings.memory // 4, flush_seconds=1).close()
            brokers.append(Broker(settings.kafka))
            self._topics = brokers[0].topics()
            return f"{settings.kafka['bootstrap.servers']} answers, {len(self._topics)} topics"

        if not self._one("kafka", reach):
            return None
        self._one("group", lambda: self._group(brokers[0]))
        return brokers[0]

    def _group(self, broker: Broker) -> str:
        group_id = self._settings.kafka["group.id"]
        group = broker.group(group_id)
        if self._settings.kafka.get("group.protocol") == "consumer":
            try_protocol(self._settings, broker)
        if group is None:
            return f"{group_id} (this cluster can't list its members)"
        return f"{group_id} has {len(group.members)} members" + (f": {group.shown}" if group.members else "")

    def _route(self, name: str, route: Route, broker: Broker | None) -> None:
        opened: list[OpenRoute | None] = []

        def open_table() -> str:
            root = local_root(route.table)
            if root is not None:
                _check_folder(root, route.table)
            found = open_if_there(self._settings, route, broker or Broker(self._settings.kafka), remember=False)
            opened.append(found)
            # A table that does not exist yet is identified by its resolved path.
            self._identities[name] = (
                (root.resolve() if root else route.table) if found is None else found.table.identity
            )
            refuse_one_table_twice(self._settings.txn_app_id, self._identities)
            if found is None:
                return f"{route.table} does not exist yet and will be created"
            committed = len(found.app_ids.read(found.table.txns))
            return f"{route.table} at version {found.table.version}, {committed} partitions committed"

        if self._topics is not None:
            self._one(f"topics of {name}", lambda: self._matching(route))
        well = self._one(f"table of {name}", open_table)
        if well and self._probing:
            self._one(f"store of {name}", lambda: self._probe(route))
        if well and opened[0] is not None and self._topics is not None:
            found = opened[0]
            self._one(f"partitions of {name}", lambda: self._places(name, route, found))

    def _matching(self, route: Route) -> str:
        existing = self._topics or {}
        wanted = matching(route, existing)
        missing = [topic for topic in wanted if topic not in existing]
        if missing:
            msg = f"topic {', '.join(missing)} does not exist, or this user may not see it"
            raise ConfigError(msg, hint="create it, grant DESCRIBE on it, or correct the route's topics")
        router = Router(self._settings)
        for topic in wanted:
            router(topic)
        if not wanted:
            return f"none matches {route.topics[0]} yet; topics that appear later are picked up"
        return ", ".join(f"{topic} ({existing[topic]} partitions)" for topic in wanted)

    def _places(self, name: str, route: Route, opened: OpenRoute) -> str:
        """Place every partition as `run` would: this finds foreign rows, lost records and recreated topics."""
        existing = self._topics or {}
        tps = [TopicPartition(topic, n) for topic in matching(route, existing) for n in range(existing.get(topic, 0))]
        placed = dataclasses.replace(opened.placer, skip_lost=True).place(tps)
        gaps = [placement.gap for placement in placed.placements.values() if placement.gap is not None]
        for gap in gaps:
            skips = (
                "on_data_loss: skip passes over them" if opened.placer.skip_lost else "on_data_loss: fail stops at them"
            )
            self._note(f"partitions of {name}", f"Kafka no longer has {gap}; {skips}")
        opened.placer.refuse_loss(placed.placements)
        new = sum(txn is None for txn in placed.txns.values())
        return f"{len(tps)} can be read, {new} of them from their start" if new else f"{len(tps)} can be read"

    def _probe(self, route: Route) -> str:
        probe(route.table, self._settings.storage_options)
        return f"the store of {route.table} gives each log entry one winner"


def _check_folder(root: Path, table: str) -> None:
    """Refuse a path that can't be written, without writing."""
    folder = root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        what = "the path is a file, not a folder" if folder == root else f"{folder} is a file"
        raise RefusedError(f"table {table}: {what}", hint="choose another table path, or move the file away")
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        msg = f"table {table}: {folder} is on a read-only file system"
        raise RefusedError(msg, hint="mount it writable, or choose another table path")
    if not os.access(folder, os.W_OK | os.X_OK):
        msg = f"table {table}: {folder} can't be written by this user"
        raise RefusedError(msg, hint="give the ingestor's user write access, or choose another table path")
