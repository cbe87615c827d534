"""A job that dies at any point of a batch, and goes on later: with the same configuration, or another one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.parse import parse
from spark_jobs.reparse import reparse
from spark_jobs.rows.balance import Balance
from spark_jobs.steps.batch import Job
from spark_jobs.steps.tables import Sink
from tests.support.process.quick_java import quick_java
from tests.support.silver import Lake, account, event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

POINTS = ("before", "between", "after")
AT = {"before": ("append:1:before", "KILL"), "between": ("append:1:after", "KILL"), "after": ("end:1:before", "KILL")}
FIRST: dict[str, Any] = {"rules": {"r": "amount < 10"}, "dedupe": {"by": ["request_id"], "within": "24h"}}
# All that could tear the batch apart: rows change sides, keys stop to matter, the version is another.
THEN: dict[str, Any] = {"rules": {"r": "amount >= 10"}, "dedupe": None, "processing_version": "2.0"}
ROWS = [
    event(amount=1, request_id="a"),
    event(amount=20, request_id="b"),
    event(amount=2, request_id="a"),
    b"nope",
    None,
]
BY_FIRST = Balance(raw=5, silver=1, quarantine=2, duplicates=1, tombstones=1)
BY_THEN = Balance(raw=5, silver=1, quarantine=3, duplicates=0, tombstones=1)


class Crash(Exception):  # noqa: N818 - it stands for a kill
    """The end of the job, as far as its tables can tell."""


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Arm the job to end at a point, once."""
    append, process = Sink.append, Job.process

    def arm(point: str) -> None:
        def append_or_crash(self: Sink, *arguments: Any, **named: Any) -> Any:
            if point == "before":
                raise Crash
            landed = append(self, *arguments, **named)
            if point == "between":
                raise Crash
            return landed

        def process_and_crash(self: Job, *arguments: Any) -> Any:
            process(self, *arguments)
            raise Crash

        monkeypatch.setattr(Sink, "append", append_or_crash)
        if point == "after":
            monkeypatch.setattr(Sink, "append", append)
            monkeypatch.setattr(Job, "process", process_and_crash)

    yield arm
    monkeypatch.undo()


def judge(lake: Lake, found: Balance, point: str, *, changed: bool) -> None:
    """Hold the tables against what one plan alone makes of the rows: the first, once it has written."""
    by_then = changed and point == "before"
    assert found == (BY_THEN if by_then else BY_FIRST)
    assert lake.silver("stream_offset") == ([1] if by_then else [0])
    assert lake.quarantine("stream_offset") == ([0, 2, 3] if by_then else [1, 3])
    versions = {*lake.silver("processing_version"), *lake.quarantine("processing_version")}
    assert versions == {"2.0" if by_then else "1.0"}


@pytest.mark.parametrize(
    ("point", "changed"),
    [
        *(
            pytest.param(point, True, id=f"{point}-changed", marks=() if point == "between" else pytest.mark.soak)
            for point in POINTS
        ),
        pytest.param("between", False, id="between-same"),
    ],
)
def test_a_batch_lands_once_wherever_it_was_cut(
    spark: SparkSession, lake: Lake, crash_at: Any, monkeypatch: pytest.MonkeyPatch, point: str, *, changed: bool
) -> None:
    lake.land(*ROWS)
    crash_at(point)
    with pytest.raises(Exception, match="Crash"):
        parse(spark, lake.route(**FIRST))
    monkeypatch.undo()
    judge(lake, parse(spark, lake.route(**(THEN if changed else FIRST))), point, changed=changed)
    if changed:
        lake.land(event(amount=30, request_id="z"))
        assert parse(spark, lake.route(**THEN)) == Balance(raw=1, silver=1)


class Process:
    """A job in a process of its own, which sends itself a signal at a point."""

    def __init__(self, point: str, number: str, command: str, config: object, *arguments: str) -> None:
        module = [sys.executable, "-m", "tests.support.process.killed_job", point, number]
        self._process = subprocess.Popen([*module, command, str(config), *arguments], env=quick_java())

    def reach(self, number: signal.Signals) -> None:
        """Wait until the signal is there."""
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        stopped = number == signal.SIGSTOP
        assert (os.WSTOPSIG(status) if stopped else os.WTERMSIG(status)) == number, status

    def go_on(self) -> int:
        """Let it go on to its end; return its exit code."""
        self._process.send_signal(signal.SIGCONT)
        return self._process.wait(300)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            self._process.kill()
            self._process.wait()


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "point",
    ["between", *(pytest.param(point, marks=pytest.mark.soak) for point in ("before", "after"))],
)
def test_a_killed_process_is_taken_up_by_the_next(spark: SparkSession, lake: Lake, point: str) -> None:
    """SIGKILL of the driver, then another process with another configuration."""
    lake.land(*ROWS)
    killed = Process(*AT[point], "parse", lake.config(**FIRST))
    try:
        killed.reach(signal.SIGKILL)
    finally:
        killed.end()
    judge(lake, parse(spark, lake.route(**THEN)), point, changed=True)


@pytest.mark.soak
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("command", "point", "number"),
    [
        ("parse", "claim:1:after", "STOP"),
        ("parse", "append:1:before", "STOP"),
        ("parse", "append:2:before", "STOP"),
        ("reparse", "append:1:before", "STOP"),
        ("reparse", "change:1:before", "STOP"),
        ("reset", "change:2:before", "STOP"),
        ("reparse", "append:1:after", "KILL"),
        ("reset", "change:1:after", "KILL"),
    ],
)
def test_two_processes_one_of_which_is_held_or_killed(
    spark: SparkSession, lake: Lake, command: str, point: str, number: str
) -> None:
    """While the other runs to its end with another configuration."""
    lake.land(*ROWS)
    parse(spark, lake.route(**FIRST))
    lake.land(event(amount=3, request_id="c"), event(amount=30, request_id="d"), b"nope")
    arguments = ["--empty", "--yes"] if command == "reset" else []
    by = {**FIRST, "rules": {"r": "amount < 100"}} if command == "reparse" else FIRST
    held = Process(point, number, command, lake.config(**by), *arguments)
    try:
        held.reach(signal.Signals[f"SIG{number}"])
        for job in (parse, reparse, parse):
            job(spark, lake.route(**THEN))
            account(lake, key="request_id")
        if number == "STOP":
            assert held.go_on() in (0, 5)
    finally:
        held.end()
    account(lake, key="request_id")
    assert parse(spark, lake.route(**THEN)) == Balance()
    account(lake, key="request_id")
