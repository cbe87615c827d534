"""What the commands of `ingestor dlq` ask, print and refuse."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ingestor.config.types import duration
from ingestor.dead_letters.publish import Publisher
from ingestor.dead_letters.replay import Replayer
from ingestor.dead_letters.service import Service, publish_once
from ingestor.errors import ConfigError, IngestorError, Unavailable
from ingestor.kafka.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from ingestor.config.settings import Settings
    from ingestor.dead_letters.selection import Selection
    from ingestor.records import Coordinate

_SHOWN = 1_000  # letters that are listed; the others are only counted


def publish(
    settings: Settings,
    routes: Sequence[str],
    every: str | None,
    *,
    skip_gap: bool = False,
    resend: bool = False,
    accept: int | None = None,
    tell: Callable[[str], None],
) -> None:
    """Publish once or repeatedly; first apply `--accept`, a person's answer to a RESTORE or overwrite."""
    pause = None if every is None else _pause(every)
    if accept is not None:
        if len(routes) != 1:
            raise ConfigError(f"--accept {accept}: several routes have versions", hint="give --route ROUTE too")
        Publisher(settings, routes[0], Broker(settings.kafka)).accept(accept)
        tell(f"{routes[0]}: version {accept} is accepted: what it put into the table counts as sent")
    if pause is None:
        publish_once(settings, routes, skip_gap=skip_gap, resend=resend, tell=tell)
    else:
        Service(settings, routes, pause, skip_gap=skip_gap, resend=resend).run()


def _pause(every: str) -> timedelta:
    hint = "write a number with a unit: 90s, 15m or 24h"
    try:
        pause = duration(every)
    except (ValueError, OverflowError):
        raise ConfigError(f"--every {every}: is no duration", hint=hint) from None
    if pause.total_seconds() < 1:
        raise ConfigError(f"--every {every}: is less than a second", hint=hint)
    return pause


def replay(
    settings: Settings,
    routes: Sequence[str],
    selection: Selection,
    *,
    dry_run: bool,
    force: bool,
    confirm: Callable[[str], bool],
    tell: Callable[[str], None],
) -> None:
    """Show the letters to send (dry run), or send them after confirmation."""
    broker = Broker(settings.kafka)
    replayers = [Replayer(settings, route, broker, force=force) for route in routes]
    chosen = [(replayer, replayer.chosen(selection)) for replayer in replayers]
    unfinished = [replayer for replayer in replayers if replayer.unfinished()]
    if dry_run:
        for replayer in unfinished:
            tell(f"{replayer.route}: a replay was not finished; the next one finishes it first")
        _show(chosen, tell)
        return
    at_work = [(replayer, origins) for replayer, origins in chosen if origins or replayer in unfinished]
    if not at_work:
        tell("nothing to replay: no dead letter is chosen that was not replayed before")
        return
    topics = Counter(origin.topic for _, origins in at_work for origin in origins)
    where = ", ".join(f"{topic} ({number:,})" for topic, number in sorted(topics.items())) or "none"
    more = f", and finish {len(unfinished)} that was begun" if unfinished else ""
    again = ", again where they were replayed before" if force else ""
    if not confirm(f"Send {topics.total():,} dead letters back to their topics{again}: {where}{more}?"):
        raise ConfigError("nothing was sent", hint="answer y, or give --yes")
    _replay_all(at_work, tell)


def _replay_all(at_work: Sequence[tuple[Replayer, Sequence[Coordinate]]], tell: Callable[[str], None]) -> None:
    failures: list[Exception] = []
    for replayer, origins in at_work:
        try:
            number = replayer.replay(origins)
        except (IngestorError, Unavailable) as error:
            failures.append(error)
            tell(f"{replayer.route}: FAILED: {error}")
        else:
            tell(f"{replayer.route}: {number:,} dead {'letter' if number == 1 else 'letters'} sent back")
    if failures:
        raise failures[0]


def _show(chosen: Sequence[tuple[Replayer, Sequence[Coordinate]]], tell: Callable[[str], None]) -> None:
    total = 0
    for replayer, origins in chosen:
        for origin in origins[: max(0, _SHOWN - total)]:
            tell(f"{replayer.route}: {origin}")
        total += len(origins)
    rest = f" (the first {_SHOWN:,} are shown)" if total > _SHOWN else ""
    tell(f"{total:,} dead {'letter' if total == 1 else 'letters'} would be sent back{rest}; nothing was sent")
