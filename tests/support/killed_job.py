"""`python -m tests.support.killed_job POINT parse CONFIG`: a Spark job that kills itself hard at a point of its batch.

POINT is `before` the first write, `between` the two, or `after` both, before Spark notes that the batch is done.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

from spark_jobs import cli
from spark_jobs.batch import Job
from spark_jobs.tables import Sink


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def arm(point: str) -> None:
    """Make the job die at the point."""
    append, process = Sink.append, Job.process

    def append_or_die(self: Sink, *arguments: Any, **named: Any) -> Any:
        if point == "before":
            _die()
        landed = append(self, *arguments, **named)
        if point == "between":
            _die()
        return landed

    def process_and_die(self: Job, *arguments: Any) -> NoReturn:
        process(self, *arguments)
        _die()

    Sink.append = append_or_die  # type: ignore[method-assign]
    if point == "after":
        Job.process = process_and_die  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    arm(sys.argv.pop(1))
    cli.main()
