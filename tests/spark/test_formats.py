"""Each format and each way in which a record can be wrong, through the very expressions of the job."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingestor.config.parse import ParseSettings
from spark_jobs.plan import avro, plan
from spark_jobs.rows import parsing
from spark_jobs.rows.formats import FIELDS
from spark_jobs.rows.parsing import REASON

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

RAW = (
    "stream_topic string, stream_partition int, stream_offset long, message_timestamp timestamp, message_payload binary"
)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
DDL = "user_id STRING, amount DOUBLE, count INT, cob STRING, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>"
AVRO = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "user_id", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}


def made(tmp_path: Path | None = None, **parse: Any) -> plan.Plan:
    if tmp_path is not None:
        path = tmp_path / "event.avsc"
        path.write_text(json.dumps(AVRO))
        parse.setdefault("schema", str(path))
    parse.setdefault("schema", DDL)
    parse.setdefault("formats", ["json", "csv"])
    return plan.make("events", ParseSettings.model_validate(parse))


def parsed(spark: SparkSession, by: plan.Plan, *payloads: bytes | None, at: datetime | None = MARCH) -> list[Row]:
    rows = [("events", 0, n, at, None if each is None else bytearray(each)) for n, each in enumerate(payloads)]
    found = parsing.outcomes(spark.createDataFrame(rows, RAW), by)
    return found.orderBy("stream_offset").collect()


def reasons(spark: SparkSession, by: plan.Plan, cases: dict[bytes, str | None]) -> None:
    found = {payload: row[REASON] for payload, row in zip(cases, parsed(spark, by, *cases), strict=True)}
    assert found == cases


def encoded(record: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_json_fits_whole_or_not_at_all(spark: SparkSession) -> None:
    """What comes after the object, and what closes the array that it is read in, is not overlooked."""
    good = b'{"user_id": "u1"}'
    cases: dict[bytes, str | None] = {
        good: None,
        b" \t\r\n" + good + b"\n ": None,
        b'{"user_id": "a]b", "tags": ["x]", "y"]}': None,
        b'{"user_id": "a}b"}': None,
        b'{"user_id": "\\u007d"}': None,
        b"{}": None,
        b'{"unknown": {"deep": [1]}, "user_id": "u1"}': None,
        b'{"user_id": "u1", "place": {"city": "Bonn", "zip": 53111}}': None,
        b'{"user_id": "u1", "__corrupt": "x"}': None,  # what Spark calls its own column is a field like any other
        b'{"__corrupt": {"a": 1}, "place": {"zip": 1}}': None,
        good + b" x": "malformed",
        good + b"{}": "malformed",
        good + b"," + good: "malformed",
        good + b"]": "malformed",
        good + b'],"r":[' + good: "malformed",
        good + b'],"x":[{}': "malformed",
        b"[" + good + b"]": "malformed",
        b"[]": "malformed",
        b"{": "malformed",
        b'{"user_id": "u1"': "malformed",
        b'{"user_id": "u1}': "malformed",
        b'{"tags": ["u1"}': "malformed",
        b'{"tags": ["u1"], "place": {"zip": 1}': "malformed",
        b'{"user_id": "u1"}}': "malformed",
        b'{"user_id": "a}b"} "': "malformed",
        b"{'user_id': 'u1'}": "malformed",
        b'{"amount": NaN}': "malformed",
        b'{"user_id": "\xff"}': "malformed",
        b'{"amount": "many"}': "malformed",
        b'{"amount": true}': "malformed",
        b'{"count": 1.5}': "malformed:count",
        b'{"count": 3000000000}': "malformed:count",
        b'{"tags": "x"}': "malformed",
        b'{"tags": [["x"], {"a": "b"}]}': None,  # Spark takes any JSON for text
        b'{"place": [1]}': "malformed",
        b'{"place": {"zip": "north"}}': "malformed",
        b'{"a":' + b"[" * 3000: "malformed",
    }
    reasons(spark, made(), cases)


def test_csv_has_as_many_fields_as_columns_on_one_line(spark: SparkSession) -> None:
    by = made(csv={"columns": ["user_id", "amount", "cob"]})
    cases: dict[bytes, str | None] = {
        b"u1,1.5,2026-01-31": None,
        b"u1,1.5,2026-01-31\r\n": None,
        b"u1,,": None,
        b'"a,b ""c""",1,x': None,
        b'"two\nlines",1,x': None,
        b"u1,1.5": "undecodable",
        b"u1,1.5,x,y": "undecodable",
        b"u1,much,x": "malformed:amount",
        b"u1,1,x\nu2,2,y": "undecodable",
        b"no delimiter": "undecodable",
        b"u1,\xff,x": "undecodable",
    }
    reasons(spark, by, cases)
    first, quoted = parsed(spark, by, b"u1,1.5,2026-01-31", b'"a,b ""c""",1,x')
    assert (first[FIELDS]["user_id"], first[FIELDS]["amount"], first[FIELDS]["tags"]) == ("u1", 1.5, None)
    assert quoted[FIELDS]["user_id"] == 'a,b "c"'


def test_csv_may_name_columns_that_nobody_wants_and_another_delimiter(spark: SparkSession) -> None:
    by = made(csv={"columns": ["nobody", "user_id"], "delimiter": ";"}, formats=["csv"])
    (row,) = parsed(spark, by, b"x,y;u1")
    assert row[REASON] is None
    assert row[FIELDS]["user_id"] == "u1"


def test_avro_takes_all_bytes_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    by = made(tmp_path, formats=["json", "csv", "avro"])
    record = encoded({"user_id": "u1", "amount": 1.5, "day": 20000})
    ours = b"\xc3\x01" + avro.rabin(AVRO)
    cases: dict[bytes, str | None] = {
        record: None,
        ours + record: None,
        record + b"\0": "undecodable",
        record[:-1]: "undecodable",
        b"\xff" * 40: "undecodable",
        b"\x02\xfe\xff\xff\xff\x0f": "undecodable",  # text of two GiB
        ours + record + b"\0": "malformed",
        ours: "malformed",
        b"\xc3\x01" + b"12345678" + record: "malformed",
    }
    reasons(spark, by, cases)
    (row,) = parsed(spark, by, record)
    assert (row[FIELDS]["user_id"], row[FIELDS]["amount"], str(row[FIELDS]["day"])) == ("u1", 1.5, "2024-10-04")


def test_single_object_bytes_are_those_of_the_avro_specification() -> None:
    """Its example: the fingerprint of "int" is 8f5c393f1ad57572, least byte first."""
    assert avro.rabin("int").hex() == "8f5c393f1ad57572"  # type: ignore[arg-type]  # a primitive is a schema too


def test_a_fixed_format_is_not_detected(spark: SparkSession, tmp_path: Path) -> None:
    """Then what does not fit is malformed, for its format is known."""
    reasons(spark, made(formats=["json"]), {b"u1,2": "malformed", b"nope": "malformed", b"": "empty", b"  ": "empty"})
    only = made(tmp_path, formats=["avro"])
    reasons(spark, only, {encoded({"user_id": "{"}): None, b'{"user_id": "u1"}': "malformed", b"": "empty"})


def test_reasons_name_all_that_is_wrong_in_order(spark: SparkSession) -> None:
    by = made(
        required=["user_id", "place.city"],
        cob={"field": "cob"},
        rules={"positive": "amount is null or amount >= 0", "known": "count in (1, 2)"},
    )
    good = {"user_id": "u", "place": {"city": "Bonn"}, "cob": "2026-03-01", "count": 1}
    cases: dict[bytes, str | None] = {
        json.dumps(good).encode(): None,
        json.dumps({**good, "user_id": None}).encode(): "required:user_id",
        json.dumps({**good, "place": {}}).encode(): "required:place.city",
        json.dumps({**good, "cob": None}).encode(): "cob_invalid",
        json.dumps({**good, "cob": "2026-02-30"}).encode(): "cob_invalid",
        **{
            json.dumps({**good, "cob": form}).encode(): "cob_invalid"
            for form in ("2026-3-1", "2026-02-1 ", " 2026-02-1", "2026-02-1T", "2026-02- 1", "2026- 2-01", "2026-2 -01")
        },
        **{
            json.dumps({**good, "cob": form}).encode(): "cob_invalid"
            for form in ("202-02-011", "+202-02-01", "2026-+2-01", "2026-02-+1", "2026-02-01 ", "2026-02-\u0661", "")
        },
        json.dumps({**good, "cob": "2026-03-02"}).encode(): "cob_future",
        json.dumps({**good, "amount": -1}).encode(): "rule:positive",
        json.dumps({**good, "count": None}).encode(): "rule:known",
        json.dumps({"cob": "2027-01-01", "amount": -1, "count": 3}).encode(): (
            "required:user_id;required:place.city;cob_future;rule:positive;rule:known"
        ),
    }
    reasons(spark, by, cases)


def test_classes_and_messages_follow_from_the_reason(spark: SparkSession) -> None:
    by = made(required=["user_id"], cob={"field": "cob"}, rules={"positive": "amount >= 0"})
    payloads = (b"", b"nope", b"{", b'{"cob":"2026-01-01","amount":1}', b'{"user_id":"u","amount":1}', event_of(-1))
    rows = [("events", 0, n, MARCH, bytearray(each)) for n, each in enumerate(payloads)]
    kept = parsing.outcomes(spark.createDataFrame(rows, RAW), by).persist()  # as in a batch: else all is planned as one
    found = parsing.quarantine_rows(kept, by)
    told = [tuple(row) for row in found.orderBy("stream_offset").select("error_class", "error_message").collect()]
    assert told == [
        ("UndecodableRecord", "the record has no bytes, or only blanks"),
        ("UndecodableRecord", "no format fits (json, csv)"),
        ("MalformedRecord", "the record does not fit the schema"),
        ("MissingField", "field user_id is missing"),
        ("InvalidDate", "field cob is no date (YYYY-MM-DD)"),
        ("RuleViolation", "rule positive does not hold: amount >= 0"),
    ]
    kept.unpersist()


def event_of(amount: float) -> bytes:
    return json.dumps({"user_id": "u", "cob": "2026-01-01", "amount": amount}).encode()


def test_a_record_without_time_has_no_future(spark: SparkSession) -> None:
    (row,) = parsed(spark, made(cob={"field": "cob"}), b'{"cob": "2999-01-01"}', at=None)
    assert row[REASON] is None


def test_tombstones_are_ignored_or_quarantined(spark: SparkSession) -> None:
    assert [row[REASON] for row in parsed(spark, made(), None)] == ["tombstone"]
    assert [row[REASON] for row in parsed(spark, made(tombstones="quarantine"), None)] == ["empty"]


@pytest.mark.parametrize("formats", [["json", "csv", "avro"], ["json"], ["csv"], ["avro"]])
def test_no_bytes_crash_the_job(spark: SparkSession, tmp_path: Path, formats: list[str]) -> None:
    """Whatever arrives, every row has an outcome."""
    by = made(tmp_path, formats=formats, cob={"field": "day"}, rules={"r": "amount > 0"})
    starts = st.sampled_from(
        [b"", b"{", b"[", b'{"amount":', b"\xc3\x01" + avro.rabin(AVRO), b"\x02", b"a,", b'"', b'{"amount":1}']
    )
    payload = st.one_of(st.none(), st.builds(bytes.__add__, starts, st.binary(max_size=60)))

    @settings(max_examples=3, suppress_health_check=list(HealthCheck))
    @given(st.lists(payload, min_size=200, max_size=400))
    def holds(payloads: Sequence[bytes | None]) -> None:
        found = parsed(spark, by, *payloads)
        assert len(found) == len(payloads)
        assert all(
            (row[FIELDS] is None) == (row[REASON] in ("tombstone", "empty", "undecodable", "malformed"))
            for row in found
        )

    holds()
