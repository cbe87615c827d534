"""`ingestor offsets`: where the table ends, where Kafka does, and a person's way to set where ingestion goes on.

Behind the last committed record there may be transaction markers and aborted records, which nobody will ever land. So
the lag is not taken from offsets alone: where the table is behind, Kafka is asked for the first committed record that
is left, and without one there is no lag. What the group has acknowledged would tell too, but only of an ingestor that
still runs, and for as long as Kafka keeps group offsets.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ingestor.breaker import Breaker
from ingestor.broker import Broker, Watermarks
from ingestor.committer import Committer, Occ, make_patience, system_rng
from ingestor.deltalog import txns_at
from ingestor.errors import ConfigError, Fenced, RefusedError, Unavailable
from ingestor.failures import classify
from ingestor.guards import Guards
from ingestor.ledger import position_after, txn_before
from ingestor.reader import first_committed
from ingestor.records import TopicPartition
from ingestor.routing import app_ids, matching
from ingestor.stager import set_positions
from ingestor.table import RawTable
from ingestor.table_open import open_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ingestor.settings import Route, Settings

_REQUEST = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+):(?P<partition>\d+)=(?P<to>\d+|earliest|latest)")


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One partition: the last offset landed (None: never), and what Kafka has."""

    route: str
    topic: str
    partition: int
    committed: int | None
    low: int
    high: int
    lag: int


def show(settings: Settings) -> list[PartitionOffsets]:
    """Return every partition of every route; the lag counts to the end for readers of committed records."""
    broker = Broker(settings.kafka)
    existing = _asking(broker.topics)
    rows = []
    for name, route in settings.routes.items():
        found = open_existing(route.table, settings.storage_options)
        known = app_ids(settings, route).read(txns_at(found[1], found[0])) if found else {}
        tps = [
            TopicPartition(topic, number)
            for topic in matching(route, existing)
            for number in range(existing.get(topic, 0))
        ]
        marks = _asking(lambda tps=tps: broker.watermarks(tps))  # type: ignore[misc]
        nexts = {tp: _next(known.get(tp), marks[tp]) for tp in tps}
        behind = {tp: (nexts[tp], marks[tp].stable) for tp in tps if nexts[tp] < marks[tp].stable}
        nexts |= _asking(lambda behind=behind: first_committed(settings.kafka, behind))  # type: ignore[misc]
        rows += [_row(name, tp, known.get(tp), marks[tp], nexts[tp]) for tp in tps]
    return rows


def _next(committed: int | None, marks: Watermarks) -> int:
    position = position_after(committed)
    return marks.low if position is None else max(marks.low, position)


def _row(route: str, tp: TopicPartition, committed: int | None, marks: Watermarks, left: int) -> PartitionOffsets:
    lag = max(0, marks.stable - left)
    return PartitionOffsets(route, tp.topic, tp.partition, committed, marks.low, marks.high, lag)


def as_json(rows: Sequence[PartitionOffsets]) -> str:
    """Return the partitions as one JSON object."""
    return json.dumps({"partitions": [asdict(row) for row in rows]})


def as_text(rows: Sequence[PartitionOffsets]) -> str:
    """Return the partitions as a table for people."""
    head = ("route", "topic", "partition", "committed", "low", "high", "lag")
    lines = [head, *(tuple("-" if value is None else str(value) for value in asdict(row).values()) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    left = 2  # names to the left, numbers to the right
    return "\n".join(
        "  ".join(
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def set_offsets(settings: Settings, requests: Sequence[str], *, confirm: Callable[[str], bool]) -> None:
    """Write txn-only commits, one per route, after asking; refuse what would double rows."""
    broker = Broker(settings.kafka)
    by_route: dict[str, dict[TopicPartition, int]] = {}
    for text in requests:
        tp, to = _parse(text)
        route = settings.route_of(tp.topic)
        if route is None:
            raise ConfigError(
                f"--set {text}: no route takes topic {tp.topic}", hint=f"routes: {', '.join(settings.routes)}"
            )
        positions = by_route.setdefault(route.name, {})
        if tp in positions:
            raise ConfigError(f"--set {text}: {tp} is set twice", hint="give each partition one offset")
        positions[tp] = _position(broker, tp, to)
    for name, positions in by_route.items():
        _set(settings, settings.routes[name], positions, confirm)


def _parse(text: str) -> tuple[TopicPartition, str]:
    match = _REQUEST.fullmatch(text)
    if match is None:
        raise ConfigError(f"--set {text}: not TOPIC:PARTITION=OFFSET", hint="for example --set user.events.v1:0=4711")
    return TopicPartition(match["topic"], int(match["partition"])), match["to"]


def _position(broker: Broker, tp: TopicPartition, to: str) -> int:
    partitions = _asking(broker.topics).get(tp.topic, 0)
    if tp.partition >= partitions:
        raise ConfigError(
            f"--set {tp}: Kafka has no such partition", hint=f"topic {tp.topic} has {partitions} partitions"
        )
    marks: Watermarks = _asking(lambda: broker.watermarks([tp]))[tp]
    if to == "earliest":
        return marks.low
    if to == "latest":
        return marks.stable
    if int(to) > marks.high:
        raise ConfigError(
            f"--set {tp}={to}: Kafka ends at {marks.high}",
            hint=f"records up to {to} would never be landed; give {marks.high} or less, or latest",
        )
    return int(to)


def _set(
    settings: Settings, route: Route, positions: Mapping[TopicPartition, int], confirm: Callable[[str], bool]
) -> None:
    exists = open_existing(route.table, settings.storage_options) is not None
    table = _open(settings, route) if exists else None  # one that is not there is made only after the answer
    before = app_ids(settings, route).look_up({} if table is None else table.txns, positions)
    if table is not None:
        _refuse_doubling(table, route, positions, before)
    changes = ", ".join(f"{tp}: {_shown(before[tp])} → {position}" for tp, position in positions.items())
    if not confirm(f"Next offsets of table {route.table}: {changes}. Go ahead?"):
        raise ConfigError("nothing was changed", hint="answer y, or give --yes")
    committer = _committer(settings, route, table or _open(settings, route))
    info = {"app_id": settings.app_id, "route": route.name, "operation_kind": "set"}
    txns = {tp: txn_before(position) for tp, position in positions.items()}
    try:
        committer.commit(set_positions(txns, before), info)
    except Fenced as error:
        msg = f"an ingestor committed meanwhile ({error})"
        raise RefusedError(msg, hint="stop the ingestors of this app_id first, then set the offsets") from error


def _open(settings: Settings, route: Route) -> RawTable:
    try:
        return RawTable(route.table, route.schema, settings.storage_options)
    except Exception as error:
        raise classify(error, doing=f"opening table {route.table}") from error


def _committer(settings: Settings, route: Route, table: RawTable) -> Committer:
    return Committer(
        table,
        Guards(route.name, route.table, app_ids(settings, route)),
        occ=Occ(route.occ.max_retries, route.occ.base_seconds, route.occ.max_seconds),
        patience=make_patience(
            max_retries=route.retry.max_retries,
            base_seconds=route.retry.base_seconds,
            max_seconds=route.retry.max_seconds,
            jitter=route.retry.jitter,
            breaker=Breaker(failures=5, open_seconds=60, successes=1, clock=time.monotonic),
            sleep=time.sleep,
            rng=system_rng(),
        ),
    )


def _refuse_doubling(
    table: RawTable,
    route: Route,
    positions: Mapping[TopicPartition, int],
    before: Mapping[TopicPartition, int | None],
) -> None:
    """Refuse to go before rows that are there, whoever landed them: they would be landed a second time."""
    back = {tp: position for tp, position in positions.items() if (txn := before[tp]) is None or position <= txn}
    for tp, last in table.last_offsets(back).items():
        if last >= back[tp]:
            rows = f"stream_topic = '{tp.topic}' AND stream_partition = {tp.partition}"
            msg = f"table {route.table} still holds {tp} up to offset {last}: reading from {back[tp]} would double rows"
            raise ConfigError(
                msg, hint=f"delete those rows first (WHERE {rows} AND stream_offset >= {back[tp]}), then set the offset"
            )


def _shown(txn: int | None) -> str:
    return "never committed" if txn is None else str(position_after(txn))


def _asking(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever was asked for
    try:
        return call()
    except Unavailable as error:
        raise RefusedError(str(error), hint="start the broker, or correct kafka.bootstrap.servers") from error
