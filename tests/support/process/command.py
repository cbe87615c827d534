"""The command line as people use it: a process of its own, its streams, its exit code and its last words.

with Command("run", config) as ingestor:
    ingestor.wait_for("committed")
    ingestor.signal(signal.SIGTERM)
    ended = ingestor.end()
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import yaml

from tests.support.process.child import ENDS_WITH_PARENT

SECONDS_MAX = 60.0
_TICK_SECONDS = 0.02

# What starts the process. Where permissions are to bind it although it is root's, it gives up for good
# (PR_CAPBSET_DROP: 24) what lets root write everywhere: CAP_DAC_OVERRIDE (1) and CAP_DAC_READ_SEARCH (2). Anybody else
# has not got them anyway.
_LAUNCH = f"""{ENDS_WITH_PARENT}
if sys.platform == "linux" and sys.argv[1] == "bound":
    prctl = ctypes.CDLL(None).prctl
    prctl(24, 1, 0, 0, 0)
    prctl(24, 2, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "ingestor", *sys.argv[2:]])
"""


@dataclass(frozen=True)
class Ended:
    """What is left of a process: its exit code, what it said, and how long it took."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_line(self) -> str:
        """The last line on stderr: after a failure what happened, and what to do."""
        return (self.stderr.splitlines() or [""])[-1]


class Command:
    """One process in a session of its own, which is over with the `with` block, and with it all that it started."""

    def __init__(
        self,
        *arguments: object,
        under: Sequence[str] = (),
        bound: bool = False,
        environ: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> None:
        """Start `ingestor` with these arguments, `under` a command that runs others, or `bound` by permissions."""
        self._started = time.monotonic()
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - same
        self._process = subprocess.Popen(
            [*under, sys.executable, "-ISc", _LAUNCH, "bound" if bound else "free", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._err,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(stdin.encode())
            self._process.stdin.close()

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return _text(self._err.fileno())

    def wait_for(self, text: str, *, count: int = 1, seconds_max: float = SECONDS_MAX) -> None:
        """Return when it has said something so often; fail if it ends before."""
        self.wait_until(lambda: self.stderr.count(text) >= count, repr(text), seconds_max=seconds_max)

    def wait_until(self, condition: Callable[[], bool], what: str, *, seconds_max: float = SECONDS_MAX) -> None:
        """Return when a condition holds; fail if it ends before."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            running = self._process.poll() is None
            assert running, f"it ended ({self._process.returncode}) without {what}:\n{self.stderr}"
            assert time.monotonic() < deadline, f"no {what} within {seconds_max:g} s:\n{self.stderr}"
            time.sleep(_TICK_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._process.send_signal(number)

    def end(self, seconds_max: float = SECONDS_MAX) -> Ended:
        """Return what is left of it as soon as it has ended by itself; fail if a process that it started has not."""
        try:
            self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds_max:g} s:\n{self.stderr}") from None
        seconds = time.monotonic() - self._started
        left = self._left()
        self._kill_session()
        assert not left, f"it left processes behind: {left}\n{self.stderr}"
        return Ended(self._process.returncode, _text(self._out.fileno()), self.stderr, seconds)

    def _left(self) -> list[str]:
        """Return what still runs of it. A zombie does not: it waits for init to see it, which takes its time."""
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getpgid(process.pid) == self._process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(f"{process.pid} {process.name()} {process.status()}")
        return left

    def _kill_session(self) -> None:
        """Kill whatever is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_session()
        self._process.wait()
        self._out.close()
        self._err.close()


def ingestor(
    *arguments: object,
    under: Sequence[str] = (),
    bound: bool = False,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
    seconds_max: float = SECONDS_MAX,
) -> Ended:
    """Run a command to its end."""
    with Command(*arguments, under=under, bound=bound, environ=environ, stdin=stdin) as command:
        return command.end(seconds_max)


def refused(*arguments: object, code: int, words: Sequence[str], starts: int = 3, **how: Any) -> Ended:
    """Run a command as a supervisor does, which starts it again: each time it refuses, and names the same things."""
    for start in range(1, starts + 1):
        ended = ingestor(*arguments, **how)
        assert ended.code == code, f"start {start} ended with {ended.code}, not {code}:\n{ended.stderr}"
        missing = [word for word in words if word not in ended.last_line]
        assert not missing, f"start {start} does not name {missing}: {ended.last_line}"
    return ended


def _text(descriptor: int) -> str:
    """Read a file that the process still writes, without moving the place where it writes."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()


def write_config(
    folder: Path,
    bootstrap: str,
    *topics: str,
    app_id: str = "shop",
    table: str | Path = "table",
    kafka: Mapping[str, object] | None = None,
    **route: object,
) -> Path:
    """Write a configuration with one route, whose settings are given; return its path.

    The group is named after the first topic, so that tests don't meet in one.
    """
    document = {
        "app_id": app_id,
        "kafka": {
            "bootstrap.servers": bootstrap,
            "group.id": topics[0],
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "topic.metadata.refresh.interval.ms": 500,
            **(kafka or {}),
        },
        "routes": {"events": {"topics": list(topics), "table": str(table), **route}},
        "http": None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
