"""What a route's steps need: a plan that Spark agrees with, a checkpoint and tables that go together."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ingestor.errors import ConfigError
from spark_jobs.plan import rules
from spark_jobs.runtime import failures
from spark_jobs.runtime.places import TableLog
from spark_jobs.runtime.session import java_class
from spark_jobs.steps import steady, tables
from spark_jobs.steps.batch import Job
from spark_jobs.steps.raw import Raw
from spark_jobs.steps.steps import Tables
from spark_jobs.steps.tables import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.plan.plan import Plan
    from spark_jobs.plan.route import Route
    from spark_jobs.steps.checkpoint import Checkpoint


def prepare(session: SparkSession, route: Route, checkpoint: Checkpoint) -> Job:
    """Return what steps need. Nothing is made before all is known to fit."""
    plan = _complete(session, route)
    _check_rules(session, route, plan)
    raw = Raw(session, route.raw, checkpoint.folder)
    if not raw.log.exists:
        msg = f"route {route.name}: there is no raw table at {route.raw} yet"
        raise ConfigError(msg, hint="run the ingestor first, or correct routes.…table")
    raw.require_readable()
    silver, quarantine = route.settings.table, route.settings.quarantine
    checkpoint.require_known(known_tables(session, route), silver, quarantine, route.raw)
    tables.create_silver(session, silver, plan, route.settings.partition_by)
    tables.create_quarantine(session, quarantine)
    url = route.settings.schema_registry
    return Job(session, plan, url, raw, Sink(session, silver), Sink(session, quarantine))


def known_tables(session: SparkSession, route: Route) -> Tables:
    """Return the ids of the route's tables as they are."""
    places = (route.raw, route.settings.table, route.settings.quarantine)
    return Tables(*(TableLog(session, place).table_id for place in places))


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
        clock = None
        try:
            kind = empty.selectExpr(f"({sql}) AS held").schema["held"].dataType.simpleString()
            if kind == "boolean":
                clock = steady.unsteady(empty.where(sql))  # which refuses what is more than an expression of one row
        except PySparkException as error:
            raise failures.refused_by_spark(error, key) from error
        if kind != "boolean":
            raise ConfigError(f"{key}: is {kind}, not true or false", hint="write a condition that must hold")
        if clock is not None:
            raise ConfigError(f"{key}: uses {clock}, which does not say the same thing twice", hint=rules.STEADY_HINT)
