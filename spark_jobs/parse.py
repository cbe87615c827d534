"""`parse`: what the raw table has gained since the last run, into silver and quarantine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor import logs
from spark_jobs import failures
from spark_jobs.checkpoint import Checkpoint
from spark_jobs.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ingestor.settings import ParseSettings, Settings
    from spark_jobs.balance import Balance
    from spark_jobs.plan import Plan


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


def parse(session: SparkSession, route: Route, *, stopping: Callable[[], bool] = lambda: False) -> Balance:
    """Parse what is new; return where its rows went. Batches that ended are counted, also if a signal ends the run."""
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
