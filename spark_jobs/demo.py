"""The second half of `ingestor demo`, in one session: parse during ingestion, then parse the rest, then compact.

Starting Java takes most of the time, so it starts during the first half. A line on standard input says that ingestion
has ended. Results are lines of JSON, as of the jobs: the balance of all runs together, then a line per table.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict

import typer

from ingestor import command_line
from spark_jobs.cli import Config  # noqa: TC001 - typer reads it at run time
from spark_jobs.compact import compact
from spark_jobs.parse import parse
from spark_jobs.rows.balance import Balance
from spark_jobs.run import Run
from spark_jobs.runtime.places import TableLog

_TARGET_BYTES = 256 << 20
_PAUSE_SECONDS = 1.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(config: Config) -> None:
    """Parse until a line comes on standard input, and once more; then compact."""
    told: list[str] = []
    landed = threading.Event()

    def listen() -> None:
        told.append(sys.stdin.readline())
        landed.set()

    threading.Thread(target=listen, daemon=True).start()
    run = Run(config, None, None)
    with run.session() as spark:
        for name in run.names:
            route = run.route(spark, name)
            total, all_there = Balance(), False
            while not all_there:
                all_there = landed.wait(_PAUSE_SECONDS)
                if told == [""]:
                    return  # the parent has ended
                if all_there or TableLog(spark, route.raw).exists:
                    total += parse(spark, route)
            typer.echo(total.to_json())
            for table in (route.raw, route.settings.table):
                summary = compact(spark, table, zorder=[], target_bytes=_TARGET_BYTES)
                if summary is not None:
                    typer.echo(json.dumps(asdict(summary)))


if __name__ == "__main__":
    sys.exit(command_line.run(app, "spark_jobs", called="python -m spark_jobs.demo"))
