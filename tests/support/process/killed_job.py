"""`python -m tests.support.process.killed_job POINT SIGNAL parse CONFIG`: a Spark job that signals itself at a point.

For POINT see `held_steps`; SIGNAL is KILL, or STOP for a job that is held until it is told to go on.
"""

from __future__ import annotations

import os
import signal
import sys

from spark_jobs import cli
from tests.support.process import held_steps

if __name__ == "__main__":
    point, number = sys.argv.pop(1), signal.Signals[f"SIG{sys.argv.pop(1)}"]
    held_steps.arm(point, lambda: os.kill(os.getpid(), number), setattr)
    cli.main()
