"""What `status` shows of an answer, and how it ends."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console

from ingestor.commands import status as module
from ingestor.config.settings import HttpSettings
from ingestor.errors import ConfigError, IngestorError
from ingestor.observe.http import HttpServer
from tests.support.fakes.state import FakeState, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def state() -> FakeState:
    state = FakeState()
    state.shown = shown
    return state


@pytest.fixture
def url(state: FakeState) -> Iterator[str]:
    """The address of a process that says what it is told to."""
    server = HttpServer("127.0.0.1", 0, state, CollectorRegistry())
    server.start()
    yield server.url
    server.stop()


def printed(url: str, **how: Any) -> str:
    """Return what it prints into a pipe, although the process may not be well."""
    out = io.StringIO()
    with contextlib.suppress(IngestorError):
        module.status(url, console=Console(file=out, highlight=False), **how)
    return out.getvalue()


def routes(*states: str, lag: int = 5) -> dict[str, Any]:
    """Return routes in these states, with lags that grow."""
    (route,) = shown()["routes"].values()
    return {
        f"r{n}": {**route, "state": state, "partitions": [{**route["partitions"][0], "lag": lag + n}]}
        for n, state in enumerate(states)
    }


def test_a_process_that_is_well_is_on_one_screen(url: str) -> None:
    lines = printed(url).splitlines()
    assert lines[0].startswith("ready · shop 1.2.3 · up 30 min · 200 records/s read · lag 3,000 · memory 3 of 32 MiB")
    assert lines[2].split() == ["ROUTE", "STATE", "LAG", "ROWS/S", "LAST", "COMMIT", "TABLE"]
    assert lines[3].split()[:3] == ["events", "running", "3,000"]
    assert "version 77" in lines[3]
    assert lines[3].rstrip().endswith("s3://lake/events")
    assert len(lines) == 4


def test_one_that_is_not_well_ends_with_the_reason(url: str, state: FakeState) -> None:
    why = "route events was stopped: its table is gone"
    error = {"at": shown()["now"], "level": "error", "route": "events", "what": why, "hint": "mend it", "count": 3}
    state.shown = lambda: shown(ready=False, reasons=[why], errors=[error])
    with pytest.raises(IngestorError, match=why) as caught:
        module.status(url, console=Console(file=io.StringIO()))
    assert caught.value.exit_code == 1
    text = printed(url)
    assert text.startswith("NOT READY · shop")
    assert f"events  {why} (3 times) — mend it" in text


def test_a_loop_that_does_not_move_is_not_well(url: str, state: FakeState) -> None:
    state.shown = lambda: shown(live=False)
    with pytest.raises(IngestorError, match="its loop does not move"):
        module.status(url, console=Console(file=io.StringIO()))
    assert printed(url).startswith("NOT LIVE")


@pytest.mark.parametrize("suffix", ["", "/", "/api/status"])
def test_as_json_it_is_the_process_own_answer(url: str, state: FakeState, suffix: str) -> None:
    answer = shown()
    state.shown = lambda: answer
    assert json.loads(printed(url + suffix, as_json=True)) == answer


def test_nobody_there_is_told_also_as_json() -> None:
    nobody = "http://127.0.0.1:1"
    with pytest.raises(IngestorError, match=f"{nobody} does not answer: Connection refused") as caught:
        module.status(nobody, console=Console(file=io.StringIO()))
    assert caught.value.exit_code == 1
    found = json.loads(printed(nobody, as_json=True))
    assert (found["live"], found["ready"]) == (False, False)
    assert "Connection refused" in found["reasons"][0]


def test_a_server_of_something_else_is_told(url: str, state: FakeState) -> None:
    state.shown = lambda: {"hello": "world"}
    assert "it is no ingestor" in printed(url)
    assert "answers 404" in printed(f"{url}/elsewhere")


@pytest.mark.parametrize("wrong", ["http://user:hunter2@127.0.0.1:1", "http://user:hun/ter2@127.0.0.1", "http://[::1"])
def test_a_password_in_an_address_is_not_shown(wrong: str) -> None:
    with pytest.raises(IngestorError) as caught:
        module.status(wrong, console=Console(file=io.StringIO()))
    assert "ter2" not in f"{caught.value}{printed(wrong)}"


def test_those_in_trouble_come_first_and_the_screen_is_not_left(url: str, state: FakeState) -> None:
    state.shown = lambda: shown(routes=routes("running", "running", "starting", "paused", "stopped"))
    names = [line.split()[0] for line in printed(url).splitlines()[3:]]
    assert names == ["r4", "r3", "r2", "r1", "r0"]

    many = shown(routes=routes(*["running"] * 1000, "stopped"))
    console = Console(file=io.StringIO(), width=80, height=24)
    lines = console.render_lines(module.screen(many, lines=24))
    text = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert len(text) <= 24
    assert any(line.startswith("r1000") for line in text)
    assert any(line.startswith("… and 98") for line in text)


def test_on_a_narrow_screen_only_the_table_is_cut() -> None:
    wide = shown()
    wide["routes"]["events"]["table"] = "s3://lake/" + "long/" * 30
    console = Console(file=io.StringIO(), width=80)
    text = "".join(segment.text for segment in console.render(module.screen(wide, lines=24)))
    assert "events  running  3,000" in text
    assert "s3://lake/" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_comes_from_outside_does_not_steer_the_terminal(url: str, state: FakeState) -> None:
    state.shown = lambda: shown(ready=False, reasons=["\x1b[2J[red]gone\x07"])
    text = printed(url)
    assert "[2J[red]gone" in text
    assert not {"\x1b", "\x07"} & set(text)


def test_the_rate_is_that_of_the_last_commits(url: str, state: FakeState) -> None:
    now = shown()["now"]
    commits = [
        {"at": now - ago, "route": route, "version": 1, "rows": rows, "seconds": 0.1, "commit_id": "x"}
        for ago, route, rows in [(10, "events", 500), (5, "other", 999), (20, "events", 500), (50, "events", 7)]
    ]
    state.shown = lambda: shown(now=now, commits=commits)
    assert printed(url).splitlines()[3].split()[3] == "20"  # 1,000 rows in 50 s


def rounds(number: int) -> Callable[[float], None]:
    """Return a sleep by which a watch ends as by Ctrl-C after some rounds."""
    left = iter(range(number - 1))

    def sleep(_seconds: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return sleep


def test_watching_goes_on_through_an_absence(url: str, state: FakeState) -> None:
    state.shown = iter([shown(), {}, shown()]).__next__
    documents = [json.loads(line) for line in printed(url, watch=True, as_json=True, sleep=rounds(3)).splitlines()]
    assert [one["ready"] for one in documents] == [True, False, True]


def test_watching_on_a_terminal_draws_one_screen(url: str) -> None:
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=100, height=24, legacy_windows=False)
    module.status(url, watch=True, console=terminal, sleep=rounds(2))
    begun, ended = out.getvalue().index("\x1b[?1049h"), out.getvalue().index("\x1b[?1049l")
    assert "ready" in out.getvalue()[begun:ended]  # on a screen of its own, which is given back


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104
        ("::", "http://[::1]:8080"),
        ("node7", "http://node7:8080"),
    ],
)
def test_the_address_is_that_of_the_configuration(host: str, url: str) -> None:
    assert module.address(HttpSettings(host=host)) == url


@pytest.mark.parametrize("http", [None, HttpSettings(port=0)])
def test_a_configuration_that_tells_no_address_is_refused(http: HttpSettings | None) -> None:
    with pytest.raises(ConfigError) as caught:
        module.address(http)
    assert caught.value.hint
