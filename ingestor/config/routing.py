"""Which topics belong to which route, and the app ids of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestor.errors import ConfigError
from ingestor.ledger import AppIds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.config.settings import Route, Settings


def app_ids(settings: Settings, route: Route) -> AppIds:
    """Return the app ids of a route's txn actions."""
    return AppIds(settings.txn_app_id, settings.app_id, () if route.is_regex else route.topics)


def matching(route: Route, existing: Mapping[str, int]) -> list[str]:
    """Return a route's topics: those it names, or the existing ones that match its regex."""
    return [topic for topic in existing if route.matches(topic)] if route.is_regex else list(route.topics)


def refuse_one_table_twice(template: str, tables: Mapping[str, object]) -> None:
    """Refuse two routes on one table if their app ids don't name the topic; compares opened tables, not paths."""
    if "{topic}" in template:
        return
    known: dict[object, str] = {}
    for name, identity in tables.items():
        other = known.setdefault(identity, name)
        if other != name:
            msg = f"routes {other} and {name} have one table by two paths"
            raise ConfigError(msg, hint="use two tables, or the default txn_app_id, which names the topic")


class Router:
    """Finds the route of a topic; refuses a topic that matches two routes."""

    def __init__(self, settings: Settings) -> None:
        self._routes = settings.routes
        self._known: dict[str, str] = {}

    def __call__(self, topic: str) -> str:
        """Return the name of the topic's route."""
        name = self._known.get(topic)
        if name is None:
            name = self._known[topic] = self._find(topic)
        return name

    def _find(self, topic: str) -> str:
        names = [name for name, route in self._routes.items() if route.matches(topic)]
        if len(names) == 1:
            return names[0]
        if not names:
            msg = f"Kafka assigned topic {topic}, which no route matches"
            raise ConfigError(msg, hint="use only regex syntax that Python and Kafka share: plain classes and .*")
        msg = f"topic {topic} matches the routes {' and '.join(names)}"
        raise ConfigError(msg, hint="narrow their regexes: a topic belongs to one route")
