"""`ingestor init`: writes a first configuration, with comments, that `check` accepts.

What is not given is asked for on a terminal. Kafka is asked whether it has the topics before anything is written.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

import yaml

from ingestor.config import file, schema
from ingestor.config.load import check
from ingestor.config.routing import matching
from ingestor.errors import ConfigError, RefusedError, Unavailable
from ingestor.kafka.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ingestor.config.settings import Route

SCHEMA_FILE = "ingestor.schema.json"
_BROKERS = "127.0.0.1:9092"
_SHOWN = 20
_PLAIN = re.compile(r"[A-Za-z0-9./][A-Za-z0-9._/:-]*")  # needs no quotes, unless YAML takes it for something else
_TEMPLATE = """\
# yaml-language-server: $schema={schema}
# Written by `ingestor init`. Try it with `ingestor check {file}`, start it with `ingestor run {file}`.
# ${{VAR}} and ${{VAR:-default}} come from the environment. Lines behind a # show other keys, most with their defaults;
# `ingestor schema` has all of them.

# The identity in the table's log. Never change it once the table has rows.
app_id: {app_id}

# Goes to librdkafka as it is.
kafka:
  bootstrap.servers: {brokers}
  group.id: {app_id}
  # security.protocol: SASL_SSL
  # sasl.mechanism: SCRAM-SHA-512
  # sasl.username: ingestor
  # sasl.password: ${{KAFKA_PASSWORD}}
  # ssl.ca.location: /etc/ssl/kafka-ca.pem

routes:
  {route}:
    # Names, or one regex in quotes that begins with ^.
    topics: [{topics}]
    # A path, relative to this file, or a URL such as s3://lake/raw/orders. Created if missing.
    table: {table}
    # Where to begin with a new topic: earliest, latest, or a time such as 2026-01-31T00:00:00Z.
    # start: earliest
    # When Kafka no longer has what comes next: fail (stop, exit 3) or skip (go on, and write the gap into the log).
    # on_data_loss: fail
    # Any of key, headers, timestamp_type.
    # extra_columns: []
    # A commit at the first of these; fewer, larger files cost less.
    # flush: {{rows: 1000000, bytes: 128MiB, seconds: 60s}}

# Goes to delta-rs as it is: credentials of the table's store, for instance.
# storage_options: {{AWS_REGION: eu-central-1, AWS_ACCESS_KEY_ID: "${{KEY:-}}", AWS_SECRET_ACCESS_KEY: "${{SECRET:-}}"}}

# All record buffers of the process together.
# memory: 256MiB

# The status page, probes and metrics; null turns them off.
# http: {{host: 127.0.0.1, port: 8080}}

# console or json; DEBUG, INFO, WARNING or ERROR.
# log: {{format: console, level: INFO}}
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the configuration is to say; None and () are not decided yet."""

    brokers: str | None = None
    topics: tuple[str, ...] = ()
    table: str | None = None
    app_id: str | None = None

    def missing(self) -> list[str]:
        """Return the options without which nothing can be written."""
        needed = {"--brokers": self.brokers, "--topic": self.topics, "--table": self.table}
        return [option for option, value in needed.items() if not value]


class Ask(Protocol):
    """Asks a person."""

    def __call__(self, question: str, default: str | None) -> str:
        """Return the answer, or the default."""


def init(
    path: Path,
    wanted: Wanted,
    *,
    ask: Ask | None,
    tell: Callable[[str], None],
    force: bool = False,
    look: bool = True,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Write a configuration and its schema beside it; write nothing if anything is wrong. `ask` is None: ask nobody."""
    environ = os.environ if environ is None else environ
    beside = path.with_name(SCHEMA_FILE)
    if path.exists() and not force:
        raise _exists(path)
    if missing := [] if ask else wanted.missing():
        raise ConfigError(
            f"init: {', '.join(missing)} not given", hint="give them, or run it on a terminal, which asks"
        )
    if not wanted.brokers and ask:
        wanted = dataclasses.replace(wanted, brokers=ask("Kafka's brokers", _BROKERS))
    existing = _topics(str(wanted.brokers), path, environ) if look else None
    if ask:
        wanted = _asked(wanted, ask, existing, tell)
    text = _written(wanted, path)
    settings = check(file.parse(text, path, environ), path, environ)
    (route,) = settings.routes.values()
    found = "" if existing is None else f": {_found(route, existing)}"
    _write(path, text, force=force)
    if force or not beside.exists():
        _write(beside, schema.text(), force=force)
    tell(f"{path} lands {', '.join(route.topics)} in {route.table}{found}")
    tell(f"next: ingestor check {path}")


def _topics(brokers: str, path: Path, environ: Mapping[str, str]) -> dict[str, int]:
    """Return the topics that Kafka has, without its own; a failure names the way on without looking."""
    servers = str(file.expand({"bootstrap.servers": brokers}, path, environ)["bootstrap.servers"])
    hint = "start the broker, or correct --brokers; --offline writes without looking, for a Kafka that needs a password"
    try:
        found = Broker({"bootstrap.servers": servers}).topics()
    except (Unavailable, RefusedError) as error:
        message = error.message if isinstance(error, RefusedError) else str(error)
        raise RefusedError(message, hint=hint) from error
    return {name: partitions for name, partitions in found.items() if not name.startswith("__")}


def _asked(wanted: Wanted, ask: Ask, existing: Mapping[str, int] | None, tell: Callable[[str], None]) -> Wanted:
    """Ask for what is missing, with what Kafka has to choose from."""
    topics, table = wanted.topics, wanted.table
    if not topics:
        if existing:
            more = ", …" if len(existing) > _SHOWN else ""
            tell(f"Kafka has: {', '.join(sorted(existing)[:_SHOWN])}{more}")
        only = next(iter(existing)) if existing and len(existing) == 1 else None
        topics = (ask("Topics (with commas between them, or one ^regex)", only),)
    if not table:
        first = _split(topics)[0]
        table = ask("Table (path or URL)", f"./lake/raw/{_name(first)}")
    app_id = wanted.app_id or ask("app_id (identity in the table's log, kept for ever)", _name(table))
    return dataclasses.replace(wanted, topics=topics, table=table, app_id=app_id)


def _split(topics: tuple[str, ...]) -> list[str]:
    """Return single topics; a regex may contain commas."""
    parts = [[text] if text.startswith("^") else text.split(",") for text in topics]
    return [name.strip() for part in parts for name in part if name.strip()] or [""]


def _name(location: str) -> str:
    """Return a route's name: the last part of a path, as far as its characters are allowed."""
    last = location.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("._-")[:100] or "events"


def _written(wanted: Wanted, path: Path) -> str:
    table = str(wanted.table)
    return _TEMPLATE.format(
        schema=SCHEMA_FILE,
        file=path.name,
        app_id=_quoted(wanted.app_id or _name(table)),
        brokers=_quoted(str(wanted.brokers)),
        route=_quoted(_name(table)),
        topics=", ".join(map(_quoted, _split(wanted.topics))),
        table=_quoted(table),
    )


def _quoted(text: str) -> str:
    plain = _PLAIN.fullmatch(text) is not None and yaml.safe_load(text) == text
    return text if plain else json.dumps(text, ensure_ascii=False)


def _found(route: Route, existing: Mapping[str, int]) -> str:
    """Return what Kafka has of a route; refuse a topic that it has not."""
    topics = matching(route, existing)
    missing = [topic for topic in topics if topic not in existing]
    if missing:
        near = get_close_matches(missing[0], existing, n=1)
        hint = f"did you mean {near[0]}?" if near else "create it, grant DESCRIBE on it, or name another"
        raise ConfigError(f"Kafka has no topic {', '.join(missing)}", hint=hint)
    partitions = sum(existing[topic] for topic in topics)
    return f"{len(topics)} {'topic' if len(topics) == 1 else 'topics'}, {partitions} partitions now"


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        message = f"{path}: can't be written: {error.strerror or type(error).__name__}"
        raise ConfigError(message, hint="give a path in a folder that exists and that you may write to") from None


def _exists(path: Path) -> ConfigError:
    return ConfigError(f"{path}: exists already", hint="give another path, or --force to overwrite it")
