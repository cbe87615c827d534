"""`check` speaks of a configuration that does not load as of everything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ingestor.commands.check import check
from ingestor.errors import ConfigError

if TYPE_CHECKING:
    from ingestor.config.settings import Settings


def refuse() -> Settings:
    raise ConfigError("a.yaml: app_id: is missing", hint="add it")


def test_a_configuration_that_does_not_load_is_a_finding() -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match="is missing"):
        check(refuse, said.append)
    assert said == ["FAIL  configuration: a.yaml: app_id: is missing — add it"]


def test_as_json_it_is_one_document_with_the_exit_code() -> None:
    said: list[str] = []
    with pytest.raises(ConfigError):
        check(refuse, said.append, as_json=True)
    (document,) = map(json.loads, said)
    (found,) = document["checks"]
    assert (document["ok"], document["exit_code"]) == (False, 2)
    assert (found["name"], found["status"], found["exit_code"]) == ("configuration", "FAIL", 2)
    assert "app_id: is missing" in found["text"]


def test_what_nobody_foresaw_is_not_ok() -> None:
    """The document says what the process ends with."""

    def fall() -> Settings:
        raise RuntimeError

    said: list[str] = []
    with pytest.raises(RuntimeError):
        check(fall, said.append, as_json=True)
    assert json.loads(said[0]) == {"ok": False, "exit_code": 1, "checks": []}
