"""Raw rows that a foreign hand inserts, changes and deletes in one log entry: what is new reaches silver, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.parse import parse
from spark_jobs.rows.balance import Balance
from spark_jobs.steps import raw
from tests.support.silver import account, event, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.silver import Lake


def test_what_a_merge_inserts_is_parsed_and_what_it_rewrites_is_not(spark: SparkSession, lake: Lake) -> None:
    """Not again: it keeps what silver has of it, and is no duplicate."""
    lake.land(event("u0"), event("u1"), b"nope")
    assert parse(spark, lake.route()) == Balance(raw=3, silver=2, quarantine=1)
    merge(lake, {1: None, 2: b"never", 3: event("u3"), 4: b"nope", 5: event("u5")})
    assert parse(spark, lake.route()) == Balance(raw=3, silver=2, quarantine=1)
    assert lake.silver("user_id") == ["u0", "u1", "u3", "u5"]
    assert lake.quarantine("message_payload") == [b"nope", b"nope"]
    assert parse(spark, lake.route()) == Balance()


@pytest.mark.parametrize("files", [pytest.param(1, marks=pytest.mark.soak), raw.BATCH_FILES])
def test_merges_of_rows_that_are_not_parsed_yet(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """Appended, rewritten, inserted, and rewritten again, before a parse comes by; in batches of any size."""
    monkeypatch.setattr(raw, "BATCH_FILES", files)
    lake.land(event("u0"))
    parse(spark, lake.route())
    lake.land(event("u1"), event("u2"))
    merge(lake, {0: event("u0"), 1: None, 3: event("u3"), 4: event("u4")})
    merge(lake, {3: None, 4: event("changed"), 5: event("u5")})
    lake.next_offset = 6
    lake.land(event("u6"))
    assert parse(spark, lake.route()) == Balance(raw=4, silver=4)
    assert lake.silver("user_id") == ["u0", "u2", "changed", "u5", "u6"]
    account(lake)
    assert parse(spark, lake.route()) == Balance()


def test_an_overwrite_brings_what_it_adds(spark: SparkSession, lake: Lake) -> None:
    """Rows that are in it as they were are not new."""
    lake.land(event("u0"), event("u1"))
    parse(spark, lake.route())
    rows = lake.table("raw").to_pyarrow_table().sort_by("stream_offset").to_pylist()
    rows[1] |= {"stream_offset": 2, "message_payload": event("u2")}
    write_deltalake(
        lake.table("raw"),
        pa.Table.from_pylist(rows, pa.schema(lake.table("raw").schema().to_arrow())),
        mode="overwrite",
    )
    assert parse(spark, lake.route()) == Balance(raw=1, silver=1)
    assert lake.silver("user_id") == ["u0", "u1", "u2"]
