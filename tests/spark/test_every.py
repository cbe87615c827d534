"""`--every`: a job for people without a scheduler, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.process.quick_java import quick_java
from tests.support.silver import balance, event

if TYPE_CHECKING:
    from tests.support.silver import Lake


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGINT, False),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.soak),
    ],
)
def test_it_parses_again_and_again_and_ends_cleanly_at_a_signal(
    lake: Lake, number: signal.Signals, *, group: bool
) -> None:
    """A balance per run; the signal ends it with exit code 0, and quietly, also where it ends Spark's Java too."""
    lake.land(event("u1"))
    command = [sys.executable, "-m", "spark_jobs", "parse", str(lake.config()), "--every", "1s"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quick_java(), start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert balance(process.stdout.readline()) == (1, 1, 0, 0, 0)
            lake.land(event("u2"))
            while balance(process.stdout.readline()) != (1, 1, 0, 0, 0):
                pass
            if group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            assert process.wait(60) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
    assert lake.silver("user_id") == ["u1", "u2"]
