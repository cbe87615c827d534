"""`ingestor offsets --set`: sets the next offset to read, and shows the consequences before and after.

It is refused while the consumer group has members: a running ingestor would continue at the new position at once, and
skip records that it was about to commit. No flag allows going back to where rows are, since they would be doubled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.commands.opening import open_if_there, open_route
from ingestor.delta.guards import Answer
from ingestor.errors import ConfigError, Fenced, RefusedError, Unavailable
from ingestor.ingest.stager import set_positions
from ingestor.kafka.broker import Broker
from ingestor.ledger import position_after, txn_before
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ingestor.commands.opening import OpenRoute
    from ingestor.config.settings import Route, Settings
    from ingestor.delta.table import RawTable
    from ingestor.kafka.broker import Watermarks

_REQUEST = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+):(?P<partition>\d+)=(?P<to>\d+|earliest|latest)")


@dataclass(frozen=True, slots=True)
class Wish:
    """The wanted position of a partition, and Kafka's offsets of it."""

    position: int
    marks: Watermarks


@dataclass(frozen=True, slots=True)
class Dialogue:
    """How a command asks and informs its user."""

    confirm: Callable[[str], bool]
    warn: Callable[[str], None]  # called before the question
    tell: Callable[[str], None]  # called with what was done


def set_offsets(settings: Settings, requests: Sequence[str], dialogue: Dialogue, *, force: bool = False) -> None:
    """Write txn-only commits, one per route, after confirmation; refuse positions that would double rows."""
    broker = Broker(settings.kafka)
    wishes = _wishes(settings, broker, requests)
    if not force:
        _refuse_members(broker, settings.kafka["group.id"])
    for name, wanted in wishes.items():
        _set(settings, settings.routes[name], broker, wanted, dialogue)


def _wishes(settings: Settings, broker: Broker, requests: Sequence[str]) -> dict[str, dict[TopicPartition, Wish]]:
    by_route: dict[str, dict[TopicPartition, Wish]] = {}
    for text in requests:
        tp, to = _parse(text)
        route = settings.route_of(tp.topic)
        if route is None:
            raise ConfigError(
                f"--set {text}: no route takes topic {tp.topic}", hint=f"routes: {', '.join(settings.routes)}"
            )
        wanted = by_route.setdefault(route.name, {})
        if tp in wanted:
            raise ConfigError(f"--set {text}: {tp} is set twice", hint="give each partition one offset")
        wanted[tp] = _wish(broker, tp, to)
    return by_route


def _parse(text: str) -> tuple[TopicPartition, str]:
    match = _REQUEST.fullmatch(text)
    if match is None:
        raise ConfigError(f"--set {text}: not TOPIC:PARTITION=OFFSET", hint="for example --set user.events.v1:0=4711")
    return TopicPartition(match["topic"], int(match["partition"])), match["to"]


def _wish(broker: Broker, tp: TopicPartition, to: str) -> Wish:
    try:
        partitions = broker.topics().get(tp.topic, 0)
        if tp.partition >= partitions:
            raise ConfigError(
                f"--set {tp}: Kafka has no such partition", hint=f"topic {tp.topic} has {partitions} partitions"
            )
        marks = broker.watermarks([tp])[tp]
    except Unavailable as error:
        raise RefusedError(str(error), hint="start the broker, or correct kafka.bootstrap.servers") from error
    if to == "earliest":
        return Wish(marks.low, marks)
    if to == "latest":
        return Wish(marks.stable, marks)
    if int(to) > marks.high:
        raise ConfigError(
            f"--set {tp}={to}: Kafka ends at {marks.high}",
            hint=f"records up to {to} would never be ingested; give {marks.high} or less, or latest",
        )
    return Wish(int(to), marks)


def _refuse_members(broker: Broker, group_id: str) -> None:
    """Refuse while the group has members, and if Kafka does not say whether it has any."""
    try:
        group = broker.group(group_id)
        why = "the cluster does not support the request"
    except RefusedError as error:
        group, why = None, error.message
    except Unavailable as error:
        group, why = None, str(error)
    if group is None:
        raise RefusedError(
            f"whether group {group_id} has members is not known, nothing was changed ({why})",
            hint="grant DESCRIBE on the group, or stop every ingestor of this group and give --force",
        )
    if group.members:
        count = f"{len(group.members)} member{'s' if len(group.members) > 1 else ''}"
        raise ConfigError(
            f"group {group_id} has {count} ({group.shown}), nothing was changed",
            hint=(
                "stop its ingestors first (a killed one counts until its session times out); "
                "with --force the offsets are set while they run, and they continue there"
            ),
        )


def _set(
    settings: Settings, route: Route, broker: Broker, wanted: Mapping[TopicPartition, Wish], dialogue: Dialogue
) -> None:
    there = open_if_there(settings, route, broker)  # a missing table is created only after the confirmation
    before = there.committer.known(wanted) if there is not None else dict.fromkeys(wanted)
    rows = _rows_at_risk(there.table, wanted, before) if there is not None else {}
    _refuse_doubling(route, wanted, rows)
    for tp, wish in wanted.items():
        _warn_of_what_is_passed(tp, wish, before[tp], rows.get(tp), dialogue)
    changes = {tp: f"{tp}: {_shown(before[tp])} → {wish.position}" for tp, wish in wanted.items()}
    if not dialogue.confirm(f"Next offsets of table {route.table}: {', '.join(changes.values())}. Go ahead?"):
        raise ConfigError("nothing was changed", hint="answer y, or give --yes")
    opened = there or open_route(settings, route, broker)
    txns = {tp: txn_before(wish.position) for tp, wish in wanted.items()}
    version = _commit(settings, route, broker, opened, txns, before, Answer.SET)
    for change in changes.values():
        dialogue.tell(f"{change}, in version {version} of table {route.table}")


def _commit(
    settings: Settings,
    route: Route,
    broker: Broker,
    opened: OpenRoute,
    txns: Mapping[TopicPartition, int],
    before: Mapping[TopicPartition, int | None],
    answer: Answer,
) -> int:
    """Set txns, as the answer to what the guards refuse of these partitions; return the version."""
    info = {
        "app_id": settings.app_id,
        "route": route.name,
        "operation_kind": "set",
        "topic_ids": broker.topic_ids({tp.topic for tp in txns}),
    }
    try:
        return opened.committer.commit(set_positions(txns, before, answer=answer), info).version
    except Fenced as error:
        msg = f"an ingestor committed meanwhile ({error})"
        raise RefusedError(msg, hint="stop the ingestors of this app_id first, then set the offsets") from error


def accept_removal(settings: Settings, version: int, dialogue: Dialogue, *, force: bool = False) -> None:
    """Accept that a log entry removed rows: the partitions continue at their txns, and the rows stay removed."""
    broker = Broker(settings.kafka)
    if not force:
        _refuse_members(broker, settings.kafka["group.id"])
    waiting = {}
    for name, route in settings.routes.items():
        opened = open_if_there(settings, route, broker)
        if opened is not None and (found := opened.committer.unanswered())[1]:
            waiting[name] = (opened, *found)
    answered = [name for name, (_, at, _) in waiting.items() if at == version]
    if not answered:
        shown = ", ".join(f"route {name}: {at}" for name, (_, at, _) in waiting.items()) or "none does"
        raise ConfigError(
            f"--accept {version}: no route waits for an answer about log entry {version}",
            hint=f"give the version that the refusal names ({shown})",
        )
    for name in answered:
        opened, _, tps = waiting[name]
        table = settings.routes[name].table
        if not dialogue.confirm(
            f"Table {table}: the rows that log entry {version} removed are not read again, {len(tps)} partitions "
            "go on where they stand. Go ahead?"
        ):
            raise ConfigError("nothing was changed", hint="answer y, or give --yes")
        before = opened.committer.known(tps)
        txns = {tp: txn for tp, txn in before.items() if txn is not None}
        landed = _commit(settings, settings.routes[name], broker, opened, txns, before, Answer.ACCEPT)
        dialogue.tell(f"{len(tps)} partitions go on where they stand, in version {landed} of table {table}")


def _rows_at_risk(
    table: RawTable, wanted: Mapping[TopicPartition, Wish], before: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """Return the last row of each partition that goes back, or that has no txn of ours."""
    back = [tp for tp, wish in wanted.items() if (txn := before[tp]) is None or wish.position <= txn]
    return table.last_offsets(back)


def _refuse_doubling(
    route: Route, wanted: Mapping[TopicPartition, Wish], last_rows: Mapping[TopicPartition, int]
) -> None:
    """Refuse a position at or before an existing row, whichever process committed it: it would be doubled."""
    for tp, last in last_rows.items():
        position = wanted[tp].position
        if last >= position:
            rows = f"stream_topic = '{tp.topic}' AND stream_partition = {tp.partition}"
            msg = f"table {route.table} still holds {tp} up to offset {last}: reading from {position} would double rows"
            raise ConfigError(
                msg, hint=f"delete those rows first (WHERE {rows} AND stream_offset >= {position}), then set the offset"
            )


def _warn_of_what_is_passed(
    tp: TopicPartition, wish: Wish, txn: int | None, last_row: int | None, dialogue: Dialogue
) -> None:
    """Warn of offsets that would be skipped although Kafka still has them."""
    known = position_after(txn if txn is not None else last_row)
    first = wish.marks.low if known is None else max(known, wish.marks.low)
    if first < wish.position:
        count = wish.position - first
        offsets = f"offset {first}" if count == 1 else f"offsets {first} to {wish.position - 1} ({count:,})"
        dialogue.warn(f"{tp}: {offsets} will not be landed, though Kafka still has {'it' if count == 1 else 'them'}")


def _shown(txn: int | None) -> str:
    return "never committed" if txn is None else str(position_after(txn))
