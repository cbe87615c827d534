"""`reset`: forget how far parsing has come, and begin at the raw table's start.

What silver and quarantine have stays: rows that are read again are recognised by their coordinates and counted as
duplicates. With `empty` both tables are emptied first, so that everything is parsed by the present schema and rules;
then quarantined rows count as new dead letters again.

A reset is a step like others: once it is claimed, every job of the route ends it before it does anything else, and no
earlier step can land any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable

from ingestor.errors import ConfigError
from spark_jobs.runtime import failures, retry
from spark_jobs.runtime.places import TableLog, spark_path
from spark_jobs.steps.checkpoint import Checkpoint
from spark_jobs.steps.prepare import known_tables
from spark_jobs.steps.steps import End, Step, Superseded
from spark_jobs.steps.tables import Sink, changing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route

_TRIES_MAX = 100


def question(route: Route, *, empty: bool) -> str:
    """Return what a person has to say yes to."""
    what = f"route {route.name}: forget checkpoint {route.settings.checkpoint}"
    if empty:
        what += f", and delete all rows of {route.settings.table} and {route.settings.quarantine}"
    return f"{what}? The next parse reads all of {route.raw} again."


def reset(session: SparkSession, route: Route, *, empty: bool) -> None:
    """Begin anew. Interrupted, it is ended by whichever job of the route comes next."""
    try:
        checkpoint = Checkpoint.of(session, route)
        step = _claimed(session, route, checkpoint, empty=empty)
        process(session, (route.settings.table, route.settings.quarantine), step)
        checkpoint.end(step, End(checkpoint.by, None))
    except Exception as error:
        raise failures.explain(error, doing=f"route {route.name}, reset") from error


def _claimed(session: SparkSession, route: Route, checkpoint: Checkpoint, *, empty: bool) -> Step:
    for _ in range(_TRIES_MAX):
        step = _step(session, route, checkpoint, empty=empty)
        if checkpoint.claim(step):
            return step
    raise Superseded(f"route {route.name}, reset")


def _step(session: SparkSession, route: Route, checkpoint: Checkpoint, *, empty: bool) -> Step:
    """Return the claim, which comes after all others and takes the tables as they are now."""
    try:
        head = checkpoint.head()
    except ConfigError:  # it can't be read, which is what the reset is for
        head = None
    app_id = checkpoint.new_app_id() if head is None else head.app_id
    tables = known_tables(session, route)
    known = None if head is None or head.step is None else head.step.tables.raw
    if known is not None and tables.raw not in (None, known) and not empty:
        msg = f"route {route.name}: raw table {route.raw} is another one than the rows of silver came from"
        hint = "give --empty, or take new places for table, quarantine and checkpoint: equal offsets are no duplicates"
        raise ConfigError(msg, hint=hint)
    return Step(checkpoint.next_number(), "reset", app_id, checkpoint.by, tables, None, empty=empty)


def process(session: SparkSession, tables: Sequence[str], step: Step) -> None:
    """Bring a reset to its end."""
    for table in tables:
        if TableLog(session, table).exists:
            sink = Sink(session, table)
            if step.empty and sink.landed(step) is None:
                own = DeltaTable.forPath(changing(session, step), spark_path(table))
                retry.on_conflict(own.delete, doing=f"emptying {table}")
            if sink.landed(step) is None:  # there was nothing to delete
                sink.fence(step)
