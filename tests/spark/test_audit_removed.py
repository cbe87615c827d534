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

    def sql(text: str) -> None:
        spark.sql(text.replace("TABLE", f"delta.`{maker.uri}`"))

    sql("OPTIMIZE TABLE")
    sql("RESTORE TABLE TO VERSION AS OF 4")
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "every offset once" in list(report.lines())[-1]

    sql("DELETE FROM TABLE WHERE stream_offset IN (1, 2)")
    keys = "SELECT * FROM TABLE WHERE stream_offset = 7"
    sql(f"MERGE INTO TABLE t USING ({keys}) s ON t.stream_offset = s.stream_offset WHEN MATCHED THEN DELETE")
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 7 (DELETE) removed 2 rows of orders:0, offsets 1 to 2",
        "version 8 (MERGE) removed 1 row of orders:0, offset 7",
    )
    assert "every offset once" not in list(report.lines())[-1]

    sql("RESTORE TABLE TO VERSION AS OF 2")
    found = audit(maker).findings
    assert [(each.kind, each.version, each.tp, each.offsets) for each in found] == [("removed", 9, TP, (4, 6))]

    sql("RESTORE TABLE TO VERSION AS OF 4")
    report = audit(maker)
    assert report.ok, list(report.lines())
    assert "every offset once" in list(report.lines())[-1]

    sql("INSERT OVERWRITE TABLE SELECT * FROM TABLE WHERE stream_offset < 6")
    assert [(each.kind, each.version, each.offsets) for each in audit(maker).findings] == [("removed", 11, (6, 7))]

    sql("RESTORE TABLE TO VERSION AS OF 4")
    sql("DELETE FROM TABLE")
    assert [(each.kind, each.version, each.offsets) for each in audit(maker).findings] == [("removed", 13, (0, 7))]
