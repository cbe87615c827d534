"""`ingestor dlq`: its options and help. `dead_letters` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from ingestor import command_line
from ingestor.commands.options import AsJson, Config, OfRoute, load

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    short_help="Publish, list or replay dead letters.",
    help="Dead letters: what the Spark jobs could not parse. Example: ingestor dlq publish orders.yaml",
)
OfTopic = Annotated[str | None, typer.Option("--topic", help="Only letters from this topic.", show_default=False)]
OfReason = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Only letters with this reason (rule: any rule); may be repeated."),
]


@app.command(name="publish", short_help="Send new quarantine rows to the dead letter topics.")
def publish(
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

    loaded = load(config)
    commands.publish(
        loaded,
        service.parsed_routes(loaded, route),
        every,
        skip_gap=skip_gap,
        resend=resend,
        accept=accept,
        tell=typer.echo,
    )


@app.command(name="list", short_help="Show quarantine rows, without payloads.")
def show(
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

    loaded = load(config)
    wanted = Selection(topic=topic, reasons=tuple(reason or ()), replayed=True)
    rows, total = listing.find(loaded, service.parsed_routes(loaded, route), wanted, limit)
    typer.echo(listing.as_json(rows, total) if as_json else listing.as_text(rows, total))


@app.command(name="replay", short_help="Send chosen letters back to their topics, each once.")
def replay(
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

    loaded = load(config)
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
