"""The command line of the Spark jobs: the options and help of each. The jobs are modules of their own."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from ingestor import command_line
from ingestor.config.types import duration
from ingestor.errors import ConfigError, IngestorError
from ingestor.signals import Stop
from spark_jobs.rounds import Rounds, leave
from spark_jobs.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route

STATE = "_spark_jobs/state.json"  # a route's state, in its checkpoint
app = typer.Typer(
    name="spark_jobs",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Parse, repair and compact the ingestor's tables. Runs by itself, or under spark-submit on any master.",
    epilog="Exit codes: 0 done · 1 anything else · 2 configuration · 3 a balance that does not add up, or data lost · "
    "4 storage refuses for good · 5 other writers won every try.",
)

Config = Annotated[Path, typer.Argument(help="The YAML configuration file.", show_default=False)]
OnlyRoute = Annotated[str | None, typer.Option("--route", help="Only this route; default: all with a parse section.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting.")]
Every = Annotated[str | None, typer.Option("--every", metavar="10m", help="Repeat at this interval until a signal.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


def _say(document: Any) -> None:  # noqa: ANN401 - any JSON
    typer.echo(document if isinstance(document, str) else json.dumps(document))


@app.callback()
def _main() -> None:
    pass


@app.command(short_help="Parse new raw rows into silver and quarantine.")
def parse(config: Config, route: OnlyRoute = None, every: Every = None, conf: Conf = None) -> None:
    """Parse new rows of the raw table into silver and quarantine; print the balance as the last line.

    Example: python -m spark_jobs parse orders.yaml --route user-events
    """
    from spark_jobs.runtime.failures import JavaEndedError

    pause = _pause(every)
    stop = Stop("spark_jobs: stopped at once; the next run continues where this one stopped")
    stop.listen()
    run, rounds = Run(config, route, conf), Rounds(pause)
    try:
        with run.session() as spark:
            stop.listen()  # again: Spark installs its own handler of SIGINT
            while True:
                _parse_round(run, spark, rounds, stop)
                if pause is None or stop.wait(pause):
                    break
    except JavaEndedError as error:
        if not stop.asked():
            raise
        if pause is None:
            hint = "nothing is lost; the next run continues where this one stopped"
            raise IngestorError("ended by a signal, and Spark with it", hint=hint) from error
    rounds.require_well()


def _parse_round(run: Run, spark: SparkSession, rounds: Rounds, stop: Stop) -> None:
    """Parse each route; print the balance of each route and of all."""
    from spark_jobs.parse import parse as parse_route
    from spark_jobs.rows.balance import Balance
    from spark_jobs.runtime.places import Files, spark_path

    found: dict[str, Balance] = {}

    def work(route: Route) -> None:
        found[route.name] = parse_route(spark, route, stopping=stop.asked)

    tried = [name for name in run.names if rounds.due(name)]
    run.each(spark, rounds, work)
    for name in tried:
        error, balance = rounds.health[name].error, found.get(name)
        if len(run.names) > 1:
            told = {"error": str(error), "exit_code": error.exit_code} if error is not None else {}
            _say({"route": name, **(told or asdict(found[name]))})
        state = f"{run.settings.parse[name].checkpoint}/{STATE}"
        leave(partial(Files(spark).replace, spark_path(state)), rounds.state(name, balance))
    if found:
        _say(sum(found.values(), Balance()).to_json())
    sys.stdout.flush()


@app.command(short_help="Parse quarantined rows again.")
def reparse(config: Config, route: OnlyRoute = None, conf: Conf = None) -> None:
    """Parse quarantined rows by the current schema and rules: valid rows move to silver, others get a new reason.

    Example: python -m spark_jobs reparse orders.yaml --route user-events
    """
    from spark_jobs.reparse import reparse as reparse_route
    from spark_jobs.rows.balance import Balance

    run = Run(config, route, conf)
    found: list[Balance] = []
    with run.session() as spark:
        try:
            run.once(spark, lambda each: found.append(reparse_route(spark, each)))
        finally:
            if found:
                _say(sum(found, Balance()).to_json())


@app.command(short_help="Compact many files into few, while ingestors run.")
def compact(
    config: Config,
    route: OnlyRoute = None,
    target_size: Annotated[str, typer.Option("--target-size", help="The size of a file.")] = "256MiB",
    zorder: Annotated[
        str | None, typer.Option("--zorder", metavar="A,B", help="Order silver's rows by these columns (Z-order).")
    ] = None,
    conf: Conf = None,
) -> None:
    """Compact raw and silver to files of the target size; print a line of JSON per table.

    Example: python -m spark_jobs compact orders.yaml --target-size 256MiB
    """
    from spark_jobs.compact import compact as run

    target_bytes = _bytes(target_size)
    prepared = Run(config, route, conf)
    columns = [name.strip() for name in (zorder or "").split(",") if name.strip()]
    prepared.require_columns("--zorder", columns)

    def work(each: Route) -> None:
        for table, by in ((each.raw, []), (each.settings.table, columns)):
            summary = run(spark, table, zorder=by, target_bytes=target_bytes)
            if summary is not None:
                _say({"route": each.name, **asdict(summary)})

    with prepared.session() as spark:
        prepared.once(spark, work)


@app.command(short_help="Remove files that no version needs.")
def vacuum(
    config: Config,
    route: OnlyRoute = None,
    hours: Annotated[int, typer.Option(min=0, help="How long removed files are kept.")] = 168,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the files; the default is a dry run.")] = False,
    conf: Conf = None,
) -> None:
    """Show, or remove, files of raw and silver that were compacted away. Refused while unparsed rows would be lost.

    Example: python -m spark_jobs vacuum orders.yaml --delete
    """
    from spark_jobs.vacuum import vacuum as run

    prepared = Run(config, route, conf)

    def work(each: Route) -> None:
        for removal in run(spark, each, hours=hours, delete=delete):
            for path in () if delete else removal.files:
                _say(path)
            _say(removal.line)

    with prepared.session() as spark:
        prepared.once(spark, work)


@app.command(short_help="Reset parsing to the raw table's start; asks first.")
def reset(
    config: Config,
    route: OnlyRoute = None,
    empty: Annotated[bool, typer.Option("--empty", help="Also delete all rows of silver and quarantine.")] = False,
    yes: Yes = False,
    conf: Conf = None,
) -> None:
    """Parse the raw table from its start again; rows that silver or quarantine have count as duplicates.

    Example: python -m spark_jobs reset orders.yaml --route user-events
    """
    from spark_jobs.plan.route import route_of
    from spark_jobs.steps.reset import question
    from spark_jobs.steps.reset import reset as run

    prepared = Run(config, route, conf)
    wanted = [route_of(prepared.settings, name, plan) for name, plan in prepared.plans.items()]
    for each in wanted:
        if not (yes or command_line.confirm(question(each, empty=empty))):
            raise ConfigError(f"route {each.name}: not reset", hint="answer y, or give --yes")

    def work(each: Route) -> None:
        run(spark, each, empty=empty)
        _say(f"{each.name}: the next parse begins at the start")

    with prepared.session() as spark:
        prepared.once(spark, work)


def _bytes(text: str) -> int:
    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0
    if size < 1:
        raise ConfigError(f"--target-size {text}: is no size", hint="write bytes with a unit, such as 256MiB")
    return size


def _pause(every: str | None) -> float | None:
    if every is None:
        return None
    try:
        seconds = duration(every).total_seconds()
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigError(f"--every {every}: is no duration", hint="write a number with a unit: 90s, 10m, 1h")
    return seconds


def main() -> NoReturn:
    """Run a command and end with its exit code."""
    sys.exit(command_line.run(app, "spark_jobs", called="python -m spark_jobs"))
