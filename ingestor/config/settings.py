"""The configuration: one YAML file, checked as a whole before anything is touched.

`load` is the entry. `file` reads the YAML, `types` checks single values, `rules` checks values against each other, and
`problems` describes what is wrong.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator

from ingestor.config.options import option_text
from ingestor.config.parse import ParseSettings
from ingestor.config.route import FlushSettings, OccSettings, RetrySettings, Route
from ingestor.config.types import MIB, Count, Number, RouteName, Seconds, Section, Size, Text
from ingestor.ledger import DEFAULT_TEMPLATE

__all__ = [
    "BreakerSettings",
    "DeadLetterSettings",
    "FlushSettings",
    "HttpSettings",
    "LogSettings",
    "OccSettings",
    "ParseSettings",
    "RetrySettings",
    "Route",
    "Settings",
]


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_OPTION = {"type": ["string", "number", "boolean"]}
KafkaOptions = Annotated[
    dict[str, str],
    WithJsonSchema({"type": "object", "required": ["bootstrap.servers", "group.id"], "additionalProperties": _OPTION}),
]
StorageOptions = Annotated[
    dict[str, str], WithJsonSchema({"type": ["object", "null"], "additionalProperties": _OPTION})
]


class BreakerSettings(Section):
    """When the breaker opens, how long it stays open, and when it closes."""

    failures: Count = 5
    open_seconds: Seconds = 60.0
    successes: Count = 3


class HttpSettings(Section):
    """Where the read-only HTTP server listens; port 0 takes any free port."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535), Number] = 8080


class LogSettings(Section):
    """The log's level and format."""

    format: Literal["console", "json"] = "console"
    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        WithJsonSchema({"enum": [*_LEVELS, *map(str.lower, _LEVELS)]}),
    ] = "INFO"

    @field_validator("level", mode="before")
    @classmethod
    def _any_case(cls, level: object) -> object:
        return level.upper() if isinstance(level, str) else level


class DeadLetterSettings(Section):
    """The topic and format of dead letters."""

    topic: Text = "{topic}-dlq"
    format: Literal["headers", "envelope"] = "headers"
    create: bool = True

    def topic_for(self, topic: str) -> str:
        """Return the dead letter topic of a topic."""
        return self.topic.replace("{topic}", topic)


class Hidden(dict[str, str]):
    """Options that may be secret: `repr` shows their names only."""

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: …' for name in self)}}}"

    __str__ = __repr__


class Settings(Section):
    """The whole configuration. Values of `kafka` and `storage_options` are never shown."""

    app_id: Annotated[Text, Field(max_length=200)]
    txn_app_id: Text = DEFAULT_TEMPLATE
    kafka: KafkaOptions = Field(repr=False)
    storage_options: StorageOptions = Field(default={}, repr=False)
    memory: Annotated[Size, Field(ge=32 * MIB)] = 256 * MIB  # type: ignore[assignment]  # an int will do
    routes: Annotated[dict[RouteName, Route], Field(min_length=1)]
    breaker: BreakerSettings = BreakerSettings()
    http: HttpSettings | None = HttpSettings()
    log: LogSettings = LogSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    parse: dict[str, ParseSettings] = Field(default_factory=dict[str, ParseSettings])

    @field_validator("kafka", "storage_options", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Turn booleans and numbers into text for librdkafka and delta-rs."""
        if isinstance(value, dict):
            return {key: option_text(item) for key, item in value.items()}
        return {} if value is None else value

    @field_validator("kafka", "storage_options")
    @classmethod
    def _hidden(cls, options: dict[str, str]) -> Hidden:
        return Hidden(options)

    @field_validator("parse", mode="before")
    @classmethod
    def _nothing_to_parse(cls, value: object) -> object:
        return {} if value is None else value

    @field_validator("routes")
    @classmethod
    def _named(cls, routes: dict[str, Route]) -> dict[str, Route]:
        for name, route in routes.items():
            route._name = name  # noqa: SLF001 - pydantic does not give a value its key
        return routes

    @field_validator("parse")
    @classmethod
    def _placed(cls, parse: dict[str, ParseSettings], info: ValidationInfo) -> dict[str, ParseSettings]:
        routes: dict[str, Route] = info.data.get("routes", {})
        return {name: item.beside(routes[name].table) if name in routes else item for name, item in parse.items()}

    def route_of(self, topic: str) -> Route | None:
        """Return the first route that matches a topic."""
        return next((route for route in self.routes.values() if route.matches(topic)), None)
