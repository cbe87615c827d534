"""A Spark that compacts a table over and over, and appends by delta-rs beside it, none of which may be lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.support.process.quick_java import quick_java

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS_MAX = 240.0
_PAUSE_SECONDS = 0.2  # without it Spark, held up, would win none of its tries
_PAUSE_GROWS_BY = 1.1  # once there are appends enough: how long a try takes depends on the machine


def rows(number: int) -> pa.Table:
    """Return one row with this number."""
    return pa.table({"id": pa.array([number], pa.int64())})


def race(
    table: str,
    conf: Mapping[str, str],
    *classes: str,
    options: Mapping[str, str] | None = None,
    appends: int = 25,
    optimizes: int = 2,
) -> int:
    """Append at least so often beside at least so many OPTIMIZE; hold the table against what was acknowledged.

    Returns how many appends there were.
    """
    storage = dict(options or {})
    write_deltalake(table, rows(0), storage_options=storage)
    command = [sys.executable, "-m", "tests.support.stores.slow_commits", table, json.dumps(dict(conf)), *classes]
    landed, optimized, pause_seconds = 1, [0], _PAUSE_SECONDS
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quick_java()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "optimized\n"

            def count() -> None:
                for line in process.stdout or ():
                    optimized[0] += line == "optimized\n"

            reader = threading.Thread(target=count)
            reader.start()
            while landed < appends or optimized[0] < optimizes:
                write_deltalake(table, rows(landed), mode="append", storage_options=storage)
                landed += 1
                time.sleep(pause_seconds)
                if landed > appends:
                    pause_seconds *= _PAUSE_GROWS_BY
                assert process.poll() is None
            process.stdin.close()
            reader.join(SECONDS_MAX)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
    found = DeltaTable(table, storage_options=storage).to_pyarrow_table().column("id").to_pylist()
    assert sorted(found) == list(range(landed))
    return landed
