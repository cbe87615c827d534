"""A route for the jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingestor.config.settings import ParseSettings, Settings
    from spark_jobs.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Route:
    """A route with everything that its jobs need."""

    name: str
    raw: str
    settings: ParseSettings
    plan: Plan
    prefix: str  # of the txn ids of all checkpoints of the route, past ones included


def route_of(settings: Settings, name: str, plan: Plan) -> Route:
    """Return a route of the configuration with its plan."""
    return Route(name, settings.routes[name].table, settings.parse[name], plan, f"spark_jobs/{settings.app_id}/{name}/")
