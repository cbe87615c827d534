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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

# Root may write everywhere. Without these two capabilities (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH; 24 is
# PR_CAPBSET_DROP) permissions bind it like everybody; where it is not root, they do already.
_BOUND = (
    "import ctypes, os, sys; prctl = ctypes.CDLL(None).prctl; prctl(24, 1, 0, 0, 0); prctl(24, 2, 0, 0, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
BOUND_BY_PERMISSIONS = () if os.geteuid() else (sys.executable, "-c", _BOUND)


@dataclass(frozen=True)
class Ended:
    """What is left of a process: its exit code, what it said, and how long it took."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_line(self) -> str:
        """The last line on stderr: what happened, and what to do."""
        return self.stderr.rstrip("\n").rpartition("\n")[2]


class Command:
    """One process, in a session of its own: it ends with the `with` block, and all that it started with it."""

    def __init__(
        self,
        *arguments: object,
        under: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> None:
        """Start `ingestor` with these arguments; `under` is a program that is to run it."""
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._started = time.monotonic()
        python = () if under and under[-1] == _BOUND else (sys.executable,)
        self._process = subprocess.Popen(
            [*under, *python, "-m", "ingestor", *map(str, arguments)],
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
