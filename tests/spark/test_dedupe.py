"""What makes two rows the same: every type of key, every time that a record may have, however many rows there are."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.parse import parse
from spark_jobs.rows import duplicates
from spark_jobs.rows.balance import Balance
from tests.support.rawtables import Record
from tests.support.silver import MARCH_2026_MS, TP, Lake, event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

BY_REQUEST: dict[str, Any] = {"formats": ["json"], "dedupe": {"by": ["request_id"], "within": "24h"}}
HOUR_MS = 3_600_000
# Bytes that are no UTF-8 all become the same character when they are made text.
BYTES = [b"\x80\x81", b"\x80\x82", b"\xff\xfe", b"\x00\x00", b"ab", b"\xef\xbf\xbd\xbf", b"\xc3\x28"]
VALUES: dict[str, list[Any]] = {
    "flag BOOLEAN": [True, False],
    "tiny TINYINT": [-128, 0, 127],
    "big BIGINT": [2**53, 2**53 + 1, -(2**63)],
    "ratio FLOAT": [0.1, 0.10000001, -0.5],
    "share DOUBLE": [0.1, 0.1 + 2**-55, 1e300],
    "price DECIMAL(38,2)": [1, 10**35, 10**35 + 1],
    "text STRING": ["a", "A", "a ", "", "\u0000", "e\u0301", "\u00e9"],
    "day DATE": ["0001-01-01", "2026-03-01", "9999-12-31"],
    "at TIMESTAMP": ["2026-03-01T00:00:00.000001Z", "2026-03-01T00:00:00.000002Z"],
}


def avro(schema: dict[str, Any], *records: dict[str, Any]) -> Iterator[bytes]:
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, record)
        yield out.getvalue()


def test_keys_of_bytes_are_compared_as_bytes(spark: SparkSession, lake: Lake) -> None:
    """BINARY, and Avro's `fixed` beside it: each distinct pair once, in one batch and across two."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "bytes"},
            {"name": "half", "type": {"type": "fixed", "name": "Half", "size": 2}},
        ],
    }
    (lake.folder / "r.avsc").write_text(json.dumps(schema))
    pairs = [{"id": each, "half": half} for each in BYTES for half in (b"\x80\x80", b"\x81\x81")]
    route = lake.route(schema="r.avsc", formats=["avro"], dedupe={"by": ["id", "half"]})
    lake.land(*avro(schema, *pairs, pairs[0]))
    assert parse(spark, route) == Balance(raw=15, silver=14, duplicates=1)
    lake.land(*avro(schema, *pairs))
    assert parse(spark, route) == Balance(raw=14, duplicates=14)


def test_distinct_keys_of_every_type_stay_distinct(spark: SparkSession, lake: Lake) -> None:
    """All types of keys at once: of each row one field differs from what the first row has."""
    names = [kind.partition(" ")[0] for kind in VALUES]
    first = {name: values[0] for name, values in zip(names, VALUES.values(), strict=True)}
    rows = [first | {name: value} for name, each in zip(names, VALUES.values(), strict=True) for value in each[1:]]
    rows.insert(0, first)
    lake.land(*(json.dumps(row).encode() for row in (*rows, *rows)))
    route = lake.route(schema=", ".join(VALUES), formats=["json"], dedupe={"by": names})
    assert parse(spark, route) == Balance(raw=2 * len(rows), silver=len(rows), duplicates=len(rows))


def test_times_at_the_ends_of_what_kafka_can_say(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Year 58132, before year 1, none at all, and the hour that a clock of the driver's zone has twice."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        autumn = int(
            dt.datetime(2025, 10, 26, 0, 30, tzinfo=dt.UTC).timestamp() * 1000
        )  # 02:30, and once more at 01:30Z
        far, early = 1_772_323_200_000_000, -70_000_000_000_000
        times = [far, far + HOUR_MS, early, early + HOUR_MS, autumn, autumn + 24 * HOUR_MS, autumn + 49 * HOUR_MS]
        lake.maker.flush([Record(at, event(request_id="a"), TP, timestamp_ms=ms) for at, ms in enumerate(times)])
        route = lake.route(**BY_REQUEST)
        assert parse(spark, route) == Balance(raw=7, silver=4, duplicates=3)
        later = [far + 2 * HOUR_MS, early + 2 * HOUR_MS, autumn - 24 * HOUR_MS, autumn - 24 * HOUR_MS - 1]
        lake.maker.flush([Record(7 + at, event(request_id="a"), TP, timestamp_ms=ms) for at, ms in enumerate(later)])
        assert parse(spark, route) == Balance(raw=4, silver=1, duplicates=3)
    finally:
        monkeypatch.undo()
        time.tzset()
    offsets = lake.table("raw-silver").to_pyarrow_table(columns=["stream_offset"])
    assert sorted(offsets.column("stream_offset").to_pylist()) == [0, 2, 4, 6, 10]


def kept(times: Sequence[int], window: int) -> list[int]:
    """Walk through times in order, as slowly as one likes."""
    found: list[int] = []
    for at in sorted(times):
        if not found or at - found[-1] > window:
            found.append(at)
    return found


@pytest.mark.parametrize(("rows", "apart", "window"), [(40_000, 1, 3), (40_000, 7, 0), (3, 5, 5)])
def test_of_a_key_with_many_rows_the_same_are_kept_as_by_a_walk(
    spark: SparkSession, rows: int, apart: int, window: int
) -> None:
    """In about as many steps as there are rows: with their square this test would run into its time limit."""
    frame = spark.range(rows).select(
        F.lit("k").alias("__key"),
        (F.col("id") * apart).alias("__at"),
        F.lit("events").alias("stream_topic"),
        F.lit(0).alias("stream_partition"),
        F.col("id").alias("stream_offset"),
    )
    found = {row["stream_offset"] for row in duplicates._within_batch(frame, window).collect()}
    assert found == set(range(rows)) - {at // apart for at in kept(range(0, rows * apart, apart), window)}


def test_a_record_without_a_time_is_no_duplicate_and_makes_none(spark: SparkSession, lake: Lake) -> None:
    lake.maker.flush(
        [
            Record(0, event(request_id="a"), TP, timestamp_ms=-1),
            Record(1, event(request_id="a"), TP, timestamp_ms=MARCH_2026_MS),
            Record(2, event(request_id="a"), TP, timestamp_ms=-1),
            Record(3, event(request_id="a"), TP, timestamp_ms=MARCH_2026_MS + HOUR_MS),
        ]
    )
    table = lake.table("raw")
    table.update(updates={"message_timestamp": "null"}, predicate="stream_offset in (0, 2)")
    assert parse(spark, lake.route(**BY_REQUEST)) == Balance(raw=4, silver=3, duplicates=1)
    assert lake.silver("stream_offset") == [0, 1, 2]
