"""Contradictions between keys that are each valid alone."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from ingestor.config.problems import Problem
from ingestor.config.types import TOPIC
from ingestor.errors import ConfigError
from ingestor.ledger import MEMORY, check_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingestor.config.settings import Route, Settings


def problems(settings: Settings) -> Iterator[Problem]:
    """Find contradictions in a configuration whose single values are valid."""
    yield from _memory(settings)
    yield from _templates(settings)
    for one, other in itertools.combinations(settings.routes.values(), 2):
        yield from _two_routes(one, other, settings)
    yield from _dead_letters(settings)
    for name in settings.parse:
        if name not in settings.routes:
            known = ", ".join(settings.routes)
            yield Problem(f"parse.{name}", "is no route", f"use the name of a route: {known}")
    yield from _places(settings)


def _memory(settings: Settings) -> Iterator[Problem]:
    key = "queued.max.messages.kbytes"
    queued = settings.kafka.get(key)
    if queued is not None and queued.isdecimal() and int(queued) * 1024 >= settings.memory:
        hint = "lower it, or raise memory"
        yield Problem(f"kafka.{key}", "is not less than memory, which contains it", hint)


def _templates(settings: Settings) -> Iterator[Problem]:
    if settings.app_id.startswith(MEMORY):
        what = f"begins with {MEMORY!r}, which is reserved for the ingestor"
        yield Problem("app_id", what, "choose another name")
    for route in settings.routes.values():
        try:
            topics = None if route.is_regex else len(route.topics)
            check_template(settings.txn_app_id, topics=topics)
        except ConfigError as error:
            what = error.message.removeprefix("txn_app_id: ")
            yield Problem("txn_app_id", f"{what} (route {route.name})", error.hint)


def _two_routes(one: Route, other: Route, settings: Settings) -> Iterator[Problem]:
    key = f"routes.{other.name}"
    shared = [topic for topic in other.topics if one.matches(topic)]
    shared += [topic for topic in one.topics if other.matches(topic) and topic not in shared]
    if one.is_regex and one.topics == other.topics:
        shared = list(one.topics)
    if shared:
        what = f"topic {shared[0]} belongs to route {one.name} too"
        yield Problem(f"{key}.topics", what, "leave each topic to one route")
    if not same_place(one.table, other.table):
        return
    if one.schema != other.schema:
        what = f"has the table of route {one.name}, but other extra_columns or partition_by"
        yield Problem(key, what, "make both equal, or use two tables")
    if "{topic}" not in settings.txn_app_id:
        what = f"without {{topic}} the routes {one.name} and {other.name} can't share a table"
        yield Problem("txn_app_id", what, "use two tables, or the default txn_app_id")


def _dead_letters(settings: Settings) -> Iterator[Problem]:
    key, letters = "dead_letters.topic", settings.dead_letters
    if not TOPIC.fullmatch(letters.topic_for("t")):
        hint = "write a topic name, or {topic} with something around it"
        yield Problem(key, f"{letters.topic!r} makes no legal topic name", hint)
        return
    for route in settings.routes.values():
        for topic in () if route.is_regex else route.topics:
            name = letters.topic_for(topic)
            back = settings.route_of(name)
            if back is not None:
                what = f"{name} is a source topic of route {back.name}: dead letters would come back"
                yield Problem(key, what, "choose a name that no route takes")
            elif not TOPIC.fullmatch(name):
                yield Problem(key, f"{name[:40]}… is too long for a topic", "choose a shorter one")
        if route.is_regex and _takes_its_own_letters(route, settings):
            what = f"the regex of route {route.name} matches its own dead letters"
            hint = "end the regex so that it can't (…v[0-9]+$), or write dlq.{topic}"
            yield Problem(key, what, hint)


def _takes_its_own_letters(route: Route, settings: Settings) -> bool:
    """Return whether a regex certainly matches the dead letter topics of its own topics."""
    topic, regex = settings.dead_letters.topic, route.topics[0]
    if "{topic}" not in topic:
        return route.matches(topic)
    if route.name not in settings.parse:  # without parsing there are no dead letters
        return False
    open_end = not regex.endswith("$") or regex.endswith((".*$", ".+$"))
    return open_end and (topic.startswith("{topic}") or regex.startswith(("^.*", "^.+")))


def same_place(one: str, other: str) -> bool:
    """Return whether two paths are the same; s3, s3a and s3n name one store."""
    return _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    return re.sub(r"^s3[an]://", "s3://", text)


def _places(settings: Settings) -> Iterator[Problem]:
    """Find equal paths, and paths inside a table, where a vacuum would delete the inner files."""
    places = {f"routes.{name}.table": route.table for name, route in settings.routes.items()}
    raw = set(places)
    for name, parse in settings.parse.items():
        for part in ("table", "quarantine", "checkpoint"):
            places[f"parse.{name}.{part}"] = getattr(parse, part) or f"\0{name}.{part}"
    for (one, here), (other, there) in itertools.combinations(places.items(), 2):
        if same_place(here, there):
            if not {one, other} <= raw:
                yield Problem(other, f"is the location of {one} too", "give each a location of its own")
        elif _inside(here, there) or _inside(there, here):
            yield Problem(other, f"overlaps with {one}", "put neither inside the other")


def _inside(inner: str, outer: str) -> bool:
    """Return whether a path lies inside another; Delta ignores folders that begin with _, except its log."""
    prefix = _canonical(outer).rstrip("/") + "/"
    if not _canonical(inner).startswith(prefix):
        return False
    first = _canonical(inner)[len(prefix) :].partition("/")[0]
    return not first.startswith("_") or first == "_delta_log"
