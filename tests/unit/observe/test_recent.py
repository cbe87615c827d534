from __future__ import annotations

import pytest

from ingestor.observe.recent import Recent


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recent(clock: Clock) -> Recent:
    return Recent(clock=clock)


def test_the_newest_comes_first_and_the_oldest_go(recent: Recent) -> None:
    for version in range(30):
        recent.committed(version=version)
        recent.trouble(f"trouble {version}", "hint")

    shown = recent.shown()

    assert [commit["version"] for commit in shown["commits"]] == list(range(29, 9, -1))
    assert [trouble["what"] for trouble in shown["errors"]] == [f"trouble {n}" for n in range(29, 9, -1)]


def test_what_is_told_again_counts_up_and_pushes_nothing_out(recent: Recent, clock: Clock) -> None:
    recent.trouble("other", "hint", route="a")
    for _ in range(100):
        clock.now += 1
        recent.trouble("same", "hint", route="a")
    recent.trouble("same", "hint", route="b")

    found = [(trouble["what"], trouble["route"], trouble["count"]) for trouble in recent.shown()["errors"]]

    assert found == [("same", "b", 1), ("same", "a", 100), ("other", "a", 1)]
    assert recent.shown()["errors"][1]["at"] == 1100


def test_speed_is_what_was_read_since_the_last_sample(recent: Recent, clock: Clock) -> None:
    recent.records_read(300)
    clock.now += 10
    recent.sample(7)
    clock.now += 20
    recent.sample(None)

    assert recent.shown()["history"] == {
        "at": [1010, 1030],
        "records_per_second": [30, 0],
        "lag": [7, None],
    }


def test_a_quarter_of_an_hour_is_kept(recent: Recent, clock: Clock) -> None:
    for _ in range(200):
        clock.now += 10
        recent.sample(0)

    at = recent.shown()["history"]["at"]

    assert at[-1] - at[0] == 890


def test_a_clock_that_is_set_back_makes_no_sample(recent: Recent, clock: Clock) -> None:
    recent.records_read(5)
    clock.now -= 100
    recent.sample(1)

    assert recent.shown()["history"]["at"] == []

    clock.now += 110
    recent.sample(1)

    assert recent.shown()["history"]["records_per_second"] == [0.5]
