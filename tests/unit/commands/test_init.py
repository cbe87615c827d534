"""What `init` writes loads, whatever it was told; what it can't write it refuses, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from ingestor.commands.init import SCHEMA_FILE, Wanted, init
from ingestor.config import schema
from ingestor.config.file import parse
from ingestor.config.load import load
from ingestor.errors import ConfigError, RefusedError, Unavailable
from ingestor.kafka.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

    from ingestor.config.settings import Settings

WANTED = Wanted("127.0.0.1:9092", ("shop.orders.v1",), "./lake/raw/orders")


def written(path: Path, wanted: Wanted, **how: Any) -> Settings:
    init(path, wanted, **{"ask": None, "tell": lambda _line: None, "look": False, **how})
    return load(path, {})


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The topics that Kafka has, with their partitions; a test fills it."""
    topics = {"__consumer_offsets": 50}
    monkeypatch.setattr(Broker, "topics", lambda _self: topics)
    return topics


def test_what_it_writes_is_what_was_wanted(tmp_path: Path) -> None:
    settings = written(tmp_path / "ingestor.yaml", WANTED)
    route = settings.routes["orders"]
    assert (settings.app_id, settings.kafka["group.id"]) == ("orders", "orders")
    assert settings.kafka["bootstrap.servers"] == "127.0.0.1:9092"
    assert (route.topics, route.table) == (("shop.orders.v1",), str(tmp_path / "lake/raw/orders"))


@pytest.mark.parametrize(
    ("wanted", "topics", "route"),
    [
        (Wanted("[::1]:9092,h:1", ("a", "b"), "s3://lake/raw/a"), ("a", "b"), "a"),
        (Wanted("h:1", ("a, b", "1"), "no"), ("a", "b", "1"), "no"),
        (Wanted("h:1", ("^a{1,2}[.]v[0-9]+$",), "x y/über: #1"), ("^a{1,2}[.]v[0-9]+$",), "ber-1"),
        (Wanted("h:1", ("null",), 'it\'s "quoted"', "app: #1"), ("null",), "it-s-quoted"),
    ],
)
def test_whatever_is_wanted_survives_yaml(tmp_path: Path, wanted: Wanted, topics: tuple[str, ...], route: str) -> None:
    settings = written(tmp_path / "a.yaml", wanted)
    assert settings.kafka["bootstrap.servers"] == wanted.brokers
    assert settings.routes[route].topics == topics
    assert settings.routes[route].table.endswith(str(wanted.table))
    assert settings.app_id == (wanted.app_id or route)


def test_a_variable_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    written(path, Wanted("${BROKERS:-h:1}", ("a",), "lake/a"))
    assert load(path, {"BROKERS": "other:9"}).kafka["bootstrap.servers"] == "other:9"


def test_the_keys_behind_a_hash_load_too(tmp_path: Path) -> None:
    """Who removes a # gets no refusal, and what it shows as defaults are the defaults."""
    path = tmp_path / "a.yaml"
    plain = written(path, WANTED)
    text, count = re.subn(r"^( *)# ([a-z_.]+: .*)$", r"\1\2", path.read_text(), flags=re.MULTILINE)
    assert count == 13
    path.write_text(text)
    opened = load(path, {"KAFKA_PASSWORD": "secret"})
    assert opened.routes == plain.routes
    assert (opened.memory, opened.http, opened.log) == (plain.memory, plain.http, plain.log)
    assert Draft202012Validator(json.loads(schema.text())).is_valid(parse(text, path, {"KAFKA_PASSWORD": "x"}))


def test_the_schema_that_the_first_line_names_lies_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    written(path, WANTED)
    (first, *_) = path.read_text().splitlines()
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert (tmp_path / SCHEMA_FILE).read_text() == schema.text()


def test_what_is_there_stays_unless_forced(tmp_path: Path) -> None:
    path, beside = tmp_path / "a.yaml", tmp_path / SCHEMA_FILE
    path.write_text("mine")
    beside.write_text("mine too")
    with pytest.raises(ConfigError, match="exists already") as caught:
        written(path, WANTED)
    assert "--force" in str(caught.value.hint)
    assert (path.read_text(), beside.read_text()) == ("mine", "mine too")

    written(tmp_path / "b.yaml", WANTED)
    assert beside.read_text() == "mine too"

    written(path, WANTED, force=True)
    assert "app_id: orders" in path.read_text()
    assert beside.read_text() == schema.text()


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted(), "--brokers, --topic, --table not given"),
        (Wanted("h:1", (), "lake"), "--topic not given"),
        (Wanted("h:1", ("a b",), "lake/a"), "no Kafka topic can have"),
        (Wanted("h:1", (",",), "lake/a"), "is empty or not printable"),
        (Wanted("h:1", ("a", "a"), "lake/a"), "names something twice"),
        (Wanted("h:1", ("a",), "memory://a"), "is lost when the process ends"),
        (Wanted("${NO_SUCH}", ("a",), "lake/a"), "NO_SUCH is not set"),
        (Wanted("h:1", ("a",), "lake/a", "ingestor:x"), "reserved for the ingestor"),
    ],
)
def test_what_would_not_load_is_not_written(tmp_path: Path, wanted: Wanted, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        written(tmp_path / "a.yaml", wanted)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be written: No such file"):
        written(tmp_path / "no" / "a.yaml", WANTED)


def test_a_topic_that_kafka_has_not_is_refused(tmp_path: Path, has: dict[str, int]) -> None:
    has["shop.order.v1"] = 2
    with pytest.raises(ConfigError, match=re.escape("Kafka has no topic shop.orders.v1")) as caught:
        written(tmp_path / "a.yaml", WANTED, look=True)
    assert caught.value.hint == "did you mean shop.order.v1?"
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_it_found(tmp_path: Path, has: dict[str, int]) -> None:
    said: list[str] = []
    has |= {"shop.orders.v1": 6, "shop.orders.v2": 3}
    written(tmp_path / "a.yaml", WANTED, look=True, tell=said.append)
    assert said[0].endswith(": 1 topic, 6 partitions now")
    written(tmp_path / "b.yaml", Wanted("h:1", ("^shop[.]",), "lake"), look=True, tell=said.append)
    assert said[2].endswith(": 2 topics, 9 partitions now")


def test_a_kafka_that_is_away_is_told_with_the_way_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_self: Broker) -> dict[str, int]:
        raise Unavailable("no broker at 127.0.0.1:9092 can be reached")

    monkeypatch.setattr(Broker, "topics", away)
    with pytest.raises(RefusedError, match="can be reached") as caught:
        written(tmp_path / "a.yaml", WANTED, look=True)
    assert "--offline" in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_a_person_is_asked_only_for_what_is_missing(tmp_path: Path, has: dict[str, int]) -> None:
    has["shop.orders.v1"] = 2
    asked: list[tuple[str, str | None]] = []
    said: list[str] = []

    def ask(question: str, default: str | None) -> str:
        asked.append((question.partition(" ")[0], default))
        return default or ""

    settings = written(tmp_path / "a.yaml", Wanted(), ask=ask, look=True, tell=said.append)
    assert asked == [
        ("Kafka's", "127.0.0.1:9092"),
        ("Topics", "shop.orders.v1"),
        ("Table", "./lake/raw/shop.orders.v1"),
        ("app_id", "shop.orders.v1"),
    ]
    assert said[0] == "Kafka has: shop.orders.v1"
    assert settings.app_id == "shop.orders.v1"

    asked.clear()
    written(tmp_path / "b.yaml", dataclasses.replace(WANTED, app_id="shop"), ask=ask, look=True)
    assert asked == []
