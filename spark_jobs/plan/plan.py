"""The plan of a batch: everything in the configuration that decides about a record, checked and frozen.

A plan is saved before the first write of a batch (`decisions`). A batch that was killed continues with the plan it
began with, whatever the configuration is then. So the plan must have everything that decides about a record.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestor.config.parse import OWN_COLUMNS
from ingestor.errors import ConfigError, RefusedError
from spark_jobs.plan import avro, ddl, rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingestor.config.settings import ParseSettings
    from spark_jobs.plan.ddl import Field

CONTENT = "content_sha256"  # silver's extra column if duplicates are found by content
EDITION = 2  # of the code's results for a plan: raise it with every change in them
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COB_TYPES = ("STRING", "DATE", "TIMESTAMP")
_KEY_TYPES_NOT = ("ARRAY<", "MAP<", "STRUCT<")


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Which fields make two records duplicates, and within which time; no fields: the payload's hash."""

    by: tuple[str, ...]
    within_seconds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How records become rows: text and numbers only, so that it can be saved as JSON."""

    schema_ddl: str
    schema_avro: str | None
    formats: tuple[str, ...]
    csv_columns: tuple[str, ...]
    csv_delimiter: str
    cob_field: str | None
    cob_column: str | None
    required: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]
    processing_version: str
    dedupe: Dedupe | None
    tombstones: str
    registry: bool = False
    writers: tuple[tuple[int, str | None], ...] = ()  # the registry's schemas by id; None: unknown id
    strict: bool = True
    timestamps: tuple[tuple[str, str], ...] = ()  # the unit of a TIMESTAMP by its path; others are ISO
    csv_header: bool = False
    csv_quote: str | None = '"'
    csv_escape: str | None = None
    csv_null: str = ""
    avro_by_user: bool = False  # otherwise it was derived from the DDL
    partition_texts: tuple[str, ...] = ()  # STRING columns that silver is partitioned by
    edition: int = EDITION

    @property
    def fields(self) -> tuple[Field, ...]:
        """The schema's columns."""
        return ddl.parse(self.schema_ddl)

    def unit(self, path: str) -> str:
        """Return the unit of the TIMESTAMP at a path."""
        return dict(self.timestamps).get(path, "iso")

    @property
    def by_content(self) -> bool:
        """Return whether equal payloads are duplicates."""
        return self.dedupe is not None and not self.dedupe.by

    @property
    def silver(self) -> tuple[Field, ...]:
        """The columns of silver."""
        own = {
            "processing_version": "STRING",
            "source_topic": "STRING",
            "stream_partition": "INT",
            "stream_offset": "BIGINT",
            "message_timestamp": "TIMESTAMP",
        }
        columns = [*self.fields, *(ddl.Field(name, kind) for name, kind in own.items())]
        if self.cob_column is not None:
            columns.append(ddl.Field(self.cob_column, "DATE"))
        if self.by_content:
            columns.append(ddl.Field(CONTENT, "STRING"))
        return tuple(columns)

    def with_writers(self, writers: Mapping[int, str | None]) -> Plan:
        """Return the plan with the registry's schemas."""
        return dataclasses.replace(self, writers=tuple(sorted(writers.items())))

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan of a JSON text; RefusedError if it was saved by a version with other results."""
        raw: dict[str, Any] = json.loads(text)
        if raw.get("edition", 1) != EDITION:
            message = "a batch was begun by another version of the job, which parses records differently"
            hint = "finish the batch with that version (run its `parse` once), then upgrade; nothing was written"
            raise RefusedError(message, hint=hint)
        for name in ("formats", "csv_columns", "required", "partition_texts"):
            raw[name] = tuple(raw[name])
        for name in ("rules", "writers", "timestamps"):
            raw[name] = tuple((key, value) for key, value in raw[name])
        if raw["dedupe"] is not None:
            raw["dedupe"] = Dedupe(tuple(raw["dedupe"]["by"]), raw["dedupe"]["within_seconds"])
        return cls(**raw)


def make(route: str, settings: ParseSettings) -> Plan:
    """Return the plan of a route; ConfigError names a wrong key. Touches neither Spark nor a table."""
    checker = _Checker(f"parse.{route}", settings)
    fields, avro_text = checker.schema()
    plan = Plan(
        schema_ddl=ddl.render(fields),
        schema_avro=avro_text,
        formats=settings.formats,
        csv_columns=checker.csv_columns(fields),
        csv_delimiter=settings.csv.delimiter,
        cob_field=None if settings.cob is None else settings.cob.field,
        cob_column=None if settings.cob is None else settings.cob.column,
        required=settings.required,
        rules=tuple(settings.rules.items()),
        processing_version=settings.processing_version,
        dedupe=_dedupe(settings),
        tombstones=settings.tombstones,
        registry=settings.schema_registry is not None,
        strict=settings.strict,
        timestamps=checker.timestamps(fields, avro_text),
        csv_header=settings.csv.header,
        csv_quote=settings.csv.quote,
        csv_escape=settings.csv.escape,
        csv_null=settings.csv.null,
        avro_by_user=avro_text is not None,
        partition_texts=tuple(
            each.name for each in fields if each.name in settings.partition_by and each.type == "STRING"
        ),
    )
    checker.check(plan)
    return plan


def _dedupe(settings: ParseSettings) -> Dedupe | None:
    if settings.dedupe is None:
        return None
    by = () if settings.dedupe.by == "content" else tuple(settings.dedupe.by)
    return Dedupe(by, int(settings.dedupe.within.total_seconds()))


class _Checker:
    """Checks the other keys against the schema."""

    def __init__(self, key: str, settings: ParseSettings) -> None:
        self._key = key
        self._settings = settings

    def schema(self) -> tuple[tuple[Field, ...], str | None]:
        """Return the schema's columns, and its Avro text if it is an Avro schema."""
        key, source = f"{self._key}.schema", self._settings.schema_source
        if source is None:
            raise ConfigError(f"{key}: is missing", hint="name an Avro schema file, or write a Spark DDL string")
        try:
            if self._settings.schema_ddl is not None:
                fields, text = ddl.parse(source), None
            else:
                text = Path(source).read_text(encoding="utf-8")
                fields = avro.fields(avro.load(text))
        except OSError as error:
            message = f"{key}: {source} can't be read: {error.strerror}"
            raise ConfigError(message, hint="correct the path, which is relative to the configuration") from None
        except ValueError as error:
            where = "" if self._settings.schema_ddl is not None else f"{source}: "
            raise ConfigError(f"{key}: {where}{error}", hint="correct the schema") from None
        if not fields:
            raise ConfigError(f"{key}: names no field", hint="a record needs at least one")
        own = [field.name for field in fields if field.name.lower() in (*OWN_COLUMNS, CONTENT)]
        if own:
            raise self._error("schema", f"{own[0]} is a column that silver has anyway", "rename the field")
        unfit = [field.name for field in fields if not _AVRO_NAME.fullmatch(field.name)]
        if unfit and text is None and "avro" in self._settings.formats:
            raise self._error(
                "schema", f"{unfit[0]} can't be a field of Avro", "rename it, or leave avro out of formats"
            )
        inner = [field.name for field in fields if field.name.startswith("__")]
        if inner:
            raise self._error("schema", f"{inner[0]} starts with __, as the job's own columns do", "rename the field")
        return fields, text

    def timestamps(self, fields: Sequence[Field], avro_text: str | None) -> tuple[tuple[str, str], ...]:
        """Return the unit of each TIMESTAMP: as configured, otherwise by the schema's logical types."""
        kinds = dict(ddl.leaves(fields))
        units = {} if avro_text is None else avro.units(avro.load(avro_text))
        for path, unit in self._settings.timestamps.items():
            if kinds.get(path) != "TIMESTAMP":
                what = kinds.get(path, "no field of the schema")
                known = ", ".join(name for name, kind in kinds.items() if kind == "TIMESTAMP") or "there is none"
                raise self._error("timestamps", f"{path} is {what}", f"name TIMESTAMP fields: {known}")
            units[path] = unit
        return tuple(sorted((path, unit) for path, unit in units.items() if unit != "iso"))

    def csv_columns(self, fields: Sequence[Field]) -> tuple[str, ...]:
        """Return the columns of a CSV record: those configured, otherwise the schema's flat ones."""
        nested = {field.name for field in fields if not field.flat}
        for name in self._settings.csv.columns:
            if name in nested:
                raise self._error("csv.columns", f"{name} is no flat field, which CSV can't hold", "leave it out")
        return self._settings.csv.columns or tuple(field.name for field in fields if field.flat)

    def check(self, plan: Plan) -> None:
        """Refuse unknown and unsuitable fields."""
        names = [field.name for field in plan.fields]
        for path in plan.required:
            self._find("required", path, plan.fields)
        if plan.dedupe is not None:
            for name in plan.dedupe.by:
                if self._find("dedupe.by", name, plan.fields).startswith(_KEY_TYPES_NOT) or "." in name:
                    raise self._error("dedupe.by", f"{name} is no flat field", "name flat fields of the schema")
        self._cob(plan)
        for name, sql in plan.rules:
            try:
                rules.check(sql, list(dict.fromkeys(rule_names(plan))))
            except rules.RuleError as error:
                raise self._error(f"rules.{name}", str(error), error.hint) from None
        self._partition_by(plan, names)

    def _cob(self, plan: Plan) -> None:
        if plan.cob_field is None or plan.cob_column is None:
            return
        kind = self._find("cob.field", plan.cob_field, plan.fields)
        if kind not in _COB_TYPES:
            raise self._error("cob.field", f"{plan.cob_field} is {kind}", f"choose a field of {', '.join(_COB_TYPES)}")
        if plan.cob_column.lower() in (field.name.lower() for field in plan.fields):
            raise self._error("cob.column", f"{plan.cob_column} is a field of the schema too", "choose another name")

    def _partition_by(self, plan: Plan, names: Sequence[str]) -> None:
        columns = {field.name: field for field in plan.silver}
        for name in self._settings.partition_by:
            if name not in columns:
                known = [*names, *(each for each in columns if each not in names)]
                raise self._error("partition_by", f"{name} is no column of silver", f"columns: {', '.join(known)}")
            if not columns[name].flat or columns[name].type == "BINARY":
                what = "not flat" if not columns[name].flat else "BINARY, which no folder's name can hold"
                raise self._error("partition_by", f"{name} is {what}", "choose a flat column, such as cob_date")
        if len(self._settings.partition_by) == len(columns):
            raise self._error("partition_by", "leaves no column for the files", "partition by fewer columns")

    def _find(self, key: str, path: str, fields: Sequence[Field]) -> str:
        """Return the type of a field; dots separate the members of structs."""
        if path in (field.name for field in fields):
            return next(field.type for field in fields if field.name == path)
        at: Sequence[Field] = fields
        kind = ""
        for part in path.split("."):
            kind = next((field.type for field in at if field.name == part), "")
            if not kind:
                hint = f"fields: {', '.join(field.name for field in fields)}"
                raise self._error(key, f"{path} is no field of the schema", hint)
            at = ddl.members(kind)
        return kind

    def _error(self, key: str, what: str, hint: str) -> ConfigError:
        return ConfigError(f"{self._key}.{key}: {what}", hint=hint)


def rule_names(plan: Plan) -> list[str]:
    """Return the columns that a rule may use: the record's fields and silver's own."""
    return [field.name for field in plan.silver if field.name != CONTENT]
