"""Processes that serve on loopback: tests start, stop, kill and hold them still, and none outlives the test run."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
_TICK_SECONDS = 0.05
_LOG_LINES_SHOWN = 40

# $0: the home. A line on stdin: all was closed; its end: the parent died.
_GUARD = """\
read -r _ && exit
for pid in "$0"/pid "$0"/*/pid; do kill -s KILL -- "-$(cat "$pid")"; done
rm -rf "$0" || { sleep 1; rm -rf "$0"; }
"""


class Home:
    """A folder for one server, or for several with a folder each in it.

    When the test run dies, even by SIGKILL, what still serves from there is killed, and the folder removed.
    """

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"ingestor-{name}-"))
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def remove(self) -> None:
        """Remove the folder, from which nobody serves any more."""
        shutil.rmtree(self.path)
        self._guard.communicate(b"closed\n", timeout=STOP_SECONDS_MAX)


class Server(ABC):
    """One server's process, in a group of its own; its folder stays the same over restarts."""

    # $0: the folder; the rest: the command. The pid is the group's, and the guard of the home looks for it.
    script: ClassVar[str] = 'echo $$ >"$0/pid"; exec "$@"'

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """Return the command that serves."""

    @abstractmethod
    def _answers(self) -> bool:
        """Ask the server something, and tell whether it answers."""

    def _environ(self) -> Mapping[str, str]:
        return {}

    @property
    def running(self) -> bool:
        """Whether the process is there; a paused one is."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process, unless it runs, without waiting for it, to start several at once."""
        if self.running:
            return
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self.script, self._folder, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environ()},
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Return when the server answers."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                state = f"is not ready after {START_SECONDS_MAX:g} s" if self.running else "ended"
                log = (self._folder / "log").read_text(errors="replace").splitlines()
                tail = "\n".join(log[-_LOG_LINES_SHOWN:])
                raise RuntimeError(f"the server in {self._folder} {state}; its log ends:\n{tail}")
            time.sleep(_TICK_SECONDS)

    def start(self) -> None:
        """Start the process, unless it runs, and wait until it serves."""
        self.launch()
        self.wait_ready()

    def terminate(self) -> None:
        """Ask the process to end in order, without waiting for it, to stop several at once."""
        self.resume()
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the process in order (SIGTERM), as far as it does so in time."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(STOP_SECONDS_MAX)
        self.kill()

    def kill(self) -> None:
        """End the process as a power cut would (SIGKILL)."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None
        (self._folder / "pid").unlink(missing_ok=True)  # it may soon be another process's

    def pause(self) -> None:
        """Hold the process still (SIGSTOP): connections are taken and stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order and start again."""
        self.stop()
        self.start()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)


def free_ports(count: int) -> list[int]:
    """Ports that stay free while a server is down.

    They lie below the ranges from which systems choose ports for outgoing connections. In these,
    a client that calls a dead server's port on loopback can meet itself, and hold the port.
    """
    candidates = random.SystemRandom().sample(range(15_000, 32_000), 1000)
    ports: list[int] = []
    for port in candidates:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    msg = f"fewer than {count} free ports on loopback"
    raise RuntimeError(msg)
