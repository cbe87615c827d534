"""`ingestor offsets`: where the table ends, and where Kafka does.

After the last committed record there may be transaction markers and aborted records, which are never ingested. So the
lag is not computed from offsets alone: if the table is behind, the first committed record that is left is looked up in
Kafka, and without one the lag is 0. Group offsets would not do: they are only there while an ingestor runs, and for as
long as Kafka keeps them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ingestor.config.routing import app_ids, matching
from ingestor.delta.deltalog import txns_at
from ingestor.delta.open import open_existing
from ingestor.errors import RefusedError, Unavailable
from ingestor.kafka.broker import Broker, Watermarks
from ingestor.kafka.reader import first_committed
from ingestor.ledger import position_after
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingestor.config.settings import Settings


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One partition: the last committed offset (None: never), and Kafka's offsets."""

    route: str
    topic: str
    partition: int
    committed: int | None
    low: int
    high: int
    lag: int


def show(settings: Settings) -> list[PartitionOffsets]:
    """Return every partition of every route; the lag counts to the last stable offset."""
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
    left = 2  # columns that are aligned to the left
    return "\n".join(
        "  ".join(
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _asking(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the call's own type
    try:
        return call()
    except Unavailable as error:
        raise RefusedError(str(error), hint="start the broker, or correct kafka.bootstrap.servers") from error
