"""The command line: the options and help of each command. `commands` and `dead_letters` do the work."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ingestor import DISTRIBUTION, command_line
from ingestor.commands import dlq
from ingestor.commands.options import AsJson, Config, OfRoute, load
from ingestor.errors import ConfigError, DataLossError
from ingestor.records import TopicPartition

app = typer.Typer(
    name="ingestor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Land Kafka records in Delta Lake, each exactly once.\n\n"
    "\b\nExamples:\n"
    "  ingestor init orders.yaml                    write a first configuration\n"
    "  ingestor check orders.yaml                   would `run` work?\n"
    "  ingestor run orders.yaml                     ingest until SIGTERM\n"
    "  ingestor run orders.yaml --once              ingest what is there now\n"
    "  ingestor status orders.yaml --watch          how the running process is\n"
    "  ingestor offsets orders.yaml --json          what is committed, and the lag\n"
    "  ingestor audit orders.yaml --against-kafka   is every record there once?\n\n"
    "See also `ingestor COMMAND --help`. While it runs, http://127.0.0.1:8080 shows its status.",
    epilog="Exit codes: 0 done · 1 anything else · 2 configuration · 3 data loss or audit finding · "
    "4 storage or Kafka refuses for good · 5 OCC retries exhausted.",
)

app.add_typer(dlq.app, name="dlq")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        typer.echo(f"ingestor {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    config: Config,
    once: Annotated[bool, typer.Option("--once", help="Ingest up to the current ends, commit, and exit.")] = False,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="Instead of the file's log.level.")
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option("--http-port", metavar="PORT", help="Instead of the file's http.port; 0: any free one."),
    ] = None,
) -> None:
    """Ingest until SIGTERM, SIGINT or SIGHUP.

    Example: ingestor run orders.yaml
    """
    from ingestor.commands.run import run as run_pipeline

    loaded = load(config, log={"level": log_level}, http={"port": http_port})
    rows = run_pipeline(loaded, once=once, progress=once and sys.stderr.isatty())
    if once:
        typer.echo(f"ingestor: done, {rows:,} rows landed", err=True)


@app.command(short_help="Find whatever `run` would refuse or wait for; change nothing.")
def check(
    config: Config,
    as_json: AsJson = False,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Skip the stores' write test, for read-only credentials.")
    ] = False,
) -> None:
    """Find whatever `run` would refuse or wait for, with its exit codes, and change nothing.

    Example: ingestor check orders.yaml
    """
    from ingestor.commands.check import check as check_all

    check_all(lambda: load(config), typer.echo, probing=not no_probe, as_json=as_json)


@app.command(short_help="Show a running process at a glance; exit 0 if it is well.")
def status(
    target: Annotated[str, typer.Argument(metavar="CONFIG|URL", help="The process' configuration, or its address.")],
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s, until Ctrl-C.")] = False,
) -> None:
    """Show a running process at a glance: routes, lag, rates, last commits and errors. Exit 0 if it is well, else 1.

    Example: ingestor status orders.yaml --watch
    """
    from ingestor.commands import status as module

    url = target if target.startswith(("http://", "https://")) else module.address(load(Path(target)).http)
    module.status(url, watch=watch, as_json=as_json)


@app.command(short_help="Show what is committed and the lag, or set the next offset.")
def offsets(
    config: Config,
    as_json: AsJson = False,
    set_to: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TOPIC:PARTITION=OFFSET|earliest|latest", help="Set the next offset to read."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --set: don't ask.")] = False,
    accept: Annotated[
        int | None,
        typer.Option(
            "--accept", metavar="VERSION", help="Accept that this log entry removed rows, and continue without them."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --set or --accept: also while the consumer group has members.")
    ] = False,
) -> None:
    """Show per partition what is committed, what Kafka has, and the lag; or set the next offset to read.

    Example: ingestor offsets orders.yaml --set user.events.v1:0=earliest
    """
    from ingestor.commands import offsets as module
    from ingestor.commands.set_offsets import Dialogue, accept_removal, set_offsets

    loaded = load(config)
    dialogue = Dialogue(
        confirm=lambda question: yes or command_line.confirm(question),
        warn=lambda line: typer.echo(line, err=True),
        tell=typer.echo,
    )
    if accept is not None and set_to:
        raise ConfigError("--accept and --set don't go together", hint="give one of them")
    if accept is not None:
        accept_removal(loaded, accept, dialogue, force=force)
    elif set_to:
        set_offsets(loaded, set_to, dialogue, force=force)
    else:
        rows = module.show(loaded)
        typer.echo(module.as_json(rows) if as_json else module.as_text(rows))


@app.command(short_help="Prove each table from the outside: every offset once.")
def audit(
    config: Config,
    as_json: AsJson = False,
    against_kafka: Annotated[
        bool, typer.Option("--against-kafka", help="Also compare with every record that Kafka still has.")
    ] = False,
) -> None:
    """Prove each table from the outside: every offset once, every file there, every commit in its range.

    Example: ingestor audit orders.yaml --against-kafka
    """
    from ingestor.commands.audit import audit_routes

    reports = audit_routes(load(config), against_kafka=against_kafka, watched=sys.stderr.isatty())
    if as_json:
        typer.echo(json.dumps({name: report.to_json() for name, report in reports.items()}))
    for name, report in reports.items():
        for line in () if as_json else report.lines():
            typer.echo(f"{name}: {line}")
    bad = [name for name, report in reports.items() if not report.ok]
    if bad:
        total = sum(reports[name].findings_total for name in bad)
        raise DataLossError(
            f"the audit found {total:,} {'fault' if total == 1 else 'faults'} in {', '.join(bad)}",
            hint="each finding above names where; keep the table as it is until they are understood",
        )


@app.command(short_help="Show which table version and file hold a record.")
def locate(config: Config, topic: str, partition: int, offset: int) -> None:
    """Show which table version and file hold a record, and when it was committed.

    Example: ingestor locate orders.yaml user.events.v1 0 4711
    """
    from ingestor.commands.locate import locate as find
    from ingestor.config.routing import app_ids

    loaded = load(config)
    route = loaded.route_of(topic)
    if route is None:
        raise ConfigError(f"no route takes topic {topic}", hint=f"routes: {', '.join(loaded.routes)}")
    found = find(route.table, loaded.storage_options, app_ids(loaded, route), TopicPartition(topic, partition), offset)
    if found is None:
        raise DataLossError(
            f"{topic}:{partition} offset {offset} is not in table {route.table}",
            hint="it may be beyond what is committed (`ingestor offsets`), aborted in Kafka, or compacted away",
        )
    typer.echo("\n".join(found.lines()))


@app.command(short_help="Set aside a newest log entry that a power cut tore.")
def repair(
    config: Config,
    route: OfRoute = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this only tell what would be done.")] = False,
) -> None:
    """Set aside the newest log entry of a table if a power cut tore it, after proving that nothing was built on it.

    Example: ingestor repair orders.yaml --yes
    """
    from ingestor.commands.repair import repair as repair_tables

    loaded = load(config)
    if route is not None and route not in loaded.routes:
        raise ConfigError(f"there is no route {route}", hint=f"routes: {', '.join(loaded.routes)}")
    repair_tables(loaded, loaded.routes if route is None else [route], typer.echo, yes=yes)


@app.command(short_help="Write a first configuration, which `check` accepts.")
def init(
    path: Annotated[
        Path | None, typer.Argument(help="The file to write, by default ingestor.yaml.", show_default=False)
    ] = None,
    brokers: Annotated[str | None, typer.Option("--brokers", metavar="HOST:PORT,…", help="Kafka's brokers.")] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "--topics", metavar="TOPIC", help="A topic, or one ^regex; may be repeated."),
    ] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="URL", help="Path or URL of the table.")] = None,
    app_id: Annotated[
        str | None, typer.Option("--app-id", metavar="NAME", help="By default the last part of the table's path.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="The same as PATH.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Don't look whether Kafka has the topics.")] = False,
) -> None:
    """Write a commented configuration that `check` accepts; ask on a terminal for what is missing.

    Example: ingestor init orders.yaml --brokers 127.0.0.1:9092 --topic user.events.v1 --table ./lake/raw/user-events
    """
    from ingestor.commands.init import Wanted
    from ingestor.commands.init import init as write

    if path and output:
        raise ConfigError("PATH and --output don't go together", hint="give one of them")
    wanted = Wanted(brokers, tuple(topics or ()), table, app_id)
    ask = command_line.ask if sys.stdin.isatty() and sys.stderr.isatty() else None
    file = path or output or Path("ingestor.yaml")
    write(file, wanted, ask=ask, tell=typer.echo, force=force, look=not offline)


@app.command(name="schema", short_help="Print the configuration's JSON Schema, for editors.")
def print_schema() -> None:
    """Print the JSON Schema of the configuration, by which editors complete and check it.

    Example: ingestor schema > ingestor.schema.json
    """
    from ingestor.config import schema

    typer.echo(schema.text(), nl=False)


@app.command(short_help="Run everything on an embedded Kafka, with a kill in the middle.")
def demo() -> None:
    """Run everything on an embedded Kafka: produce, ingest, kill, restart, audit.

    Example: ingestor demo
    """
    from ingestor.commands.demo import demo as show

    show(typer.echo)


def main() -> NoReturn:
    """Run a command and end with its exit code."""
    # Skips Python's shutdown, in which a daemon thread inside a storage library would crash.
    os._exit(command_line.run(app, "ingestor"))
