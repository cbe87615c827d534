"""Questions to coordinators are asked by a process of its own, for librdkafka may end whoever asks."""

from __future__ import annotations

import stat
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from ingestor.errors import Unavailable
from ingestor.kafka.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
SECONDS_MAX = 30.0


def be_asked(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another program answer."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_client_that_dies_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It aborts when a coordinator goes away at the wrong moment; whoever asked goes on."""
    be_asked("kill -ABRT $$", tmp_path, monkeypatch)
    with pytest.raises(Unavailable, match="the coordinator of group g for its members: the Kafka client died"):
        Broker(NOBODY).group("g")


def test_a_question_ends_with_whoever_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is left behind, and nobody asks any more."""
    pid = tmp_path / "pid"
    be_asked(f"echo $$ > {pid}; exec sleep 600", tmp_path, monkeypatch)
    broker = Broker(NOBODY)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            broker.group("g")
        except Unavailable as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    deadline = time.monotonic() + SECONDS_MAX
    while not (pid.exists() and pid.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    broker.end()
    asking.join(SECONDS_MAX)

    assert len(failed) == 1
    assert not psutil.pid_exists(int(pid.read_text()))
    with pytest.raises(Unavailable, match="the process ends"):
        broker.group("g")


def test_a_cluster_that_is_not_there_is_unavailable() -> None:
    """The real other process says so, as soon as its time is over."""
    with pytest.raises(Unavailable, match="the coordinator of group g"):
        Broker(NOBODY).group("g", timeout=1.0)
