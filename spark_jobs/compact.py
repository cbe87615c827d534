"""`compact`: rewrites small files of raw and silver as few files of the target size, while ingestors run.

OPTIMIZE only moves rows and its entry says so (`dataChange: false`), so neither `parse` nor dead letters read its files
as new. It does not conflict with appends, only with another rewrite of the same files; then it is retried.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta.tables import DeltaTable

from spark_jobs.runtime import failures, retry
from spark_jobs.runtime.places import TableLog, spark_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

TARGET_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Summary:
    """A table's files before and after."""

    table: str
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    seconds: float


def compact(
    session: SparkSession, table: str, *, zorder: Sequence[str] = (), target_bytes: int = TARGET_BYTES
) -> Summary | None:
    """Compact one table; None if there is none yet."""
    try:
        if not TableLog(session, table).exists:
            return None
        started = time.monotonic()
        before = _size(session, table)
        for bound in ("minFileSize", "maxFileSize"):
            session.conf.set(f"spark.databricks.delta.optimize.{bound}", str(target_bytes))
        retry.on_conflict(lambda: _optimize(session, table, zorder), doing=f"compacting {table}")
        return Summary(table, *before, *_size(session, table), round(time.monotonic() - started, 1))
    except Exception as error:
        raise failures.explain(error, doing=f"compacting {table}") from error


def _optimize(session: SparkSession, table: str, zorder: Sequence[str]) -> None:
    builder = DeltaTable.forPath(session, spark_path(table)).optimize()
    if zorder:
        builder.executeZOrderBy(*zorder)
    else:
        builder.executeCompaction()


def _size(session: SparkSession, table: str) -> tuple[int, int]:
    detail = DeltaTable.forPath(session, spark_path(table)).detail().select("numFiles", "sizeInBytes").first()
    return (0, 0) if detail is None else (int(detail[0]), int(detail[1]))
