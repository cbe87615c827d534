"""`parse`: parses the rows that the raw table has gained since the last run into silver and quarantine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ingestor import logs
from spark_jobs.runtime import failures
from spark_jobs.steps.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route
    from spark_jobs.rows.balance import Balance


def parse(session: SparkSession, route: Route, *, stopping: Callable[[], bool] = lambda: False) -> Balance:
    """Parse new rows; return the balance of all finished batches, also if a signal ends the run."""
    try:
        work = Work(session, route)
        total = work.take_up("parse")
        newest = work.job.raw.log.version
        while not stopping():
            found = work.parse_next(newest)
            if found is None:
                break
            total += found
    except Exception as error:
        raise failures.explain(error, doing=f"route {route.name}") from error
    logs.get().info("parsed", route=route.name, **dataclasses.asdict(total))
    return total
