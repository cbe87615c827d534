"""One command of the Spark jobs: checks its configuration before Spark starts, then runs it for each route."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.config.load import load
from ingestor.errors import ConfigError, IngestorError
from spark_jobs.plan import plan as plans
from spark_jobs.rounds import Rounds, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ingestor.config.settings import Settings
    from spark_jobs.plan.plan import Plan
    from spark_jobs.plan.route import Route


class Run:
    """One command: its checked configuration, its session and its routes."""

    def __init__(self, config: Path, route: str | None, conf: list[str] | None) -> None:
        self.settings: Settings = load(config)
        logs.configure(self.settings.log.format, self.settings.log.level)
        self._conf = dict(_pair(each) for each in conf or ())
        if not self.settings.parse:
            raise ConfigError(f"{config}: no route is parsed", hint="add parse: {ROUTE: {schema: …}}")
        if route is not None and route not in self.settings.parse:
            known = ", ".join(self.settings.parse)
            raise ConfigError(f"--route {route}: no such route is parsed", hint=f"routes: {known}")
        self.names = [route] if route is not None else list(self.settings.parse)
        self.plans: dict[str, Plan] = {}
        broken = [error for error in map(self._plan, self.names) if error is not None]
        if not self.plans:
            raise worst(broken)
        self._safe: set[str] = set()

    def _plan(self, name: str) -> IngestorError | None:
        """Make a route's plan; return the error if it can't be made."""
        try:
            self.plans[name] = plans.make(name, self.settings.parse[name])
        except IngestorError as error:
            return error
        return None

    def require_columns(self, option: str, names: list[str]) -> None:
        """Refuse columns that a route's silver does not have."""
        for route, plan in self.plans.items():
            known = [field.name for field in plan.silver]
            for name in names:
                if name not in known or name in self.settings.parse[route].partition_by:
                    msg = f"{option} {name}: is no column of route {route}'s silver that rows could be laid out by"
                    raise ConfigError(msg, hint=f"columns: {', '.join(known)}; not those of partition_by")

    @contextlib.contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Start Spark, and stop it at the end."""
        from spark_jobs.runtime import session, stores
        from spark_jobs.runtime.failures import explain

        quiet = self.settings.log.level != "DEBUG"
        options = {**stores.options(self.settings, self.names), **self._conf}
        spark = session.start(options, s3=stores.any_s3(self.settings, self.names), quiet=quiet)
        try:
            yield spark
        except IngestorError:
            raise
        except Exception as error:
            raise explain(error, doing="Spark") from error
        finally:
            with contextlib.suppress(Exception):
                session.stop(spark)

    def route(self, spark: SparkSession, name: str) -> Route:
        """Return a route, after checking its schema and that its stores can't lose a commit."""
        from spark_jobs.plan.route import route_of
        from spark_jobs.runtime import stores
        from spark_jobs.runtime.failures import explain

        broken = None if name in self.plans else self._plan(name)
        if broken is not None:
            raise broken
        route = route_of(self.settings, name, self.plans[name])
        if name not in self._safe:
            try:
                stores.require_safe(spark, [route])
            except Exception as error:
                raise explain(error, doing=f"route {name}") from error
            self._safe.add(name)
        return route

    def each(self, spark: SparkSession, rounds: Rounds, work: Callable[[Route], None]) -> None:
        """Do the work of each due route, whether or not others fail."""
        from spark_jobs.runtime.failures import JavaEndedError

        for name in filter(rounds.due, self.names):
            try:
                work(self.route(spark, name))
            except JavaEndedError:
                raise
            except IngestorError as error:
                rounds.failed(name, error)
            else:
                rounds.well(name)

    def once(self, spark: SparkSession, work: Callable[[Route], None]) -> None:
        """Do the work of each route once; raise the worst error."""
        rounds = Rounds(None)
        self.each(spark, rounds, work)
        rounds.require_well()


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.startswith("spark."):
        raise ConfigError(f"--conf {text}: is no setting", hint="write --conf spark.KEY=VALUE")
    return key, value
