"""Avro's whole numbers: bytes that spell one of more bits than its type has are no value of it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.config.parse import ParseSettings
from spark_jobs.plan import plan
from tests.support.judge.outcomes import outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def spelled(*numbers: int) -> bytes:
    """Return whole numbers of any size as Avro writes them."""
    found = bytearray()
    for number in numbers:
        rest = 2 * number if number >= 0 else -2 * number - 1
        while rest > 0x7F:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        found.append(rest)
    return bytes(found)


def items(*numbers: int) -> bytes:
    return spelled(*([len(numbers), *numbers] if numbers else []), 0)


INT_MIN, INT_MAX, LONG_MIN, LONG_MAX = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "local-timestamp-micros"}
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "int"}]}
TYPES: dict[str, Any] = {
    "whole": "int",
    "maybe": ["null", "int"],
    "day": {"type": "int", "logicalType": "date"},
    "time": {"type": "int", "logicalType": "time-millis"},
    "size": "long",
    "at": MILLIS,
    "since": MICROS,
    "counts": {"type": "array", "items": "int"},
    "sizes": {"type": "map", "values": "long"},
    "place": PLACE,
    "home": "Place",
    "either": ["int", "long"],
    "text": "string",
}
PLAIN: dict[str, bytes] = {
    "maybe": spelled(0),
    "counts": items(),
    "sizes": items(),
    "either": spelled(1, 9),
    "text": spelled(1) + b"x",
}
KEPT: list[tuple[str, bytes, Any]] = [
    ("whole", spelled(INT_MIN), INT_MIN),
    ("whole", spelled(INT_MAX), INT_MAX),
    ("maybe", spelled(1, INT_MIN), INT_MIN),
    ("day", spelled(20_000), "2024-10-04"),
    ("time", spelled(86_399_999), 86_399_999),
    ("size", spelled(LONG_MIN), LONG_MIN),
    ("size", spelled(LONG_MAX), LONG_MAX),
    ("at", spelled(1_700_000_000_000), "2023-11-14T22:13:20.000000Z"),
    ("since", spelled(-1), "1969-12-31T23:59:59.999999Z"),
    ("counts", items(INT_MAX, 1), [INT_MAX, 1]),
    ("sizes", spelled(1, 1) + b"k" + spelled(LONG_MIN, 0), {"k": LONG_MIN}),
    ("place", spelled(INT_MIN), {"zip": INT_MIN}),
    ("either", spelled(1, LONG_MAX), LONG_MAX),
    ("text", spelled(13) + b"\xd0\xb0" * 6 + b" ", "\u0430" * 6 + " "),  # looks like a long that is too long
]
CUT: list[tuple[str, bytes]] = [
    ("whole", spelled(INT_MIN - 1)),
    ("whole", spelled(INT_MAX + 1)),
    ("whole", spelled(2**62)),
    ("whole", spelled(2**66 + 1)),
    ("maybe", spelled(1, 2**33)),
    ("day", spelled(2**32)),
    ("time", spelled(2**34)),
    ("size", spelled(LONG_MAX + 1)),
    ("size", spelled(LONG_MIN - 1)),
    ("size", spelled(2**64 + 5)),
    ("size", spelled(-(2**68))),
    ("at", spelled(2**64 + 1_700_000_000_000)),
    ("since", spelled(-(2**65) - 1)),
    ("counts", items(1, 2**33)),
    ("sizes", spelled(1, 1) + b"k" + spelled(2**66, 0)),
    ("place", spelled(2**40)),
    ("home", spelled(2**66 + 7)),
]


def planned(folder: Path, **parse: Any) -> plan.Plan:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()],
    }
    (folder / "event.avsc").write_text(json.dumps(schema))
    return plan.make(
        "events",
        ParseSettings.model_validate({"schema": str(folder / "event.avsc"), "formats": ["avro"], **parse}),
    )


def record(name: str, value: bytes) -> bytes:
    """Return a record with other numbers in all other fields."""
    return b"".join(value if each == name else PLAIN.get(each, spelled(3_003)) for each in TYPES)


@pytest.mark.parametrize("strict", [True, False])
def test_numbers_of_their_types_are_kept_and_no_others(spark: SparkSession, tmp_path: Path, *, strict: bool) -> None:
    payloads = [record(name, value) for name, value, _ in KEPT] + [record(*each) for each in CUT]
    found = outcomes(spark, planned(tmp_path, strict=strict), payloads)
    assert [(reason, told[name]) for (reason, told), (name, *_) in zip(found, KEPT, strict=False)] == [
        (None, value) for _, _, value in KEPT
    ]
    assert [(name, reason) for (reason, _), (name, _) in zip(found[len(KEPT) :], CUT, strict=True)] == [
        (name, f"malformed:{name}") for name, _ in CUT
    ]


def test_small_integers_of_a_ddl_are_not_cut(spark: SparkSession) -> None:
    """Avro has no type for them: they are its ints."""
    fields = [{"name": "tiny", "type": "int"}, {"name": "small", "type": "int"}]
    ours = json.dumps({"type": "record", "name": "topLevelRecord", "fields": fields})
    by = plan.make("events", ParseSettings.model_validate({"schema": "tiny TINYINT, small SMALLINT"}))
    by = dataclasses.replace(by, schema_avro=ours, formats=("avro",))
    found = outcomes(spark, by, [spelled(-128, 32_767), spelled(300, 0), spelled(0, 40_000)])
    assert found[0] == (None, {"tiny": -128, "small": 32_767})
    assert [reason for reason, _ in found[1:]] == ["malformed:tiny", "malformed:small"]


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def test_a_registry_s_ints_are_asked_too(spark: SparkSession, tmp_path: Path) -> None:
    """Also beside a writer whose longs Avro does not read as our ints: its ints are read, its longs are not."""
    (tmp_path / "event.avsc").write_text(
        json.dumps({"type": "record", "name": "Event", "fields": [{"name": "whole", "type": "int"}]})
    )
    settings = {"schema": str(tmp_path / "event.avsc"), "schema_registry": "http://127.0.0.1:1"}
    writers = {
        number: json.dumps({"type": "record", "name": "Event", "fields": [{"name": "whole", "type": kind}]})
        for number, kind in enumerate(["int", "long", ["int", "long"], ["null", "int"]])
    }
    by = plan.make("events", ParseSettings.model_validate(settings)).with_writers(writers)
    bodies = [
        framed(0, spelled(INT_MIN)),
        framed(0, spelled(INT_MIN - 1)),
        framed(1, spelled(1)),
        framed(2, spelled(0, 7)),
        framed(2, spelled(1, 7)),
        framed(3, spelled(1, INT_MAX)),
        framed(3, spelled(1, INT_MAX + 1)),
        framed(3, spelled(0)),
    ]
    found = outcomes(spark, by, bodies)
    assert [(reason, reason or told["whole"]) for reason, told in found] == [
        (None, INT_MIN),
        ("malformed:whole", "malformed:whole"),
        ("malformed", "malformed"),
        (None, 7),
        ("malformed", "malformed"),
        (None, INT_MAX),
        ("malformed:whole", "malformed:whole"),
        ("malformed", "malformed"),
    ]
