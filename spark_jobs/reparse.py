"""`reparse`: parses quarantined rows again by the current schema and rules (one step of it: `moving`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.runtime import failures
from spark_jobs.steps.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route
    from spark_jobs.rows.balance import Balance


def reparse(session: SparkSession, route: Route) -> Balance:
    """Parse the rows in quarantine; return their balance."""
    try:
        return Work(session, route).reparse()
    except Exception as error:
        raise failures.explain(error, doing=f"route {route.name}, reparse") from error
