"""The second half of `ingestor demo`: parse, then compact, in one session.

Java takes most of its time to start. So the session starts while the first half is shown, and waits for a line on
standard input: then the first half has landed all there is. Results are lines of JSON, as those of the jobs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import typer

from ingestor import command_line
from spark_jobs.cli import Config, Run
from spark_jobs.compact import compact
from spark_jobs.parse import parse

_TARGET_BYTES = 256 << 20

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(config: Config) -> None:
    """Parse and compact what is there once a line comes on standard input."""
    with Run(config, None, None).session() as (spark, routes):
        if not sys.stdin.readline():
            return  # whoever wanted to see it is gone
        for route in routes:
            typer.echo(parse(spark, route).to_json())
            for table in (route.raw, route.settings.table):
                summary = compact(spark, table, zorder=[], target_bytes=_TARGET_BYTES)
                if summary is not None:
                    typer.echo(json.dumps(asdict(summary)))


if __name__ == "__main__":
    sys.exit(command_line.run(app, "spark_jobs", called="python -m spark_jobs.demo"))
