"""Several routes in one process: what is wrong with one, and what the others and the exit code make of it."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ingestor import logs
from ingestor.signals import Stop
from spark_jobs import cli
from spark_jobs.rounds import Rounds
from spark_jobs.runtime import session
from tests.support.silver import Lake, balance, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

GOOD = "user_id STRING"


class Shop:
    """Routes in folders of their own, and one configuration for all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._document: dict[str, Any] = {}

    def route(self, name: str, *, begun: bool = True, **parse: Any) -> Lake:
        """Add a route, whose raw table is there if it has begun."""
        lake = Lake(self._folder / name)
        if not begun:
            shutil.rmtree(lake.folder / "raw")
        document = lake.document(**{"schema": GOOD, "formats": ["json"], **parse})
        document["routes"]["events"] |= {"table": str(lake.folder / "raw"), "topics": [name]}
        for part in ("routes", "parse"):
            self._document.setdefault(part, {})[name] = document[part]["events"]
        return lake

    @property
    def config(self) -> Path:
        base = {"app_id": "shop", "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"}}
        path = self._folder / "config.yaml"
        path.write_text(yaml.safe_dump({**base, **self._document}))
        return path


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, list[str], str]]]:
    """The command line, in the session that the tests share."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root, ours = logging.getLogger(), logging.getLogger(logs.NAME)
    log_handlers, log_level = list(root.handlers), ours.level
    monkeypatch.setattr(session, "start", lambda *_, **__: spark)
    monkeypatch.setattr(session, "stop", lambda _: None)

    def run(*arguments: object) -> tuple[int, list[str], str]:
        monkeypatch.setattr(sys, "argv", ["spark_jobs", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out.splitlines(), (said.err.splitlines() or [""])[-1]

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
    root.handlers[:] = log_handlers  # those of the command write to where this test's output went
    ours.setLevel(log_level)


def state(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lake.folder / "raw-checkpoint/_spark_jobs/state.json").read_text())
    return found


def test_a_route_that_fails_keeps_no_other_from_its_rows(shop: Shop, command: Any) -> None:
    """Wherever it stands among them; the exit code is the worst one's, and stays so."""
    early, broken = shop.route("early", begun=False), shop.route("broken", schema="nosuch.avsc")
    good = shop.route("good")
    good.land(event("u1"))
    for rows in (1, 0):
        code, out, last = command("parse", shop.config)
        assert code == 2
        assert balance(out[-1]) == (rows, rows, 0, 0, 0)
        told = {line["route"]: line for line in map(json.loads, out[:-1])}
        assert "no raw table" in told["early"]["error"]
        assert "nosuch.avsc" in told["broken"]["error"]
        assert "nosuch.avsc" in last
        assert (state(early)["state"], state(broken)["exit_code"], state(good)["state"]) == ("failing", 2, "well")
    late = shop.route("late")
    late.land(event("u1"))
    for path in (late.folder / "raw").glob("*.parquet"):
        path.unlink()
    for job in ("parse", "reparse"):
        code, _, last = command(job, shop.config)
        assert (code, "route late" in last) == ((3, True) if job == "parse" else (2, False))
    assert good.silver("user_id") == ["u1"]


def test_every_goes_on_with_the_others_and_comes_back_to_a_route_that_is_mended(
    shop: Shop, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, good = shop.route("early", begun=False), shop.route("good")
    good.land(event("u1"))
    seen: list[tuple[str, str]] = []

    def wait(_: Stop, __: float) -> bool:
        seen.append((state(early)["state"], state(good)["state"]))
        if len(seen) == 1:
            early.__post_init__()  # makes the raw table
            early.land(event("e1"))
            good.land(event("u2"))
            monkeypatch.setattr(Rounds, "due", lambda *_: True)  # its pause is over
        return len(seen) == 2

    monkeypatch.setattr(Stop, "wait", wait)
    code, out, _ = command("parse", shop.config, "--every", "1s")
    assert (code, seen) == (0, [("failing", "well"), ("well", "well")])
    assert [balance(line) for line in out if "route" not in line] == [(1, 1, 0, 0, 0), (2, 2, 0, 0, 0)]
    assert (early.silver("user_id"), good.silver("user_id")) == (["e1"], ["u1", "u2"])


def test_every_ends_with_the_code_of_what_fails(shop: Shop, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.route("early", begun=False)
    shop.route("good").land(event("u1"))
    monkeypatch.setattr(Stop, "wait", lambda *_: True)
    code, _, last = command("parse", shop.config, "--every", "1h")
    assert (code, "route early: there is no raw table" in last) == (2, True)
