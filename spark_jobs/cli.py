"""The command line of the Spark jobs: what there is to say to them. Each does its work elsewhere."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from ingestor import command_line, logs, settings
from ingestor.errors import ConfigError, IngestorError
from ingestor.settings_types import duration
from ingestor.signals import Stop
from spark_jobs import plan as plans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ingestor.settings import Settings
    from spark_jobs.parse import Route

app = typer.Typer(
    name="spark_jobs",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Parse, mend and compact what the ingestor lands. Runs by itself, or under spark-submit on any master.",
    epilog="Exit codes: 0 done · 1 anything else · 2 configuration · 3 a balance that does not add up, or data lost · "
    "4 storage refuses for good · 5 other writers won every try.",
)

Config = Annotated[Path, typer.Argument(help="The YAML configuration file.", show_default=False)]
OnlyRoute = Annotated[str | None, typer.Option("--route", help="Only this route; default: all that are parsed.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")]
Every = Annotated[str | None, typer.Option("--every", metavar="10m", help="Again and again, until a signal.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


class Run:
    """One command: its configuration, checked before Spark starts, and its session."""

    def __init__(self, config: Path, route: str | None, conf: list[str] | None) -> None:
        self.settings: Settings = settings.load(config)
        logs.configure(self.settings.log.format, self.settings.log.level)
        self._conf = dict(_pair(each) for each in conf or ())
        if not self.settings.parse:
            raise ConfigError(f"{config}: no route is parsed", hint="add parse: {ROUTE: {schema: …}}")
        if route is not None and route not in self.settings.parse:
            known = ", ".join(self.settings.parse)
            raise ConfigError(f"--route {route}: no such route is parsed", hint=f"routes: {known}")
        names = [route] if route is not None else list(self.settings.parse)
        self.plans = {name: plans.make(name, self.settings.parse[name]) for name in names}

    def require_columns(self, option: str, names: list[str]) -> None:
        """Refuse columns that a route's silver has not."""
        for route, plan in self.plans.items():
            known = [field.name for field in plan.silver]
            for name in names:
                if name not in known or name in self.settings.parse[route].partition_by:
                    msg = f"{option} {name}: is no column of route {route}'s silver that rows could be laid out by"
                    raise ConfigError(msg, hint=f"columns: {', '.join(known)}; not those of partition_by")

    @contextlib.contextmanager
    def session(self) -> Iterator[tuple[SparkSession, list[Route]]]:
        """Start Spark, and stop it in the end."""
        from spark_jobs import session, stores
        from spark_jobs.failures import explain
        from spark_jobs.parse import route_of

        routes = [route_of(self.settings, name, plan) for name, plan in self.plans.items()]
        quiet = self.settings.log.level != "DEBUG"
        spark = session.start(
            {**stores.options(self.settings, routes), **self._conf}, s3=stores.any_s3(routes), quiet=quiet
        )
        try:
            stores.require_safe(spark, routes)
            yield spark, routes
        except IngestorError:
            raise
        except Exception as error:
            raise explain(error, doing="Spark") from error
        finally:
            with contextlib.suppress(Exception):
                session.stop(spark)


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.startswith("spark."):
        raise ConfigError(f"--conf {text}: is no setting", hint="write --conf spark.KEY=VALUE")
    return key, value


def _say(document: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
    typer.echo(document if isinstance(document, str) else json.dumps(document))


@app.callback()
def _main() -> None:
    pass


@app.command(short_help="Parse what is new into silver and quarantine.")
def parse(config: Config, route: OnlyRoute = None, every: Every = None, conf: Conf = None) -> None:
    """Parse what is new in the raw table into silver and quarantine; print the balance as the last line.

    Example: python -m spark_jobs parse orders.yaml --route user-events
    """
    from spark_jobs.balance import Balance
    from spark_jobs.parse import parse as run

    pause = _pause(every)
    stop = Stop("spark_jobs: stopped at once; the next run takes up what this one left")
    stop.listen()
    with Run(config, route, conf).session() as (spark, routes):
        stop.listen()  # again: Spark has taken SIGINT for itself
        while True:
            total = Balance()
            for each in routes:
                found = run(spark, each, stopping=stop.asked)
                total += found
                if len(routes) > 1:
                    _say({"route": each.name, **json.loads(found.to_json())})
            _say(total.to_json())
            sys.stdout.flush()
            if pause is None or stop.wait(pause):
                return


@app.command(short_help="Parse quarantined rows again.")
def reparse(config: Config, route: OnlyRoute = None, conf: Conf = None) -> None:
    """Parse quarantined rows by the present schema and rules: what fits moves to silver, the rest gets its new reason.

    Example: python -m spark_jobs reparse orders.yaml --route user-events
    """
    from spark_jobs.balance import Balance
    from spark_jobs.reparse import reparse as run

    with Run(config, route, conf).session() as (spark, routes):
        total = Balance()
        for each in routes:
            found = run(spark, each)
            found.require_even(f"route {each.name}")
            total += found
        _say(total.to_json())


@app.command(short_help="Make few files of many, while ingestors go on.")
def compact(
    config: Config,
    route: OnlyRoute = None,
    target_size: Annotated[str, typer.Option("--target-size", help="Of a file.")] = "256MiB",
    zorder: Annotated[
        str | None, typer.Option("--zorder", metavar="A,B", help="Lay silver's rows out by these columns.")
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
    with prepared.session() as (spark, routes):
        for each in routes:
            for table, by in ((each.raw, []), (each.settings.table, columns)):
                summary = run(spark, table, zorder=by, target_bytes=target_bytes)
                if summary is not None:
                    _say({"route": each.name, **asdict(summary)})


@app.command(short_help="Remove files that no version needs any more.")
def vacuum(
    config: Config,
    route: OnlyRoute = None,
    hours: Annotated[int, typer.Option(min=0, help="How long removed files are kept.")] = 168,
    delete: Annotated[bool, typer.Option("--delete", help="Remove them; without it they are only shown.")] = False,
    conf: Conf = None,
) -> None:
    """Show, or remove, files of raw and silver that were compacted away. Refused while unparsed rows would be lost.

    Example: python -m spark_jobs vacuum orders.yaml --delete
    """
    from spark_jobs.vacuum import vacuum as run

    with Run(config, route, conf).session() as (spark, routes):
        for each in routes:
            for removal in run(spark, each, hours=hours, delete=delete):
                for path in () if delete else removal.files:
                    _say(path)
                _say(removal.line)


@app.command(short_help="Forget how far parsing has come; asks first.")
def reset(
    config: Config,
    route: OnlyRoute = None,
    empty: Annotated[bool, typer.Option("--empty", help="Also delete all rows of silver and quarantine.")] = False,
    yes: Yes = False,
    conf: Conf = None,
) -> None:
    """Begin parsing at the raw table's start; rows that silver or quarantine have are counted as duplicates.

    Example: python -m spark_jobs reset orders.yaml --route user-events
    """
    from spark_jobs.parse import route_of
    from spark_jobs.reset import question
    from spark_jobs.reset import reset as run

    prepared = Run(config, route, conf)
    wanted = [route_of(prepared.settings, name, plan) for name, plan in prepared.plans.items()]
    for each in wanted:
        if not (yes or command_line.confirm(question(each, empty=empty))):
            raise ConfigError(f"route {each.name}: not reset", hint="answer y, or give --yes")
    with prepared.session() as (spark, routes):
        for each in routes:
            run(spark, each, empty=empty)
            _say(f"{each.name}: the next parse begins at the start")


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
