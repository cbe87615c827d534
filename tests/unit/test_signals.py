"""The first signal asks, the second ends: told by real signals to real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ingestor.signals import Stop, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SECONDS_MAX = 30.0
LAST_WORDS = "program: stopped at once; nothing is lost"

_LISTENS = f"""\
import signal, sys, time
from ingestor.signals import Stop
stop = Stop({LAST_WORDS!r})
stop.listen()
"""
_WAITS = """
before = stop.asked()
print("ready", flush=True)
print(before, stop.wait(3600), stop.asked(), stop.wait(3600))
"""
_HANGS = """
print("ready", flush=True)
stop.wait(3600)
print("asked", flush=True)
while True:  # a signal that comes just before a sleep begins does not end it
    time.sleep(0.1)
"""
_SAYS_WHETHER_SIGHUP_IS_IGNORED = """
print("ready", flush=True)
print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
"""
_LOSES_SIGINT_FOR_A_WHILE = """
signal.signal(signal.SIGINT, signal.default_int_handler)
stop.listen()
"""


@contextmanager
def child(*code: str, under: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Run code that listens, until the block's end at the longest."""
    command = [*under, sys.executable, "-c", "".join((_LISTENS, *code))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert said(process) == "ready"
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_seen_and_ends_a_wait(number: signal.Signals) -> None:
    """This one and all that follow; nothing is said about it."""
    with child(_WAITS) as process:
        process.send_signal(number)
        ended = process.communicate(timeout=SECONDS_MAX)

    assert ended == ("False True True True\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_process_with_the_words_that_were_given(number: signal.Signals) -> None:
    """Whatever it does meanwhile."""
    with child(_HANGS) as process:
        process.send_signal(signal.SIGTERM)
        assert said(process) == "asked"
        process.send_signal(number)
        ended = process.communicate(timeout=SECONDS_MAX)

    assert ended == ("", f"{LAST_WORDS}\n")
    assert process.returncode == 1


def test_a_terminal_that_closes_may_say_so_twice() -> None:
    """The shell does, and the kernel: there is still time to land what is in hand."""
    with child(_WAITS) as process:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        ended = process.communicate(timeout=SECONDS_MAX)

    assert ended == ("False True True True\n", "")
    assert process.returncode == 0


def test_a_process_under_nohup_outlives_its_terminal() -> None:
    """That is what it was started under it for."""
    with child(_SAYS_WHETHER_SIGHUP_IS_IGNORED, under=("nohup",)) as process:
        assert said(process) == "True"


def test_the_second_signal_ends_a_process_that_nobody_listens_to() -> None:
    """Its words find no reader; its end needs none."""
    with child(_HANGS) as process:
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        assert said(process) == "asked"
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 1


def test_a_signal_that_a_library_took_for_itself_can_be_taken_again() -> None:
    """As Spark does with SIGINT when it starts."""
    with child(_LOSES_SIGINT_FOR_A_WHILE, _WAITS) as process:
        process.send_signal(signal.SIGINT)
        ended = process.communicate(timeout=SECONDS_MAX)

    assert ended == ("False True True True\n", "")


def test_a_wait_without_a_signal_lasts_as_long_as_it_was_asked_to() -> None:
    """Also if that is no whole number of its steps."""
    stop = Stop(LAST_WORDS)
    for seconds in (0.0, 0.05, 0.25):
        started = time.monotonic()
        assert not stop.wait(seconds)
        assert seconds <= time.monotonic() - started
    assert not stop.asked()


def test_the_end_of_the_process_ends_the_wait() -> None:
    """Who sleeps between two tries is woken, and whoever sleeps later does not even begin."""
    stop = Stop(LAST_WORDS)
    woken: list[float] = []

    def sleep() -> None:
        with pytest.raises(Stopped):
            stop.sleep(60)
        woken.append(time.monotonic())

    thread = threading.Thread(target=sleep)
    thread.start()
    stop.end()
    thread.join(timeout=10)
    assert len(woken) == 1
    with pytest.raises(Stopped):
        stop.sleep(60)


def test_sleeping_takes_its_time_while_nothing_ends() -> None:
    """Or the store would never be left alone."""
    started = time.monotonic()
    Stop(LAST_WORDS).sleep(0.02)
    assert time.monotonic() - started >= 0.015
