"""`parse`: what the raw table has gained since the last run, into silver and quarantine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ingestor import logs
from ingestor.errors import ConfigError
from spark_jobs import failures, tables
from spark_jobs.balance import Balance
from spark_jobs.batch import Job
from spark_jobs.checkpoint import Checkpoint
from spark_jobs.places import TableLog, spark_path
from spark_jobs.session import java_class
from spark_jobs.tables import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ingestor.settings import ParseSettings, Settings
    from spark_jobs.plan import Plan

BATCH_BYTES = "1g"  # of raw files per batch: what is parsed waits in memory and on disk for two writes


class Stopped(Exception):  # noqa: N818 - a state, not a failure
    """A signal came: the next batch is left for another run."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route with all that its jobs need."""

    name: str
    raw: str
    settings: ParseSettings
    plan: Plan
    prefix: str

    def checkpoint(self, session: SparkSession) -> Checkpoint:
        """Return its checkpoint."""
        return Checkpoint(session, self.settings.checkpoint, self.prefix)


def route_of(settings: Settings, name: str, plan: Plan) -> Route:
    """Return a route of the configuration."""
    return Route(name, settings.routes[name].table, settings.parse[name], plan, f"spark_jobs/{settings.app_id}/{name}/")


def prepare(session: SparkSession, route: Route) -> Job:
    """Return what batches need: a plan that Spark agrees with, a checkpoint and tables that go together."""
    plan = _complete(session, route)
    _check_rules(session, route, plan)
    if not TableLog(session, route.raw).exists:
        msg = f"route {route.name}: there is no raw table at {route.raw} yet"
        raise ConfigError(msg, hint="run the ingestor first, or correct routes.…table")
    checkpoint = route.checkpoint(session)
    places = (route.settings.table, route.settings.quarantine)
    app_id = checkpoint.app_id(places)
    tables.create_silver(session, route.settings.table, plan, route.settings.partition_by)
    tables.create_quarantine(session, route.settings.quarantine)
    silver, quarantine = (Sink(session, place, app_id) for place in places)
    return Job(session, plan, route.settings.schema_registry, checkpoint, silver, quarantine)


def parse(session: SparkSession, route: Route, *, stopping: Callable[[], bool] = lambda: False) -> Balance:
    """Parse what is new; return where its rows went. Batches that ended are counted, also if a signal ends the run."""
    job = prepare(session, route)
    total = Balance()
    raised: list[BaseException] = []

    def on_batch(rows: DataFrame, batch: int) -> None:
        nonlocal total
        try:
            _stop_if(stopping())
            found = job.process(rows, batch)
            total += found
            found.require_even(f"route {route.name}, batch {batch}")
        except BaseException as error:
            raised.append(error)
            raise RuntimeError("the batch failed") from error  # py4j answers Java only for an Exception

    source = session.readStream.format("delta").option("skipChangeCommits", "true")
    source = source.option("maxBytesPerTrigger", BATCH_BYTES)
    stream = source.load(spark_path(route.raw)).writeStream.foreachBatch(on_batch)
    stream = stream.option("checkpointLocation", job.checkpoint.path).trigger(availableNow=True)
    try:
        stream.start().awaitTermination()
    except Exception as error:  # noqa: BLE001 - of Java, Spark or ours: `explain` finds out
        if raised and isinstance(raised[0], Stopped):
            return total
        cause = raised[0] if raised else error
        raise failures.explain(cause, doing=f"route {route.name}") from cause
    logs.get().info("parsed", route=route.name, **dataclasses.asdict(total))
    return total


def _stop_if(stopping: bool) -> None:  # noqa: FBT001 - its only argument
    if stopping:
        raise Stopped


def _complete(session: SparkSession, route: Route) -> Plan:
    """Return the plan with an Avro schema where only DDL was given: the one that Spark's own to_avro writes by."""
    plan = route.plan
    if plan.schema_avro is not None or "avro" not in plan.formats:
        return plan
    struct = java_class(session, "org.apache.spark.sql.types.StructType").fromDDL(plan.schema_ddl)
    converters = java_class(session, "org.apache.spark.sql.avro.SchemaConverters")
    try:
        schema = converters.toAvroType(struct, False, "topLevelRecord", "")
    except Py4JJavaError as error:
        told = failures.explain(error, doing=f"parse.{route.name}.schema").message
        raise ConfigError(told, hint="correct the schema, or leave avro out of formats") from error
    return dataclasses.replace(plan, schema_avro=str(schema.toString()))


def _check_rules(session: SparkSession, route: Route, plan: Plan) -> None:
    """Let Spark read each rule, against no rows."""
    nothing = (F.lit(None).cast(field.type).alias(field.name) for field in plan.silver)
    empty = session.range(0).select(*nothing)
    for name, sql in plan.rules:
        key = f"parse.{route.name}.rules.{name}"
        try:
            kind = empty.selectExpr(f"({sql}) AS held").schema["held"].dataType.simpleString()
            if kind == "boolean":
                empty.where(sql).schema  # noqa: B018 - refuses what is more than an expression of one row
        except PySparkException as error:
            raise failures.refused_by_spark(error, key) from error
        if kind != "boolean":
            raise ConfigError(f"{key}: is {kind}, not true or false", hint="write a condition that must hold")
