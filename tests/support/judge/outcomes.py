"""What becomes of records, as JSON, and what fastavro reads, written alike."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.rows import parsing
from spark_jobs.rows.formats import FIELDS
from spark_jobs.rows.parsing import REASON
from tests.support.judge.golden import RAW, as_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.plan.plan import Plan


def outcomes(spark: SparkSession, by: Plan, payloads: Sequence[bytes]) -> list[tuple[str | None, dict[str, Any]]]:
    """Return each record's reason and fields."""
    rows = [("events", 0, at, None, bytearray(payload)) for at, payload in enumerate(payloads)]
    found = parsing.outcomes(spark.createDataFrame(rows, RAW), by)
    table = found.select("stream_offset", REASON, as_json(F.col(FIELDS)).alias("told")).orderBy("stream_offset")
    return [(row[REASON], json.loads(row["told"])) for row in table.collect()]


def plain(value: Any) -> Any:
    """Return what fastavro read as `outcomes` tells it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, float | Decimal):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), float(value))
    return value.isoformat() if isinstance(value, date) else value
