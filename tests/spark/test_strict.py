"""Strict values from the raw table to silver: partitions, times, headers, and the way back out of quarantine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spark_jobs.parse import parse
from spark_jobs.reparse import reparse
from spark_jobs.rows.balance import Balance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.silver import Lake


def test_a_partition_that_would_come_back_as_null_is_quarantined(spark: SparkSession, lake: Lake) -> None:
    """Also where Spark's own conversions are asked for: this is no matter of conversion."""
    countries = ["DE", "", "__HIVE_DEFAULT_PARTITION__", None, " ", "a/b=c"]
    lake.land(*(json.dumps({"country": country, "id": at}).encode() for at, country in enumerate(countries)))
    settings = {"schema": "country STRING, id INT", "partition_by": ["country"], "formats": ["json"]}
    assert parse(spark, lake.route(**settings, strict=False)) == Balance(raw=6, silver=4, quarantine=2)
    assert lake.silver("id", "country") == [(0, "DE"), (3, None), (4, " "), (5, "a/b=c")]
    assert lake.quarantine("stream_offset", "error_reason") == [(1, "malformed:country"), (2, "malformed:country")]


def test_what_is_malformed_now_can_be_reparsed_when_numbers_have_a_meaning(spark: SparkSession, lake: Lake) -> None:
    lake.land(b'{"at": 1767225600123}', b'{"at": "2026-01-01T00:00:00Z"}', b'{"at": "12:30"}')
    settings = {"schema": "at TIMESTAMP", "formats": ["json"]}
    assert parse(spark, lake.route(**settings)) == Balance(raw=3, silver=1, quarantine=2)
    assert (
        lake.quarantine("error_reason", "error_class", "error_message")
        == [("malformed:at", "MalformedRecord", "field at does not convert to TIMESTAMP without loss or doubt")] * 2
    )
    route = lake.route(**settings, timestamps={"at": "millis"})
    assert reparse(spark, route) == Balance(raw=2, silver=1, quarantine=1)
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    assert lake.silver("stream_offset", "at") == [(0, new_year.replace(microsecond=123_000)), (1, new_year)]
    assert lake.quarantine("stream_offset") == [2]


def test_a_csv_header_is_counted_and_ignored(spark: SparkSession, lake: Lake) -> None:
    lake.land(b"user_id,amount", b"u1,1.5", b"user_id,amount\n")
    settings = {"schema": "user_id STRING, amount DOUBLE", "formats": ["csv"], "csv": {"header": True}}
    assert parse(spark, lake.route(**settings)) == Balance(raw=3, silver=1, tombstones=2)
