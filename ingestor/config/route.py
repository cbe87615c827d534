"""A route's settings: its topics, its table, when it flushes and how it retries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PrivateAttr, WithJsonSchema, field_validator, model_validator

from ingestor.config.types import (
    MIB,
    Count,
    Distinct,
    Number,
    Place,
    Retries,
    Seconds,
    Section,
    Size,
    Start,
    Topics,
    refuse,
)
from ingestor.records import EXTRA_COLUMNS, INGEST_DATE, RawSchema

if TYPE_CHECKING:
    from typing import Self

_COMPRESSION = re.compile(r"(zstd|gzip|snappy|lz4|none|uncompressed)(?::(\d{1,2}))?")
_LEVELS_MAX = {"zstd": 22, "gzip": 9}


class FlushSettings(Section):
    """When a draft is flushed: at the first limit reached, also when no more records come."""

    rows: Count = 1_000_000
    bytes: Size = 128 * MIB  # type: ignore[assignment]  # an int will do
    seconds: Seconds = 60.0


class _Backoff(Section):
    """A backoff from `base_seconds` up to `max_seconds`."""

    max_retries: Retries
    base_seconds: Seconds
    max_seconds: Seconds

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.base_seconds > self.max_seconds:
            what = f"base_seconds {self.base_seconds:g} is more than max_seconds {self.max_seconds:g}"
            raise refuse(what, "make base_seconds the smaller one")
        return self


class OccSettings(_Backoff):
    """How often a commit is tried again when other writers win the log version."""

    max_retries: Retries = 100
    base_seconds: Seconds = 0.1
    max_seconds: Seconds = 10.0


class RetrySettings(_Backoff):
    """How often a failed storage call is retried before it counts against the breaker."""

    max_retries: Retries = 3
    base_seconds: Seconds = 1.0
    max_seconds: Seconds = 30.0
    jitter: Annotated[float, Field(ge=0, le=1), Number] = 0.25


class Route(Section):
    """Topics that are ingested into one table, and how."""

    topics: Topics
    table: Place
    start: Start = "earliest"
    on_data_loss: Literal["fail", "skip"] = "fail"
    extra_columns: Annotated[tuple[Literal["key", "headers", "timestamp_type"], ...], Distinct] = ()
    partition_by: Annotated[tuple[Literal["ingest_date"], ...], Distinct] = ()
    flush: FlushSettings = FlushSettings()
    occ: OccSettings = OccSettings()
    retry: RetrySettings = RetrySettings()
    compression: Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{_COMPRESSION.pattern}$"})] = "zstd"
    clean_log: bool = True
    _name: str = PrivateAttr(default="")

    @field_validator("compression")
    @classmethod
    def _codec(cls, text: str) -> str:
        match = _COMPRESSION.fullmatch(text)
        level_max = _LEVELS_MAX.get(match[1], 0) if match else 0
        if match is None or (match[2] is not None and not 1 <= int(match[2]) <= level_max):
            raise refuse(
                "is not a compression",
                "choose zstd, zstd:1 to zstd:22, gzip, gzip:1 to gzip:9, snappy, lz4 or none",
            )
        return "none" if text == "uncompressed" else text

    @property
    def name(self) -> str:
        """The route's key in the file."""
        return self._name

    @property
    def is_regex(self) -> bool:
        """Return whether `topics` is a regex."""
        return self.topics[0].startswith("^")

    def matches(self, topic: str) -> bool:
        """Return whether a topic belongs to this route; a regex has to match the beginning only."""
        if self.is_regex:
            return re.match(self.topics[0], topic) is not None
        return topic in self.topics

    @property
    def schema(self) -> RawSchema:  # type: ignore[override]  # hides a deprecated method of pydantic
        """The columns of the raw table."""
        extras = tuple(name for name in EXTRA_COLUMNS if name in self.extra_columns)
        return RawSchema(extras, partitioned=INGEST_DATE in self.partition_by)
