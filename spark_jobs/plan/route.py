"""A route as its jobs see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingestor.config.settings import ParseSettings, Settings
    from spark_jobs.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Route:
    """A route with all that its jobs need."""

    name: str
    raw: str
    settings: ParseSettings
    plan: Plan
    prefix: str  # of the txn ids of all checkpoints that the route ever had


def route_of(settings: Settings, name: str, plan: Plan) -> Route:
    """Return a route of the configuration."""
    return Route(name, settings.routes[name].table, settings.parse[name], plan, f"spark_jobs/{settings.app_id}/{name}/")
