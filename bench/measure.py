"""Runs a program to its end and tells what it cost.

Memory is the most that the kernel ever saw of the process. It counts from the fork, so the process that measures must
itself be small: it imports neither pyarrow nor deltalake, and leaves the work to its children.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took, from its start to its end."""

    cpu_seconds: float  # user and system, all threads
    wall_seconds: float
    rss_mib: float  # at its peak


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ended well: what it took, and the last line that it said."""

    cost: Cost
    last_line: str


class ProgramFailedError(Exception):
    """A program that was to be measured did not end well; the message holds its last words."""


def run(arguments: Sequence[object], *, seconds_max: float, environ: Mapping[str, str] | None = None) -> Ended:
    """Run a program to its end, at most so long, with these variables set beside our own."""
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environ or {})},
        )
        timer = threading.Timer(seconds_max, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
        wall_seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(max(0, output.tell() - _TAIL_BYTES))
        said = output.read().decode(errors="replace").rstrip()
    if process.returncode:
        ended = f"{' '.join(map(str, arguments[1:4]))} ended with {process.returncode} after {wall_seconds:.0f} s"
        raise ProgramFailedError(f"{ended}:\n{said}")
    cost = Cost(usage.ru_utime + usage.ru_stime, wall_seconds, usage.ru_maxrss * _RSS_UNIT / (1 << 20))
    return Ended(cost, said.rpartition("\n")[2])
