"""`reset`: forget how far parsing has come, and begin at the raw table's start.

What silver and quarantine have stays: rows that are read again are recognised by their coordinates and counted as
duplicates. With `empty` both tables are emptied first, so that everything is parsed by the present schema and rules;
then quarantined rows count as new dead letters again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable

from spark_jobs import failures
from spark_jobs.places import TableLog, spark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.parse import Route


def question(route: Route, *, empty: bool) -> str:
    """Return what a person has to say yes to."""
    what = f"route {route.name}: forget checkpoint {route.settings.checkpoint}"
    if empty:
        what += f", and delete all rows of {route.settings.table} and {route.settings.quarantine}"
    return f"{what}? The next parse reads all of {route.raw} again."


def reset(session: SparkSession, route: Route, *, empty: bool) -> None:
    """Begin anew. Interrupted, it can simply be run again."""
    try:
        for table in (route.settings.table, route.settings.quarantine) if empty else ():
            if TableLog(session, table).exists:
                DeltaTable.forPath(session, spark_path(table)).delete()
        route.checkpoint(session).clear()
    except Exception as error:
        raise failures.explain(error, doing=f"route {route.name}, reset") from error
