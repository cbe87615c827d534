"""The `parse` section: what the Spark jobs make of a route's raw table (docs/configuration.md).

Only the shape is checked here, without Spark. The job checks schemas and rules.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ingestor.config.types import (
    Distinct,
    Duration,
    Names,
    Place,
    Section,
    Text,
    duration,
    place,
    refuse,
)

Format = Literal["json", "csv", "avro"]
Unit = Literal["iso", "seconds", "millis", "micros"]
Char = Annotated[str, StringConstraints(min_length=1, max_length=1)]
RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")]  # joined by ; and :
OWN_COLUMNS = (
    "processing_version",
    "source_topic",
    "stream_partition",
    "stream_offset",
    "message_timestamp",
)


class CsvSettings(Section):
    """The CSV dialect; `columns` defaults to the schema's columns in order."""

    columns: Names = ()
    delimiter: Char = ","
    header: bool = False
    quote: Char | None = '"'
    escape: Char | None = None
    null: str = ""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        chars = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for name, char in chars.items():
            if char is not None and char in "\r\n":
                raise refuse(f"has a line break as {name}", "choose another character")
        if self.delimiter in (self.quote, self.escape):
            other = "quote" if self.delimiter == self.quote else "escape"
            raise refuse(f"has the same character as delimiter and {other}", "choose different ones")
        if self.escape is not None and self.quote is None:
            raise refuse("has an escape but no quote", "drop escape: it only has a meaning between quotes")
        return self


class CobSettings(Section):
    """The field with the business date, and its silver column."""

    field: Text
    column: Text = "cob_date"

    @field_validator("column")
    @classmethod
    def _own(cls, column: str) -> str:
        if column in OWN_COLUMNS:
            raise refuse("is a column that silver has anyway", "choose another name")
        return column


def _dedupe_by(value: object) -> object:
    """Take `content` or field names; one validator, since pydantic reports one error per member of a union."""
    if value == "content":
        return value
    names = tuple(value) if isinstance(value, list | tuple) else ()
    texts = all(isinstance(name, str) and name.strip() for name in names)
    if names and texts and len(set(names)) == len(names):
        return names
    raise refuse("names no fields", "name fields, such as [request_id], or write content")


class DedupeSettings(Section):
    """What makes two records duplicates: equal fields, or `content`, the payload's hash."""

    by: Annotated[
        tuple[str, ...] | Literal["content"],
        PlainValidator(_dedupe_by),
        WithJsonSchema(
            {"anyOf": [{"const": "content"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
        ),
    ]
    within: Duration = Field(default=duration("24h"), json_schema_extra={"default": "24h"})


class ParseSettings(Section):
    """How one route is parsed. Paths that are left out default to ones beside the raw table."""

    table: Place = ""
    quarantine: Place = ""
    checkpoint: Place = ""
    formats: Annotated[tuple[Format, ...], Field(min_length=1), Distinct] = ("json", "csv", "avro")
    strict: bool = True
    timestamps: dict[Text, Unit] = Field(default_factory=dict)
    schema_source: Text | None = Field(default=None, alias="schema")
    schema_registry: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    csv: CsvSettings = CsvSettings()
    cob: CobSettings | None = None
    required: Names = ()
    rules: dict[RuleName, Text] = Field(default_factory=dict)
    processing_version: Text = "1.0"
    dedupe: DedupeSettings | None = None
    partition_by: Names = ()
    tombstones: Literal["ignore", "quarantine"] = "ignore"

    @model_validator(mode="before")
    @classmethod
    def _nothing_said(cls, value: object) -> object:
        return {} if value is None else value

    @field_validator("schema_source")
    @classmethod
    def _schema_file(cls, source: str | None, info: ValidationInfo) -> str | None:
        """Make the path of an Avro schema absolute; anything else is a DDL string."""
        return place(source, info) if source and source.endswith(".avsc") else source

    @model_validator(mode="after")
    def _registry_is_avro(self) -> Self:
        if self.schema_registry is not None and "avro" not in self.formats:
            raise refuse("has a schema_registry but no avro", "add avro to formats, or drop the other")
        return self

    @model_validator(mode="after")
    def _nothing_is_left_unread(self) -> Self:
        if self.timestamps and not self.strict:
            hint = "drop timestamps, or strict: false: it leaves all values to Spark's own conversions"
            raise refuse("has timestamps, which strict: false ignores", hint)
        if self.csv.header and "csv" not in self.formats:
            raise refuse("has a csv.header but no csv", "add csv to formats, or drop the other")
        return self

    @property
    def schema_file(self) -> str | None:
        """Return the Avro schema's path or URL, None if the schema is DDL or not given."""
        source = self.schema_source
        return source if source is not None and source.endswith(".avsc") else None

    @property
    def schema_ddl(self) -> str | None:
        """Return the schema as Spark DDL, None if it is a file or not given."""
        return None if self.schema_file is not None else self.schema_source

    def beside(self, raw: str) -> Self:
        """Return the settings with every path filled in, by default beside the raw table."""
        places = {
            "table": self.table or f"{raw}-silver",
            "quarantine": self.quarantine or f"{raw}-quarantine",
            "checkpoint": self.checkpoint or f"{raw}-checkpoint",
        }
        return self.model_copy(update=places)
