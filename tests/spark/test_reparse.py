"""Quarantined rows once more, by a mended configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.errors import IngestorError
from spark_jobs.parse import parse
from spark_jobs.reparse import reparse
from spark_jobs.rows.balance import Balance
from spark_jobs.steps import moving
from tests.support.silver import event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.silver import Lake

STRICT: dict[str, Any] = {"rules": {"small": "amount < 10"}, "dedupe": {"by": ["request_id"]}}
MENDED: dict[str, Any] = {
    "rules": {"small": "amount < 100"},
    "dedupe": {"by": ["request_id"]},
    "processing_version": "2.0",
}
ROWS = [
    event(amount=1, request_id="a"),
    event(amount=50, request_id="b"),
    event(amount=60, request_id="a"),
    event(amount=70, request_id="b"),
    event(amount=500, request_id="c"),
    b"nope",
]


def quarantined(spark: SparkSession, lake: Lake) -> None:
    lake.land(*ROWS)
    assert parse(spark, lake.route(**STRICT)) == Balance(raw=6, silver=1, quarantine=5)


def judge(lake: Lake) -> None:
    assert lake.silver("stream_offset", "processing_version") == [(0, "1.0"), (1, "2.0")]
    assert lake.quarantine("stream_offset", "error_reason", "error_message", "processing_version") == [
        (4, "rule:small", "rule small does not hold: amount < 100", "2.0"),
        (5, "undecodable", "no format fits (json, csv, avro)", "2.0"),
    ]


def test_what_parses_now_moves_and_the_rest_gets_its_new_reason(spark: SparkSession, lake: Lake) -> None:
    """Duplicates of what silver has, or of one another, go; nothing of it looks like new dead letters."""
    quarantined(spark, lake)
    before = lake.table("raw-quarantine").version()
    assert reparse(spark, lake.route(**MENDED)) == Balance(raw=5, silver=1, quarantine=2, duplicates=2)
    judge(lake)
    log = lake.folder / "raw-quarantine" / "_delta_log"
    for path in sorted(log.glob("*.json"))[before + 1 :]:
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        assert any("remove" in action for action in actions)
    assert reparse(spark, lake.route(**MENDED)) == Balance(raw=2, quarantine=2)
    judge(lake)


def test_a_reparse_that_died_between_its_writes_moves_nothing_twice(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantined(spark, lake)

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(moving, "_settle", die)
        with pytest.raises(IngestorError, match="killed"):
            reparse(spark, lake.route(**MENDED))
    assert lake.silver("stream_offset") == [0, 1]
    assert len(lake.quarantine()) == 5
    assert reparse(spark, lake.route(**MENDED)).even
    judge(lake)


def test_rows_that_were_replayed_are_left_alone(spark: SparkSession, lake: Lake) -> None:
    """They come again as new records of their topic."""
    quarantined(spark, lake)
    replayed = {"replayed_at": "cast('2026-03-02T00:00:00Z' as timestamp)"}
    lake.table("raw-quarantine").update(updates=replayed, predicate="stream_offset = 1")
    assert reparse(spark, lake.route(**MENDED)) == Balance(raw=4, silver=1, quarantine=2, duplicates=1)
    assert lake.quarantine("stream_offset", "processing_version") == [(1, "1.0"), (4, "2.0"), (5, "2.0")]
