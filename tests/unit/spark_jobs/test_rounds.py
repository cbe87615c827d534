"""Routes of one run: which is tried when, and what their failures amount to."""

from __future__ import annotations

import json

import pytest

from ingestor.errors import ConfigError, DataLossError, IngestorError, OccExhaustedError, RefusedError
from spark_jobs.rounds import Rounds, leave, worst
from spark_jobs.rows.balance import Balance


def test_the_worst_failure_gives_the_exit_code() -> None:
    """Lost rows first, then what a person has to mend, then what passes by itself."""
    kinds = (IngestorError, OccExhaustedError, ConfigError, RefusedError, DataLossError)
    errors = [kind("x", hint="y") for kind in kinds]
    while errors:
        found = worst(errors)
        assert found is errors.pop()


def test_a_route_that_fails_is_tried_less_and_less_often_and_the_others_as_before() -> None:
    now = 0.0
    rounds = Rounds(60.0, clock=lambda: now)
    tried = {"good": 0, "bad": 0}
    for number in range(100):
        now = number * 60.0
        for route in tried:
            if rounds.due(route):
                tried[route] += 1
                if route == "bad":
                    rounds.failed(route, ConfigError("it is broken", hint="mend it"))
                else:
                    rounds.well(route)
    assert tried["good"] == 100
    assert 10 <= tried["bad"] <= 15  # after 1, 2, 4 and 8 minutes, then every 10
    with pytest.raises(ConfigError, match="it is broken"):
        rounds.require_well()
    rounds.well("bad")
    rounds.require_well()


def test_the_state_of_a_route_is_told() -> None:
    rounds = Rounds(60.0, clock=lambda: 5.0)
    assert rounds.due("r")
    rounds.failed("r", ConfigError("it is broken", hint="mend it"))
    failing = json.loads(rounds.state("r", None))
    assert (failing["state"], failing["failures"], failing["exit_code"]) == ("failing", 1, 2)
    assert (failing["error"], failing["retry_seconds"], failing["balance"]) == ("it is broken — mend it", 60.0, None)
    rounds.well("r")
    well = json.loads(rounds.state("r", Balance(raw=1, silver=1)))
    assert (well["state"], well["error"], well["exit_code"], well["balance"]["silver"]) == ("well", None, 0, 1)


def test_a_state_that_can_not_be_written_is_no_failure() -> None:
    def refuse(_: str) -> None:
        raise OSError("disk full")

    leave(refuse, "{}")
