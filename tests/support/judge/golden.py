r"""The golden tables: what each input becomes as each type, in files that people can read (tests/spark/golden).

In json.tsv and csv.tsv a row is a type, an input and its outcome: the value as JSON, or why it is in quarantine.
Control characters are shown by their pictures (␉ ␊ ␀). Of a TIMESTAMP the second word is what numbers mean.

In avro.tsv the type is Avro's, and the input what the underlying type holds as JSON, or its bytes in hexadecimal (0x…).

In records.tsv a row is the settings of a route, a record with escapes (\xff), and its fields or the reason. Avro is
written as JSON behind what is in front of it: <plain>, <single>, <id 7>. Behind a bar there may be more bytes.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import yaml
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ingestor.config.file import expand
from ingestor.config.parse import ParseSettings
from spark_jobs.plan import avro, plan
from spark_jobs.rows import parsing
from spark_jobs.rows.formats import FIELDS
from spark_jobs.rows.parsing import REASON

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_jobs.plan.plan import Plan

FOLDER = Path(__file__).parents[2] / "spark" / "golden"
RAW = (
    "stream_topic string, stream_partition int, stream_offset long, message_timestamp timestamp, message_payload binary"
)
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)}
_CONTROLS = {ord(picture): chr(code) for code, picture in _PICTURES.items()}
_UNITS = ("seconds", "millis", "micros")
RECORD = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "user_id", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    kind: str
    text: str
    outcome: str


def load(name: str) -> list[Case]:
    """Return the rows of a table."""
    lines = (FOLDER / f"{name}.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    return [Case(*(cell.translate(_CONTROLS) for cell in line.split("\t"))) for line in lines]


def line(case: Case) -> str:
    """Return a row as it stands in its file."""
    return "\t".join(cell.translate(_PICTURES) for cell in (case.kind, case.text, case.outcome))


class Table:
    """Types as the fields of one schema, so that inputs of all of them are records of one plan."""

    def __init__(self, kinds: Iterable[str], *, avsc: Path | None = None, **parse: Any) -> None:
        self.kinds = list(dict.fromkeys(kinds))
        self.names = {kind: f"f{at}" for at, kind in enumerate(self.kinds)}
        units = {self.names[kind]: kind.rpartition(" ")[2] for kind in self.kinds if kind.endswith(_UNITS)}
        if avsc is None:
            parse["schema"] = ", ".join(map(self._column, self.kinds))
        else:
            parse["schema"] = self._written(avsc)
        if units and parse.get("strict", True):
            parse["timestamps"] = units
        self.plan = plan.make("golden", ParseSettings.model_validate(parse))

    def json(self, kind: str, text: str) -> bytes:
        """Return a JSON record whose field of this type is the text."""
        return f'{{"{self.names[kind]}": {text}}}'.encode()

    def csv(self, kind: str, text: str) -> bytes:
        """Return a CSV record whose column of this type is the text, the others empty."""
        return ",".join(text if each == kind else "" for each in self.kinds).encode()

    def avro(self, kind: str, text: str) -> bytes:
        """Return an Avro record whose field of this type is the value, the others null."""
        if text.startswith("0x"):
            value = b"\x02" + bytes.fromhex(text[2:])
        else:
            bare = _bare(json.loads(kind))
            branches = [each for each in (bare if isinstance(bare, list) else [bare]) if each != "null"]
            value = encoded(["null", *branches], _binary(branches[0], json.loads(text)))
        return b"".join(value if each == kind else b"\0" for each in self.kinds)

    def outcomes(self, spark: SparkSession, records: Sequence[tuple[str, bytes]]) -> list[str]:
        """Return what becomes of records, each of which is for a type."""
        rows = [("golden", 0, at, None, bytearray(payload)) for at, (_, payload) in enumerate(records)]
        found = self.parsed(spark.createDataFrame(rows, RAW)).orderBy("stream_offset").collect()
        told = []
        for (kind, _), row in zip(records, found, strict=True):
            name = self.names[kind]
            reason, values = row["reason"], row["values"]
            told.append(values[name] if reason is None else reason.replace(f":{name}", ":FIELD"))
        return told

    def parsed(self, raw: DataFrame) -> DataFrame:
        """Return offset, reason and for each field its value as JSON."""
        fields = (as_json(F.col(FIELDS)[each.name]).alias(each.name) for each in self.plan.fields)
        outcomes = parsing.outcomes(raw, self.plan)
        return outcomes.select("stream_offset", F.col(REASON).alias("reason"), F.struct(*fields).alias("values"))

    def _written(self, avsc: Path) -> str:
        fields = []
        for kind in self.kinds:
            type_ = json.loads(kind)
            union = type_ if isinstance(type_, list) else ["null", type_]
            fields.append({"name": self.names[kind], "type": ["null", *(each for each in union if each != "null")]})
        avsc.write_text(json.dumps({"type": "record", "name": "Golden", "fields": fields}))
        return str(avsc)

    def _column(self, kind: str) -> str:
        return f"{self.names[kind]} {kind.partition(' ')[0] if kind.endswith(_UNITS) else kind}"


def as_json(value: Column) -> Column:
    """Return a value as JSON, times to the microsecond."""
    options = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    whole = F.to_json(F.struct(value.alias("v")), options)
    return F.substring(whole, F.lit(6), F.length(whole) - 6)


def encoded(kind: Any, value: Any) -> bytes:
    """Return a value as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(kind, named_schemas={}), value)
    return out.getvalue()


def _bare(kind: Any) -> Any:
    """Return a type without its logical types, so that anything that its bytes can hold can be written."""
    if isinstance(kind, list):
        return [_bare(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    inner = {key: _bare(kind[key]) for key in ("items", "values") if key in kind}
    if "fields" in kind:
        inner["fields"] = [{**each, "type": _bare(each["type"])} for each in kind["fields"]]
    return {key: value for key, value in {**kind, **inner}.items() if key != "logicalType"}


def _binary(kind: Any, value: Any) -> Any:
    """Return a value whose bytes were written as characters, as Avro's JSON does."""
    name = kind["type"] if isinstance(kind, dict) else kind
    return value.encode("latin-1") if name in ("bytes", "fixed") else value


def payload(text: str) -> bytes:
    """Return the record of a row of records.tsv."""
    raw, _, behind = text.partition("|") if text.startswith("<") and "> {" in text else (text, "", "")
    tail = behind.encode("latin-1").decode("unicode_escape").encode("latin-1")
    head, _, record = raw.partition("> ")
    if not record:
        return text.encode().decode("latin-1").encode("latin-1").decode("unicode_escape").encode("latin-1")
    fields = {field["name"]: None for field in RECORD["fields"]}  # type: ignore[index]  # it has some
    body = encoded(RECORD, fields | json.loads(record)) + tail
    if head == "<single":
        return b"\xc3\x01" + avro.rabin(RECORD) + body
    return body if head == "<plain" else b"\0" + int(head.removeprefix("<id ")).to_bytes(4, "big") + body


def planned(settings: str, avsc: Path) -> Plan:
    """Return the plan of a row of records.tsv."""
    avsc.write_text(json.dumps(RECORD))
    return plan.make(
        "golden", ParseSettings.model_validate({"schema": str(avsc), **expand(yaml.safe_load(settings), avsc, {})})
    )


def records(spark: SparkSession, avsc: Path, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return what becomes of records under settings; one job for all."""
    told: DataFrame | None = None
    for settings in dict.fromkeys(settings for settings, _ in rows):
        chosen = [
            ("golden", 0, at, None, bytearray(payload(text)))
            for at, (each, text) in enumerate(rows)
            if each == settings
        ]
        found = parsing.outcomes(spark.createDataFrame(chosen, RAW), planned(settings, avsc))
        value = F.coalesce(F.col(REASON), F.to_json(FIELDS)).alias("told")
        found = found.select("stream_offset", value)
        told = found if told is None else told.unionAll(found)
    assert told is not None
    return [row["told"] for row in told.orderBy("stream_offset").collect()]
