"""What Spark's own RESTORE, DELETE, MERGE, OPTIMIZE and overwrite leave in the log, as an audit reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingestor.audit import Names, Report, audit_table
from tests.support.rawtables import FakeKafka, TableMaker, records

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Shared:
    """A table of four commits of two rows each, which Spark changes too."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Land the rows."""
        self.spark = spark
        self.maker = TableMaker(folder / "raw")
        for number in range(4):
            self.maker.flush(records(2 * number, 2 * number + 1))

    def sql(self, text: str) -> None:
        """Let Spark do something to TABLE."""
        self.spark.sql(text.replace("TABLE", f"delta.`{self.maker.uri}`"))

    def audit(self) -> Report:
        """Audit it against a Kafka that has every record."""
        names = Names(self.maker.app_ids.template, self.maker.app_ids.app_id)
        kafka = FakeKafka(records(*range(8)))
        return audit_table(self.maker.uri, {}, names, self.maker.schema, kafka=kafka, progress=lambda _: None)

    def removed(self) -> list[tuple[str, int | None, tuple[int, int] | None]]:
        """Return the findings of an audit: kind, version, offsets."""
        return [(found.kind, found.version, found.offsets) for found in self.audit().findings]


@pytest.fixture
def shared(spark: SparkSession, tmp_path: Path) -> Shared:
    """Return a table for Spark to change."""
    return Shared(spark, tmp_path)


def test_what_spark_removes_is_found_until_the_rows_are_back(shared: Shared) -> None:
    """RESTORE, INSERT OVERWRITE and a DELETE of everything; OPTIMIZE takes nothing."""
    shared.sql("OPTIMIZE TABLE")
    shared.sql("RESTORE TABLE TO VERSION AS OF 2")
    assert shared.removed() == [("removed", 6, (4, 7))]

    shared.sql("RESTORE TABLE TO VERSION AS OF 5")
    report = shared.audit()
    assert report.ok, list(report.lines())
    assert "every offset once, 8 equal to Kafka's" in list(report.lines())[-1]

    shared.sql("INSERT OVERWRITE TABLE SELECT * FROM TABLE WHERE stream_offset < 6")
    assert shared.removed() == [("removed", 8, (6, 7))]
    shared.sql("DELETE FROM TABLE")
    assert shared.removed() == [("removed", 8, (6, 7)), ("removed", 9, (0, 5))]


def test_what_a_person_chooses_in_spark_is_told(shared: Shared) -> None:
    """By DELETE and MERGE, with the rows of each partition."""
    shared.sql("DELETE FROM TABLE WHERE stream_offset IN (1, 2)")
    keys = "SELECT * FROM TABLE WHERE stream_offset = 7"
    shared.sql(f"MERGE INTO TABLE t USING ({keys}) s ON t.stream_offset = s.stream_offset WHEN MATCHED THEN DELETE")
    report = shared.audit()
    assert report.ok, list(report.lines())
    assert report.notes == (
        "version 5 (DELETE) removed 2 rows of orders:0, offsets 1 to 2",
        "version 6 (MERGE) removed 1 row of orders:0, offset 7",
    )
    assert "every offset once" not in list(report.lines())[-1]
