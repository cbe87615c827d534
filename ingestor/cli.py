"""The command line: the options and help of each command. `commands` and `dead_letters` do the work."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ingestor import DISTRIBUTION, command_line, logs
from ingestor.errors import ConfigError, DataLossError
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from ingestor.config.settings import Settings

app = typer.Typer(
    name="ingestor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Land Kafka records in Delta Lake, each exactly once.\n\n"
    "\b\nExamples:\n"
    "  ingestor check orders.yaml                   would `run` work?\n"
    "  ingestor run orders.yaml                     ingest until SIGTERM\n"
    "  ingestor run orders.yaml --once              ingest what is there now\n"
    "  ingestor offsets orders.yaml --json          what is committed, and the lag\n"
    "  ingestor audit orders.yaml --against-kafka   is every record there once?\n\n"
    "See also `ingestor COMMAND --help`. While it runs, http://127.0.0.1:8080 shows its status.",
    epilog="Exit codes: 0 done · 1 anything else · 2 configuration · 3 data loss or audit finding · "
    "4 storage or Kafka refuses for good · 5 OCC retries exhausted.",
)

Config = Annotated[Path, typer.Argument(help="The YAML configuration file.", show_default=False)]
OfRoute = Annotated[str | None, typer.Option("--route", help="Only this route.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def _load(config: Path) -> Settings:
    from ingestor.config.load import load

    loaded = load(config)
    logs.configure(loaded.log.format, loaded.log.level)
    return loaded


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
) -> None:
    """Ingest until SIGTERM, SIGINT or SIGHUP.

    Example: ingestor run orders.yaml
    """
    from ingestor.commands.run import run as run_pipeline

    loaded = _load(config)
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

    check_all(_load(config), typer.echo, probing=not no_probe, as_json=as_json)


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

    loaded = _load(config)
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

    reports = audit_routes(_load(config), against_kafka=against_kafka, watched=sys.stderr.isatty())
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

    loaded = _load(config)
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

    loaded = _load(config)
    if route is not None and route not in loaded.routes:
        raise ConfigError(f"there is no route {route}", hint=f"routes: {', '.join(loaded.routes)}")
    repair_tables(loaded, loaded.routes if route is None else [route], typer.echo, yes=yes)


dlq = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    short_help="Publish, list or replay dead letters.",
    help="Dead letters: what the Spark jobs could not parse. Example: ingestor dlq publish orders.yaml",
)
app.add_typer(dlq, name="dlq")

OfTopic = Annotated[str | None, typer.Option("--topic", help="Only letters from this topic.", show_default=False)]
OfReason = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Only letters with this reason (rule: any rule); may be repeated."),
]


@dlq.command(name="publish", short_help="Send new quarantine rows to the dead letter topics.")
def dlq_publish(
    config: Config,
    route: OfRoute = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="DURATION", help="Repeat until SIGTERM: 60s, 15m.")
    ] = None,
    skip_gap: Annotated[
        bool, typer.Option("--skip-gap", help="Skip letters whose log entries or files are gone.")
    ] = False,
    resend: Annotated[
        bool, typer.Option("--resend", help="Send again letters that may have been on a deleted dead letter topic.")
    ] = False,
    accept: Annotated[
        int | None,
        typer.Option("--accept", min=0, metavar="VERSION", help="Count what a RESTORE or overwrite put back as sent."),
    ] = None,
) -> None:
    """Send new quarantine rows to the dead letter topics, each letter once.

    Example: ingestor dlq publish orders.yaml --every 60s
    """
    from ingestor.dead_letters import commands, service

    loaded = _load(config)
    commands.publish(
        loaded,
        service.parsed_routes(loaded, route),
        every,
        skip_gap=skip_gap,
        resend=resend,
        accept=accept,
        tell=typer.echo,
    )


@dlq.command(name="list", short_help="Show quarantine rows, without payloads.")
def dlq_list(
    config: Config,
    route: OfRoute = None,
    topic: OfTopic = None,
    reason: OfReason = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Show at most this many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show quarantine rows, without payloads, keys and headers.

    Example: ingestor dlq list orders.yaml --reason malformed
    """
    from ingestor.dead_letters import listing, service
    from ingestor.dead_letters.selection import Selection

    loaded = _load(config)
    wanted = Selection(topic=topic, reasons=tuple(reason or ()), replayed=True)
    rows, total = listing.find(loaded, service.parsed_routes(loaded, route), wanted, limit)
    typer.echo(listing.as_json(rows, total) if as_json else listing.as_text(rows, total))


@dlq.command(name="replay", short_help="Send chosen letters back to their topics, each once.")
def dlq_replay(
    config: Config,
    route: OfRoute = None,
    topic: OfTopic = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Only this partition.")] = None,
    offsets: Annotated[
        str | None, typer.Option("--offsets", metavar="FIRST..LAST", help="Only these offsets: 17, 17..42, 17..")
    ] = None,
    reason: OfReason = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only records from then on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only records before then.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also send letters that were replayed before.")] = False,
) -> None:
    """Send chosen letters back to their topics, each once.

    Example: ingestor dlq replay orders.yaml --reason required:user_id --dry-run
    """
    from ingestor.dead_letters import commands, service
    from ingestor.dead_letters.selection import select

    loaded = _load(config)
    commands.replay(
        loaded,
        service.parsed_routes(loaded, route),
        select(
            topic=topic,
            partition=partition,
            offsets=offsets,
            reasons=reason or (),
            since=since,
            until=until,
            replayed=force,
        ),
        dry_run=dry_run,
        force=force,
        confirm=lambda question: yes or command_line.confirm(question),
        tell=typer.echo,
    )


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
