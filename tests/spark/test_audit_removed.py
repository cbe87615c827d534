"""What Spark's own RESTORE, DELETE, MERGE, OPTIMIZE and overwrite leave in the log, as an audit reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestor.audit import Names, Report, audit_table
from tests.support.rawtables import TP, FakeKafka, TableMaker, records

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ALL = records(*range(8))


def audit(maker: TableMaker) -> Report:
    """Audit the maker's table against a Kafka that has every record."""
    names = Names(maker.app_ids.template, maker.app_ids.app_id)
    return audit_table(maker.uri, {}, names, maker.schema, kafka=FakeKafka(ALL), progress=lambda _: None)


def test_what_spark_removes_is_found_or_noted(spark: SparkSession, tmp_path: Path) -> None:
    """As what delta-rs removes: chosen rows are notes, RESTORE and overwrites are findings, until the rows are back."""
    maker = TableMaker(tmp_path / "raw")
    for number in range(4):
        maker.flush(records(2 * number, 2 * number + 1))
    table = f"delta.`{maker.uri}`"

    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 4")
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "every offset once" in list(report.lines())[-1]

    spark.sql(f"DELETE FROM {table} WHERE stream_offset IN (1, 2)")
    keys = f"(SELECT * FROM {table} WHERE stream_offset = 7)"
    spark.sql(f"MERGE INTO {table} t USING {keys} s ON t.stream_offset = s.stream_offset WHEN MATCHED THEN DELETE")
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 7 (DELETE) removed 2 rows of orders:0, offsets 1 to 2",
        "version 8 (MERGE) removed 1 row of orders:0, offset 7",
    )
    assert "every offset once" not in list(report.lines())[-1]

    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 2")
    found = audit(maker).findings
    assert [(each.kind, each.version, each.tp, each.offsets) for each in found] == [("removed", 9, TP, (4, 6))]

    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 4")
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "every offset once" in list(report.lines())[-1]

    spark.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table} WHERE stream_offset < 6")
    assert [(each.kind, each.version, each.offsets) for each in audit(maker).findings] == [("removed", 11, (6, 7))]

    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 4")
    spark.sql(f"DELETE FROM {table}")
    assert [(each.kind, each.version, each.offsets) for each in audit(maker).findings] == [("removed", 13, (0, 7))]
