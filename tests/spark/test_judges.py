"""No value in silver that Python's json and csv, or fastavro, do not give."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import strategies as st

from ingestor.config.parse import ParseSettings
from spark_jobs.plan import plan
from tests.support.judge import judges
from tests.support.judge.gathered import gathered
from tests.support.judge.golden import Table
from tests.support.judge.outcomes import outcomes, plain

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KINDS = [
    *("BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,10)", "STRING", "DATE"),
    *("TIMESTAMP", "TIMESTAMP seconds", "TIMESTAMP millis", "TIMESTAMP micros", "BINARY"),
]
DIGITS = st.text("0123456789", min_size=1, max_size=22)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.builds(
        "{}{}{}{}{}".format,
        *map(
            st.sampled_from,
            (["", "-", "+"], ["0", "1", "12", "007"], ["", ".", ".5", ".10"]),
        ),
        DIGITS,
        st.sampled_from(["", "e5", "E-3", "e400"]),
    ),
    st.sampled_from(
        ["NaN", "Infinity", "-Infinity", "1,5", "1_000", "0x10", "1.5d", ".5", "5.", "-0", "-0.0", "", " 1", "1 "]
    ),
)
TIMES = st.one_of(
    st.dates().map(str),
    st.datetimes().map(lambda at: at.isoformat()),
    st.builds(
        "{}{}{}{}".format,
        st.dates().map(str),
        st.sampled_from(["T", " ", "t", ""]),
        st.times().map(lambda at: at.isoformat()[:19]),
        st.sampled_from(["", "Z", "z", "+01:00", "-0530", "+02", "+25:00", " PST", ".1", ".1234567Z", ".123456789"]),
    ),
    st.sampled_from(
        ["12:30", "2026", "2026-01", "2026-1-5", "2026-02-30", "2016-12-31T23:59:60Z", "2026-01-05T24:00:00"]
    ),
)
TEXTS = st.one_of(
    NUMBERS,
    TIMES,
    st.text(max_size=8),
    st.binary(max_size=6).map(lambda raw: raw.hex()),
    st.sampled_from(["true", "false", "True", "yes", "null", "AQID", "AQ=="]),
)
ESCAPED = st.text('\\"ud8cef0 01a/', max_size=14).map(lambda text: f'"{text}"')
TOKENS = st.one_of(TEXTS, TEXTS.map(json.dumps), ESCAPED, st.recursive(st.none(), st.lists).map(json.dumps))
CASES = 700  # judged in one Spark job


def cases(texts: st.SearchStrategy[str]) -> list[tuple[str, str]]:
    return gathered(st.tuples(st.sampled_from(KINDS), texts), CASES)


def wrong(found: list[str], given: list[tuple[str, Any]]) -> list[tuple[str, Any, str]]:
    """Return the values that are not the judge's; `given` is each one's type and what the judge gives for it."""
    values = [
        (kind, judged, told)
        for told, (kind, judged) in zip(found, given, strict=True)
        if not told.startswith(("malformed", "undecodable", "empty"))
    ]
    assert len(values) > 20  # else nothing was judged
    return [
        (kind, judged, told)
        for kind, judged, told in values
        if isinstance(judged, Exception) or not judges.same(kind, judged, told)
    ]


def judged(kind: str, judge: Any, *of: Any) -> Any:
    try:
        return judge(kind, *of)
    except (ValueError, ArithmeticError, KeyError) as refused:
        return refused


def test_json_values_are_those_of_pythons_json(spark: SparkSession) -> None:
    table = Table(KINDS, formats=["json"])

    def judge(kind: str, payload: bytes) -> Any:
        return judges.of_json(kind, judges.field(judges.json_record(payload), table.names[kind]))

    records = [(kind, table.json(kind, text)) for kind, text in cases(TOKENS)]
    found = table.outcomes(spark, records)
    assert wrong(found, [(kind, judged(kind, judge, payload)) for kind, payload in records]) == []


def test_csv_values_are_those_of_pythons_csv(spark: SparkSession) -> None:
    table = Table(KINDS, formats=["csv"])

    def judge(kind: str, payload: bytes) -> Any:
        fields = judges.csv_record(payload)
        if len(fields) != len(KINDS):
            raise ValueError("another number of columns")
        text = fields[KINDS.index(kind)]
        return None if text == "" else judges.of_text(kind, text)

    quoted = TEXTS.map(lambda text: '"' + text.replace('"', '""') + '"')
    records = [(kind, table.csv(kind, text)) for kind, text in cases(st.one_of(TEXTS, quoted))]
    found = table.outcomes(spark, records)
    assert wrong(found, [(kind, judged(kind, judge, payload)) for kind, payload in records]) == []


def test_mutilated_json_is_taken_only_where_python_takes_it(spark: SparkSession) -> None:
    """Whole records, with bytes taken out, put in or doubled: what is taken is what Python's json reads."""
    kinds = ["STRING", "DOUBLE", "ARRAY<STRING>", "MAP<STRING, STRING>"]
    table = Table(kinds, formats=["json"])
    leaf = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
    )
    value = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    )
    record = st.dictionaries(st.sampled_from([*table.names.values(), "x"]), value, max_size=4)
    piece = st.sampled_from(
        ["", "{", "}", "]", ",", '"', ":", "0", '{"__end":', '"f0":1,', "null", "\\", "\\ud800", " ", "e9", "."]
    )

    def cut(text: str, at: int, off: int, put: str) -> bytes:
        at = at % (len(text) + 1)
        return (text[:at] + put + text[at + off :]).encode("utf-8", "surrogatepass")

    payloads = st.builds(
        cut, st.builds(json.dumps, record, ensure_ascii=st.booleans()), st.integers(0, 200), st.integers(0, 3), piece
    )

    inputs = gathered(payloads, CASES)
    found = table.outcomes(spark, [("STRING", payload) for payload in inputs])
    taken = [
        (payload, told)
        for payload, told in zip(inputs, found, strict=True)
        if not told.startswith(("malformed", "empty"))
    ]
    assert len(taken) > 20  # else nothing was judged
    for payload, told in taken:
        given = judges.field(judges.json_record(payload), "f0")
        assert judges.same("STRING", judges.of_json("STRING", given), told), payload


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "size", "type": ["null", "long"]},
        {"name": "price", "type": "double"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "int"}]}],
        },
    ],
}


def test_avro_values_are_those_of_fastavro(spark: SparkSession, tmp_path: Path) -> None:
    """Records with any values of their types, whole or with bytes changed: what is taken fastavro reads alike."""
    (tmp_path / "event.avsc").write_text(json.dumps(AVRO))
    parse = {"schema": str(tmp_path / "event.avsc"), "formats": ["avro"]}
    by = plan.make("events", ParseSettings.model_validate(parse))
    schema = fastavro.parse_schema(AVRO)
    bare = fastavro.parse_schema(json.loads(json.dumps(AVRO), object_hook=without_logical_types))
    long = st.integers(-(2**63), 2**63 - 1)
    records = st.fixed_dictionaries(
        {
            "id": st.text(max_size=5),
            "size": st.none() | long,
            "price": st.floats(),
            "day": st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(-750_000, 3_000_000),
            "at": st.none() | long | st.integers(-(10**14), 3 * 10**14),
            "amount": st.binary(max_size=6) | st.binary(max_size=20),
            "colour": st.sampled_from(["RED", "GREEN"]),
            "tags": st.lists(st.text(max_size=3), max_size=2),
            "place": st.none() | st.fixed_dictionaries({"zip": st.integers(-(2**31), 2**31 - 1)}),
        }
    )

    def payload(record: dict[str, Any], at: int, off: int, put: bytes) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, bare, record)
        whole = out.getvalue()
        return whole[: at % len(whole)] + put + whole[at % len(whole) + off :]

    changed = st.builds(payload, records, st.integers(0, 100), st.integers(0, 2), st.binary(max_size=2))
    whole = st.builds(payload, records, st.just(0), st.just(0), st.just(b""))

    payloads = gathered(whole | changed, CASES)
    found = outcomes(spark, by, payloads)
    taken = [(each, told) for each, (reason, told) in zip(payloads, found, strict=True) if reason is None]
    assert len(taken) > 20  # else nothing was judged
    for each, told in taken:
        source = io.BytesIO(each)
        given = fastavro.schemaless_reader(source, schema, None)
        assert source.read() == b""
        assert isinstance(given, dict)
        assert repr(told) == repr({name: plain(value) for name, value in given.items()})


def without_logical_types(kind: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kind.items() if key != "logicalType"}


@pytest.mark.parametrize("text", ["1.10", "-0", "1e999"])
def test_the_judges_themselves_tell_a_wrong_value(text: str) -> None:
    assert not judges.same("STRING", judges.of_json("STRING", judges.Number(text)), '"1.1"')
    assert not judges.same("DOUBLE", judges.of_json("DOUBLE", judges.Number(text)), "7.0")
