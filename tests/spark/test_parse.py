"""The whole job: raw into silver and quarantine, incrementally, each row once; duplicates; what it refuses."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingestor.errors import ConfigError, DataLossError, IngestorError, RefusedError
from spark_jobs.parse import parse
from spark_jobs.rows.balance import Balance
from tests.support.rawtables import Record
from tests.support.silver import MARCH_2026_MS, TP, Lake, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_REQUEST: dict[str, Any] = {"dedupe": {"by": ["request_id"], "within": "24h"}}


def test_rows_go_to_silver_and_quarantine_and_the_balance_tells(spark: SparkSession, lake: Lake) -> None:
    lake = Lake(lake.folder / "extras", extras=("key", "headers"))
    parse_as = {"cob": {"field": "cob"}, "required": ["user_id"], "partition_by": ["cob_date"]}
    rows = [
        Record(0, event(cob="2026-02-28"), TP, b"k0", (("h", b"1"), ("h", b"\xff")), MARCH_2026_MS),
        Record(1, event(None, cob="2026-02-28"), TP, b"k1", (("h", b"2"),), MARCH_2026_MS + 1),
        Record(2, None, TP, b"k2", (), MARCH_2026_MS + 2),
    ]
    lake.maker.flush(rows)
    assert parse(spark, lake.route(**parse_as)) == Balance(raw=3, silver=1, quarantine=1, tombstones=1)
    assert lake.silver() == [
        {
            "user_id": "u1",
            "amount": None,
            "cob": "2026-02-28",
            "request_id": None,
            "processing_version": "1.0",
            "source_topic": "events",
            "stream_partition": 0,
            "stream_offset": 0,
            "message_timestamp": dt.datetime(2026, 3, 1, tzinfo=dt.UTC),
            "cob_date": dt.date(2026, 2, 28),
        }
    ]
    assert lake.quarantine() == [
        {
            "stream_topic": "events",
            "stream_partition": 0,
            "stream_offset": 1,
            "message_timestamp": dt.datetime(2026, 3, 1, 0, 0, 0, 1000, tzinfo=dt.UTC),
            "message_payload": event(None, cob="2026-02-28"),
            "message_key": b"k1",
            "message_headers": [{"key": "h", "value": b"2"}],
            "message_timestamp_type": None,
            "error_reason": "required:user_id",
            "error_class": "MissingField",
            "error_message": "field user_id is missing",
            "processing_version": "1.0",
            "replayed_at": None,
        }
    ]
    assert list(lake.quarantine()[0]) == [
        *("stream_topic", "stream_partition", "stream_offset", "message_timestamp", "message_payload"),
        *("message_key", "message_headers", "message_timestamp_type"),
        *("error_reason", "error_class", "error_message", "processing_version", "replayed_at"),
    ]


def test_rows_of_many_dates_in_any_order_lie_in_their_partitions(spark: SparkSession, lake: Lake) -> None:
    """Of more dates than files are written at once; what the log says of each file is what it holds."""
    days = [f"2026-01-{1 + at * 5 % 28:02}" for at in range(280)]
    lake.land(*(event(f"u{at}", amount=at, cob=day) for at, day in enumerate(days)))
    route = lake.route(cob={"field": "cob"}, partition_by=["cob_date"])
    assert parse(spark, route) == Balance(raw=280, silver=280)
    assert lake.silver("amount", "cob_date") == [(float(at), dt.date.fromisoformat(day)) for at, day in enumerate(days)]
    actions = lake.table("raw-silver").get_add_actions(flatten=True)
    told = pa.table(actions).select(["partition.cob_date", "num_records", "min.amount", "max.amount"]).to_pylist()
    held = {day: [float(at) for at, other in enumerate(days) if other == day] for day in sorted(set(days))}
    assert {str(file["partition.cob_date"]): tuple(file.values())[1:] for file in told} == {
        day: (len(amounts), min(amounts), max(amounts)) for day, amounts in held.items()
    }
    assert len(told) == len(held)


@pytest.mark.parametrize(
    ("moment", "cob", "reason"),
    [
        ("1969-12-31T23:59:59.998", "1970-01-01", "cob_future"),  # 1 ms before 1970 is Kafka's "no time"
        ("1969-12-31T00:00:00", "1969-12-31", None),
        ("1970-01-01T00:00:00", "1970-01-01", None),
        ("2026-03-01T23:59:59.999", "2026-03-01", None),
        ("2026-03-01T23:59:59.999", "2026-03-02", "cob_future"),
        ("2026-03-02T00:00:00", "2026-03-02", None),
    ],
)
def test_a_business_date_may_be_that_of_the_record_and_no_later(
    spark: SparkSession, lake: Lake, moment: str, cob: str, reason: str | None
) -> None:
    """By the day in UTC that the record's own time lies in, before 1970 as well."""
    at_ms = round((dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1)).total_seconds() * 1000)  # noqa: DTZ001
    lake.maker.flush([Record(0, event(cob=cob), TP, timestamp_ms=at_ms)])
    parse(spark, lake.route(cob={"field": "cob"}))
    assert lake.quarantine("error_reason") == ([] if reason is None else [reason])


def test_every_type_that_a_schema_may_have_reaches_silver(spark: SparkSession, lake: Lake) -> None:
    schema = (
        "flag BOOLEAN, tiny TINYINT, small SMALLINT, whole INT, big BIGINT, ratio FLOAT, share DOUBLE, "
        "price DECIMAL(9,2), text STRING, raw BINARY, day DATE, at TIMESTAMP, list ARRAY<INT>, "
        "map MAP<STRING, STRUCT<a: INT>>, `odd-name` STRUCT<b: ARRAY<BOOLEAN>>"
    )
    record = {
        "flag": True,
        "tiny": 1,
        "small": 2,
        "whole": 3,
        "big": 4,
        "ratio": 0.5,
        "share": 0.25,
        "price": 1.5,
        "text": "x",
        "raw": "AQI=",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00+01:00",
        "list": [1, None],
        "map": {"k": {"a": 1}},
        "odd-name": {"b": [True]},
    }
    lake.land(json.dumps(record).encode())
    route = lake.route(schema=schema, formats=["json", "csv"], dedupe={"by": ["flag", "raw"]})
    assert parse(spark, route) == Balance(raw=1, silver=1)
    found = lake.silver()[0]
    assert (found["price"], found["raw"], found["list"]) == (decimal.Decimal("1.50"), b"\x01\x02", [1, None])
    assert found["at"] == dt.datetime(2026, 1, 31, 11, tzinfo=dt.UTC)
    assert found["odd-name"] == {"b": [True]}


def test_tables_stay_open_to_delta_rs(spark: SparkSession, lake: Lake) -> None:
    """No table feature, and delta-rs appends and updates."""
    lake.land(event(), b"nope")
    parse(spark, lake.route())
    for name in ("raw-silver", "raw-quarantine"):
        table = lake.table(name)
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        write_deltalake(table, table.to_pyarrow_table(), mode="append")
    quarantine = lake.table("raw-quarantine")
    quarantine.update(updates={"replayed_at": "cast('2026-03-02T00:00:00Z' as timestamp)"})
    assert all(row["replayed_at"] is not None for row in lake.quarantine())


def test_each_run_takes_what_is_new(spark: SparkSession, lake: Lake) -> None:
    lake.land(event(), b"nope")
    assert parse(spark, lake.route()) == Balance(raw=2, silver=1, quarantine=1)
    assert parse(spark, lake.route()) == Balance()
    lake.land(event("u2"), event("u3"))
    lake.land(b"nope again")
    assert parse(spark, lake.route()) == Balance(raw=3, silver=2, quarantine=1)
    assert lake.silver("stream_offset") == [0, 2, 3]
    assert lake.quarantine("stream_offset") == [1, 4]


def test_quarantine_only_ever_grows_by_entries_that_only_add(spark: SparkSession, lake: Lake) -> None:
    """Dead letters are published by that: an entry that also removes holds no new ones."""
    for payload in (b"one", b"two"):
        lake.land(payload)
        parse(spark, lake.route())
    log = lake.folder / "raw-quarantine" / "_delta_log"
    entries = [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(log.glob("*.json"))]
    assert [sum("add" in action for action in entry) for entry in entries] == [0, 1, 1]
    assert not any("remove" in action for entry in entries for action in entry)


def test_of_duplicates_the_first_is_kept_within_the_window(spark: SparkSession, lake: Lake) -> None:
    """By time, then partition, then offset; and the window counts from the row that was kept."""
    keys = ["a", "a", "a", "b", "b", None, None]
    hours = [20.0, 0.0, 40.0, 5.0, 5.0, 1.0, 1.0]
    lake.land(*(event(request_id=key) for key in keys), hours=hours)
    assert parse(spark, lake.route(**BY_REQUEST)) == Balance(raw=7, silver=5, duplicates=2)
    assert lake.silver("stream_offset") == [1, 2, 3, 5, 6]


def test_what_is_in_silver_wins(spark: SparkSession, lake: Lake) -> None:
    """Even over an earlier record that comes later; beyond the window it does not count."""
    lake.land(event(request_id="a"), hours=[30.0])
    assert parse(spark, lake.route(**BY_REQUEST)).silver == 1
    lake.land(*[event(request_id="a")] * 4, hours=[6.0, 5.0, 54.0, 55.0])
    assert parse(spark, lake.route(**BY_REQUEST)) == Balance(raw=4, silver=2, duplicates=2)
    assert lake.silver("stream_offset") == [0, 2, 4]


def test_bytes_that_are_no_text_are_kept_as_they_are(spark: SparkSession, lake: Lake) -> None:
    """Inside the job a payload is carried as text, whatever it holds."""
    payloads = [b"\xff\x00", b"\xc3(", b'{"user_id": "\xff"}', bytes(range(256)), "é\ufffd".encode()]
    lake.land(*payloads)
    assert parse(spark, lake.route(formats=["json", "csv"])) == Balance(raw=5, quarantine=5)
    assert lake.quarantine("message_payload") == payloads


def test_content_that_is_no_text_tells_look_alikes_apart(spark: SparkSession, lake: Lake) -> None:
    """Two Avro records whose bytes would read the same if they were made text."""
    lake.land(b"\x00\x80\x01", b"\x00\x82\x01", b"\x00\x80\x01")
    avro = {"schema": "number BIGINT", "formats": ["avro"], "dedupe": {"by": "content"}}
    assert parse(spark, lake.route(**avro)) == Balance(raw=3, silver=2, duplicates=1)
    assert lake.silver("number") == [64, 65]


def test_content_tells_duplicates_apart_from_look_alikes(spark: SparkSession, lake: Lake) -> None:
    by_content = {"dedupe": {"by": "content"}}
    lake.land(event("u1"), event("u1"), event("u1") + b" ", event("u2"))
    assert parse(spark, lake.route(**by_content)) == Balance(raw=4, silver=3, duplicates=1)
    lake.land(event("u2"))
    assert parse(spark, lake.route(**by_content)) == Balance(raw=1, duplicates=1)
    assert lake.silver("stream_offset") == [0, 2, 3]


def test_a_rejected_record_makes_no_other_a_duplicate(spark: SparkSession, lake: Lake) -> None:
    lake.land(event(None, request_id="a"), event(request_id="a"), hours=[0.0, 1.0])
    assert parse(spark, lake.route(required=["user_id"], **BY_REQUEST)) == Balance(raw=2, silver=1, quarantine=1)
    assert lake.silver("stream_offset") == [1]


def test_equal_coordinates_count_once(spark: SparkSession, lake: Lake) -> None:
    """Raw tables of other makers may hold a record twice, in one batch or in two, good or bad."""
    rows = [Record(0, event()), Record(1, b"nope"), Record(0, event()), Record(1, b"nope"), Record(2, None)]
    lake.maker.flush(rows, {})
    assert parse(spark, lake.route()) == Balance(raw=5, silver=1, quarantine=1, duplicates=2, tombstones=1)
    lake.maker.flush([*rows[:2], Record(3, event("u3"))], {})
    assert parse(spark, lake.route()) == Balance(raw=3, silver=1, duplicates=2)
    assert (lake.silver("stream_offset"), lake.quarantine("stream_offset")) == ([0, 3], [1])


def test_a_lost_checkpoint_is_refused(spark: SparkSession, lake: Lake) -> None:
    """A new one would number its batches from 0, and they would be skipped or landed twice."""
    lake.land(event())
    route = lake.route()
    parse(spark, route)
    (lake.folder / "raw-checkpoint").rename(lake.folder / "gone")
    with pytest.raises(ConfigError, match=r"is new, but .*raw-silver has batches of it"):
        parse(spark, route)


def test_a_checkpoint_from_a_backup_is_refused(spark: SparkSession, lake: Lake) -> None:
    route = lake.route()
    for number in range(2):
        lake.land(event(f"u{number}"))
        parse(spark, route)
    for path in (lake.folder / "raw-checkpoint/_spark_jobs/steps").glob("*1.*"):
        path.unlink()
    with pytest.raises(ConfigError, match="ends before batch 1"):
        parse(spark, route)


def test_a_missing_raw_table_and_another_schema_are_named(spark: SparkSession, lake: Lake) -> None:
    lake.land(event())
    route = lake.route()
    parse(spark, route)
    with pytest.raises(RefusedError, match="raw-silver has another schema: colour is missing"):
        parse(spark, lake.route(schema="user_id STRING, amount DOUBLE, cob STRING, request_id STRING, colour STRING"))
    with pytest.raises(RefusedError, match="is partitioned by"):
        parse(spark, lake.route(partition_by=["user_id"]))
    (lake.folder / "raw").rename(lake.folder / "elsewhere")
    with pytest.raises(ConfigError, match="there is no raw table"):
        parse(spark, route)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("amount", "is double, not true or false"),
        ("nosuch(amount) > 1", "nosuch"),
        ("sum(amount) > 1", ""),
        ("message_timestamp < 'now'", "uses 'now' as a timestamp, which does not say the same thing twice"),
        ("message_timestamp < cast(concat('tomo', 'rrow') as timestamp)", "uses 'tomorrow' as a timestamp"),
        ("exists(array(1), x -> to_date(' Today') > message_timestamp)", "uses 'today' as a date"),
    ],
)
def test_spark_has_the_last_word_on_rules(spark: SparkSession, lake: Lake, rule: str, told: str) -> None:
    """Before a table is made."""
    lake.land(event())
    with pytest.raises(ConfigError, match=rf"parse\.events\.rules\.r: .*{told}"):
        parse(spark, lake.route(rules={"r": rule}))
    assert not (lake.folder / "raw-silver").exists()


def test_a_rule_that_fails_on_a_record_rejects_it(spark: SparkSession, lake: Lake) -> None:
    """It does not end the job: arithmetic that overflows or divides by nothing is no truth."""
    lake.land(event(amount=0.0), event(amount=2.0))
    assert parse(spark, lake.route(rules={"r": "1 / amount < cast('x' as int) or amount > 1"})).silver == 1


def test_rows_that_raw_lost_before_they_were_parsed_do_not_reach_silver(spark: SparkSession, lake: Lake) -> None:
    """By DELETE, also after a compaction, or blanked by UPDATE; also in the file of a first parse that was cut."""
    lake = Lake(lake.folder, parse={"formats": ["json"]})
    lake.land(event("u0"), event("u1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.steps.batch.Job.process", lambda *_: 1 / 0)
        with pytest.raises(IngestorError, match="division"):
            parse(spark, lake.route())
    lake.table("raw").delete("stream_offset = 1")
    assert parse(spark, lake.route()) == Balance(raw=1, silver=1)
    lake.land(event("u2"), event("u3"), b"nope", event("u5"))
    lake.land(event("u6"), event("u7"))
    lake.table("raw").delete("stream_offset in (2, 4)")
    lake.table("raw").optimize.compact()
    lake.table("raw").delete("stream_offset = 6")
    lake.table("raw").update(updates={"message_payload": "null"}, predicate="stream_offset = 5")
    lake.land(event("u8"))
    assert parse(spark, lake.route()) == Balance(raw=4, silver=3, tombstones=1)
    assert parse(spark, lake.route()) == Balance()
    assert lake.silver("stream_offset") == [0, 3, 7, 8]


def test_raw_rows_that_were_deleted_before_they_were_parsed_are_missed(spark: SparkSession, lake: Lake) -> None:
    lake.land(event())
    parse(spark, lake.route())
    lake.land(event("u2"))
    lake.land(event("u3"))
    for path in (lake.folder / "raw").glob("*.parquet"):
        path.unlink()
    with pytest.raises(DataLossError, match="route events"):
        parse(spark, lake.route())
