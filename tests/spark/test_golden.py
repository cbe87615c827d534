"""The golden tables, row by row: tests/spark/golden says what each input becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.judge import golden
from tests.support.judge.golden import Table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["json", "csv", "avro"])
def test_each_input_becomes_what_the_table_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    cases = golden.load(name)
    kinds = [case.kind for case in cases]
    table = Table(kinds, formats=[name], avsc=tmp_path / "golden.avsc" if name == "avro" else None)
    write = {"json": table.json, "csv": table.csv, "avro": table.avro}[name]
    found = table.outcomes(spark, [(case.kind, write(case.kind, case.text)) for case in cases])
    wrong = [(case, told) for case, told in zip(cases, found, strict=True) if told != case.outcome]
    assert wrong == []


def test_each_record_becomes_what_the_table_says(spark: SparkSession, tmp_path: Path) -> None:
    cases = golden.load("records")
    found = golden.records(spark, tmp_path / "event.avsc", [(case.kind, case.text) for case in cases])
    wrong = [(case, told) for case, told in zip(cases, found, strict=True) if told != case.outcome]
    assert wrong == []


def test_the_tables_are_many_rows_and_no_input_is_in_one_twice() -> None:
    tables = {name: golden.load(name) for name in ("json", "csv", "avro", "records")}
    assert sum(map(len, tables.values())) >= 300
    for cases in tables.values():
        assert len({(case.kind, case.text) for case in cases}) == len(cases)
