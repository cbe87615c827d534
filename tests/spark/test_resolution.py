"""Records of many schemas in one batch, read by ours: as Avro's resolution rules say, with fastavro as their judge."""

from __future__ import annotations

import dataclasses
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import strategies as st

from ingestor.config.parse import ParseSettings
from spark_jobs.plan import plan
from spark_jobs.rows import avro_resolution, parsing
from tests.support.judge.gathered import gathered
from tests.support.judge.golden import RAW
from tests.support.judge.outcomes import outcomes, plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.plan.plan import Plan

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "OTHER"], "default": "OTHER"}
PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "city", "type": "string", "default": "nowhere"},
        {"name": "zip", "type": ["null", "long"], "default": None, "aliases": ["code"]},
    ],
}
READER: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "size", "type": "long", "default": 7},
        {"name": "price", "type": "double", "default": 0.5, "aliases": ["cost"]},
        {"name": "ratio", "type": ["null", "float"], "default": None},
        {"name": "note", "type": ["string", "null"], "default": "none"},
        {"name": "blob", "type": "bytes", "default": "\u0001\u00ff"},
        {"name": "colour", "type": COLOUR, "default": "RED"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a"]},
        {"name": "counts", "type": {"type": "map", "values": "long"}, "default": {"x": 1}},
        {"name": "place", "type": PLACE, "default": {"city": "here", "zip": None}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            "default": "\u0001",
        },
    ],
}
NARROW_COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
OLD_PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [{"name": "code", "type": "int"}, {"name": "x", "type": "string"}],
}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
SCALED = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3}
SHAPES: dict[str, list[tuple[Any, Any]]] = {  # what a writer may have for a field, and a raw value of it
    "id": [("string", "u1"), ("bytes", b"u2"), (["null", "string"], "u3"), (["null", "string"], None), ("int", 5)],
    "size": [("int", 3), ("long", 2**40), (["null", "int"], 4), (["null", "int"], None), ("string", "9")],
    "price": [("double", 1.1), ("float", 1.5), ("int", 2), ("long", 2**53), (["int", "double"], 3)],
    "ratio": [("float", 0.5), ("int", 16777216), (["null", "float"], None), ("double", 0.1)],
    "note": [("string", "n"), (["null", "string"], None), ("bytes", b"b")],
    "blob": [("bytes", b"\x00\xff"), ("string", "text")],
    "colour": [(COLOUR, "GREEN"), (NARROW_COLOUR, "BLUE"), (NARROW_COLOUR, "RED")],
    "tags": [({"type": "array", "items": "string"}, ["b", ""]), ({"type": "array", "items": "bytes"}, [b"c"])],
    "counts": [({"type": "map", "values": "int"}, {"k": 2}), ({"type": "map", "values": "long"}, {})],
    "place": [(PLACE, {"city": "Bonn", "zip": 1}), (OLD_PLACE, {"code": 53111, "x": "y"})],
    "at": [
        ({"type": "long", "logicalType": "timestamp-micros"}, 1),
        (MILLIS, 1_767_225_600_000),
        ("long", 5),
        ("int", 6),
    ],
    "amount": [
        (READER["fields"][-1]["type"], b"\x04\xd2"),
        (SCALED, b"\x04\xd2"),
        (READER["fields"][-1]["type"], b"\x7f" * 4),
    ],
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What Avro makes of these fields' defaults: fastavro leaves them as they stand in the schema.
DEFAULTS = {"blob": b"\x01\xff", "at": EPOCH, "amount": Decimal("0.01")}
ALIASES = {"price": "cost"}
EXTRA = ({"name": "extra", "type": {"type": "array", "items": "int"}}, [1, 2, 3])


def planned(folder: Path, writers: Sequence[dict[str, Any]]) -> Plan:
    (folder / "event.avsc").write_text(json.dumps(READER))
    parse = {"schema": str(folder / "event.avsc"), "schema_registry": "http://127.0.0.1:1"}
    made = plan.make("events", ParseSettings.model_validate(parse))
    return made.with_writers({number: json.dumps(writer) for number, writer in enumerate(writers)})


def framed(number: int, writer: dict[str, Any], record: dict[str, Any]) -> bytes:
    bare = json.loads(
        json.dumps(writer), object_hook=lambda kind: {k: v for k, v in kind.items() if k != "logicalType"}
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(bare), record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def judged(writer: dict[str, Any], payload: bytes) -> dict[str, Any] | None:
    """Return the record as fastavro reads it; None if it can't."""
    same_name = {**writer, "name": "Event", "namespace": "shop"}
    try:
        found = fastavro.schemaless_reader(
            io.BytesIO(payload[5:]), fastavro.parse_schema(same_name), fastavro.parse_schema(READER)
        )
    except Exception:  # noqa: BLE001 - whatever it raises, it gives no value
        return None
    assert isinstance(found, dict)
    if isinstance(found["at"], int):  # the writer has no unit, so ours counts
        found["at"] = EPOCH + timedelta(microseconds=found["at"])
    theirs = {field["name"] for field in writer["fields"]}
    return found | {name: value for name, value in DEFAULTS.items() if name not in theirs}


@st.composite
def written(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema that is some other version of ours, and a record of it."""
    fields, record = [], {}
    for name, shapes in SHAPES.items():
        if name != "id" and draw(st.integers(0, 2)) == 0:
            continue
        kind, value = draw(st.sampled_from(shapes)) if draw(st.booleans()) else shapes[0]
        called = ALIASES[name] if name in ALIASES and draw(st.booleans()) else name
        fields.append({"name": called, "type": kind})
        record[called] = value
    if draw(st.booleans()):
        fields.append(EXTRA[0])
        record["extra"] = EXTRA[1]
    fields = draw(st.permutations(fields))
    return {
        "type": "record",
        "name": draw(st.sampled_from(["Event", "Older"])),
        "namespace": "shop",
        "fields": fields,
    }, record


def test_resolution_gives_what_fastavro_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Sixty schemas in each batch: defaults, aliases, promotions, unions, enums, nested records, other units."""
    pairs = gathered(written(), 60)
    payloads = [framed(number, writer, record) for number, (writer, record) in enumerate(pairs)]
    found = outcomes(spark, planned(tmp_path, [writer for writer, _ in pairs]), payloads)
    silver = 0
    for (writer, record), payload, (reason, told) in zip(pairs, payloads, found, strict=True):
        if reason is None:
            given = judged(writer, payload)
            assert given is not None, (writer, record, told)
            assert told == {name: plain(value) for name, value in given.items()}, (writer, record)
            silver += 1
    assert silver > 5  # else nothing was judged


@pytest.mark.parametrize("name", list(SHAPES))
def test_each_field_alone_is_resolved(name: str) -> None:
    """Without Spark: which pairs are read at all is decided on the driver."""
    for kind, _ in SHAPES[name]:
        writer = {"type": "record", "name": "Older", "fields": [{"name": name, "type": kind}]}
        pair = avro_resolution.pair(READER, writer, lenient=False)
        assert (pair is None) == (kind == SCALED)


def test_a_plan_grows_with_the_ids_and_no_faster(spark: SparkSession, tmp_path: Path) -> None:
    """Of each id one reading, in a plan whose size is a line: nested in one another they were its power."""
    sizes = []
    for number in (10, 100):
        writers = [
            {"type": "record", "name": f"V{at}", "fields": [{"name": "id", "type": "string"}]} for at in range(number)
        ]
        by = planned(tmp_path, writers)
        raw = spark.createDataFrame([("events", 0, 0, None, bytearray(framed(0, writers[0], {"id": "u"})))], RAW)
        text = parsing.outcomes(raw, by)._jdf.queryExecution().optimizedPlan().toString()
        sizes.append(text.count("from_avro"))
    assert sizes[1] <= sizes[0] + 90


def test_a_hundred_ids_in_a_batch_are_read_each_by_its_own(spark: SparkSession, tmp_path: Path) -> None:
    writers = [
        {
            "type": "record",
            "name": "Event",
            "fields": [{"name": f"x{at}", "type": "int"}, {"name": "id", "type": "string"}],
        }
        for at in range(100)
    ]
    payloads = [framed(at, writer, {f"x{at}": at, "id": f"u{at}"}) for at, writer in enumerate(writers)]
    found = outcomes(spark, planned(tmp_path, writers), payloads)
    assert [(reason, told["id"], told["size"]) for reason, told in found] == [(None, f"u{at}", 7) for at in range(100)]


def test_where_the_schema_is_a_ddl_what_a_writer_lacks_is_null(spark: SparkSession) -> None:
    ddl = plan.make(
        "events",
        ParseSettings.model_validate({"schema": "id STRING, size BIGINT", "schema_registry": "http://127.0.0.1:1"}),
    )
    ours = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [{"name": "id", "type": ["string", "null"]}, {"name": "size", "type": ["long", "null"]}],
    }
    writer = {"type": "record", "name": "Any", "fields": [{"name": "id", "type": "string"}]}
    by = dataclasses.replace(ddl, schema_avro=json.dumps(ours)).with_writers({0: json.dumps(writer)})
    assert outcomes(spark, by, [framed(0, writer, {"id": "u1"})]) == [(None, {"id": "u1", "size": None})]
