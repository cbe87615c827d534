"""What the command line says in place of the file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import yaml

from ingestor import logs
from ingestor.commands.options import load
from ingestor.errors import ConfigError
from tests.support.settings import document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Leave the process' logs as they were."""
    yield
    logs.configure("console", "INFO")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ingestor.yaml"
    path.write_text(yaml.safe_dump(document(log={"format": "json", "level": "ERROR"}, http={"host": "::1", "port": 1})))
    return path


def test_what_is_not_given_is_the_file_s(config: Path) -> None:
    loaded = load(config, log={"level": None}, http={"port": None})
    assert (loaded.log.level, loaded.http) == ("ERROR", load(config).http)
    assert not logging.getLogger(logs.NAME).isEnabledFor(logging.WARNING)


def test_what_is_given_replaces_one_key_and_leaves_its_neighbours(config: Path) -> None:
    loaded = load(config, log={"level": "debug"}, http={"port": 0})
    assert (loaded.log.level, loaded.log.format) == ("DEBUG", "json")
    assert loaded.http is not None
    assert (loaded.http.host, loaded.http.port) == ("::1", 0)
    assert logging.getLogger(logs.NAME).isEnabledFor(logging.DEBUG)


def test_a_port_turns_a_server_on_that_the_file_turns_off(config: Path) -> None:
    config.write_text(yaml.safe_dump(document(http=None)))
    assert load(config).http is None
    loaded = load(config, http={"port": 9})
    assert loaded.http is not None
    assert loaded.http.port == 9


@pytest.mark.parametrize(("name", "key", "value"), [("log", "level", "LOUD"), ("http", "port", 70_000)])
def test_what_is_given_is_checked_as_the_file_is(config: Path, name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{name}\.{key}") as caught:
        load(config, **{name: {key: value}})
    assert caught.value.hint


def test_a_section_of_a_wrong_kind_is_still_refused(config: Path) -> None:
    config.write_text(yaml.safe_dump(document(log=5)))
    with pytest.raises(ConfigError, match="log: 5 is not a mapping"):
        load(config, log={"level": "DEBUG"})
