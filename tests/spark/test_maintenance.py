"""Compaction, vacuum and reset: what they change, what they must not, and what they refuse."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.errors import ConfigError, DataLossError
from spark_jobs.compact import compact
from spark_jobs.parse import parse
from spark_jobs.rows.balance import Balance
from spark_jobs.steps.reset import reset
from spark_jobs.vacuum import vacuum
from tests.support.silver import Lake, event, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forget_quickly(lake: Lake, *tables: str) -> None:
    """Let a table's removed files go at once, as after a week."""
    for name in tables:
        lake.table(name).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})


def protocols(lake: Lake, *tables: str) -> set[tuple[int, int]]:
    found = [lake.table(name).protocol() for name in tables]
    return {(protocol.min_reader_version, protocol.min_writer_version) for protocol in found}


def test_compaction_moves_rows_and_changes_none(spark: SparkSession, lake: Lake) -> None:
    """Neither the parse stream nor the ingestor sees anything new in it."""
    for number in range(4):
        lake.land(event(f"u{number}"))
    assert parse(spark, lake.route()).silver == 4
    lake.land(event("u4"))
    rows = sorted(lake.table("raw").to_pyarrow_table().column("stream_offset").to_pylist())
    summary = compact(spark, str(lake.folder / "raw"))
    assert summary is not None
    assert (summary.files_before, summary.files_after) == (5, 1)
    assert summary.bytes_after < summary.bytes_before
    assert sorted(lake.table("raw").to_pyarrow_table().column("stream_offset").to_pylist()) == rows
    assert protocols(lake, "raw", "raw-silver") == {(1, 2)}
    lake.land(event("u5"))
    assert parse(spark, lake.route()) == Balance(raw=2, silver=2)
    assert lake.silver("stream_offset") == [0, 1, 2, 3, 4, 5]


def test_silver_can_be_laid_out_by_columns(spark: SparkSession, lake: Lake) -> None:
    for number in range(2):
        lake.land(event(f"u{number}"))
        parse(spark, lake.route())
    silver = str(lake.folder / "raw-silver")
    summary = compact(spark, silver, zorder=["user_id"])
    assert summary is not None
    assert (summary.files_before, summary.files_after) == (2, 1)
    assert lake.silver("user_id") == ["u0", "u1"]
    assert compact(spark, str(lake.folder / "nowhere")) is None


def test_vacuum_shows_first_and_removes_what_was_compacted_away(spark: SparkSession, lake: Lake) -> None:
    for number in range(3):
        lake.land(event(f"u{number}"))
    parse(spark, lake.route())
    compact(spark, str(lake.folder / "raw"))
    forget_quickly(lake, "raw", "raw-silver")
    before = sorted((lake.folder / "raw").glob("*.parquet"))
    shown = vacuum(spark, lake.route(), hours=0, delete=False)
    assert [len(each.files) for each in shown] == [3, 0]
    assert sorted((lake.folder / "raw").glob("*.parquet")) == before
    vacuum(spark, lake.route(), hours=0, delete=True)
    assert len(list((lake.folder / "raw").glob("*.parquet"))) == 1
    lake.land(event("u3"))
    assert parse(spark, lake.route()) == Balance(raw=1, silver=1)


@pytest.mark.parametrize("parsed_before", [True, False])
def test_vacuum_refuses_what_the_parse_has_yet_to_read(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, *, parsed_before: bool
) -> None:
    """Whether the stream stands in the log, or still in the snapshot that its first batch was to read."""
    lake.land(event("u0"))
    if parsed_before:
        parse(spark, lake.route())
    else:
        die_in_first_batch(spark, lake, monkeypatch)
    lake.land(event("u1"))
    lake.land(event("u2"))
    compact(spark, str(lake.folder / "raw"))
    forget_quickly(lake, "raw")
    told = "hold rows that are not parsed yet" if parsed_before else "the first parse has not ended"
    with pytest.raises(DataLossError, match=told):
        vacuum(spark, lake.route(), hours=0, delete=True)
    with pytest.raises(DataLossError, match=told):  # the table's own retention is shorter, and Delta goes by it
        vacuum(spark, lake.route(), hours=168, delete=True)
    assert parse(spark, lake.route()).even
    assert lake.silver("stream_offset") == [0, 1, 2]
    with pytest.raises(ConfigError, match="retention"):
        vacuum(spark, lake.route(), hours=0, delete=True)  # silver keeps removed files for the usual week
    forget_quickly(lake, "raw-silver")
    vacuum(spark, lake.route(), hours=0, delete=True)


def test_vacuum_keeps_what_a_merge_rewrote_until_it_is_parsed(spark: SparkSession, lake: Lake) -> None:
    lake.land(event("u0"), event("u1"))
    parse(spark, lake.route())
    merge(lake, {1: None, 2: event("u2")})
    forget_quickly(lake, "raw")
    with pytest.raises(DataLossError, match="1 files of"):
        vacuum(spark, lake.route(), hours=0, delete=True)
    assert parse(spark, lake.route()) == Balance(raw=1, silver=1)
    forget_quickly(lake, "raw-silver")
    vacuum(spark, lake.route(), hours=0, delete=True)


def die_in_first_batch(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.steps.batch.Job.process", die)
        with pytest.raises(Exception, match="killed"):
            parse(spark, lake.route())


def test_after_a_reset_known_rows_are_counted_not_written(spark: SparkSession, lake: Lake) -> None:
    lake.land(event("u0"), b"nope", None)
    parse(spark, lake.route())
    reset(spark, lake.route(), empty=False)
    lake.land(event("u1"))
    assert parse(spark, lake.route()) == Balance(raw=4, silver=1, duplicates=2, tombstones=1)
    assert (lake.silver("stream_offset"), lake.quarantine("stream_offset")) == ([0, 3], [1])


def test_after_a_reset_to_empty_all_is_parsed_by_the_present_rules(spark: SparkSession, lake: Lake) -> None:
    lake.land(event("u0"), event(None))
    parse(spark, lake.route(required=["user_id"]))
    reset(spark, lake.route(), empty=True)
    assert parse(spark, lake.route()) == Balance(raw=2, silver=2)
    assert lake.quarantine() == []


def test_a_second_compaction_at_the_same_time_tries_again(spark: SparkSession, lake: Lake) -> None:
    """Two at once on one table: both end well, and the rows are there once."""
    for number in range(6):
        lake.land(event(f"u{number}"))
    raw = str(lake.folder / "raw")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: compact(spark, raw), range(2)))
    rows = lake.table("raw").to_pyarrow_table().column("stream_offset").to_pylist()
    assert sorted(rows) == list(range(6))
    entries = [json.loads(line) for path in (lake.folder / "raw/_delta_log").glob("*.json") for line in path.open()]
    assert any(entry.get("commitInfo", {}).get("operation") == "OPTIMIZE" for entry in entries)
