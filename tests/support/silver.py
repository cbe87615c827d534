"""Raw tables for the Spark jobs, the configurations that parse them, and what came out, read without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable

from ingestor.config.load import load
from ingestor.records import RawSchema, TopicPartition
from spark_jobs.plan import plan
from spark_jobs.plan.route import route_of
from tests.support.rawtables import Record, TableMaker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from spark_jobs.plan.route import Route

TP = TopicPartition("events", 0)
MARCH_2026_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
HOUR_MS = 3_600_000
DAY_SECONDS = 86_400
DDL = "user_id STRING, amount DOUBLE, cob STRING, request_id STRING"


@dataclass
class Lake:
    """One route in a folder: its raw table, written as the ingestor writes, and its configuration."""

    folder: Path
    extras: tuple[str, ...] = ()
    parse: dict[str, Any] = field(default_factory=dict)
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.maker = TableMaker(self.folder / "raw", RawSchema(self.extras))

    def land(self, *payloads: bytes | None, hours: Sequence[float] | None = None, tp: TopicPartition = TP) -> None:
        """Append a commit of one file; `hours` after the first of March gives each record its time."""
        times = [0.0] * len(payloads) if hours is None else hours
        rows = [
            Record(self.next_offset + at, payload, tp, timestamp_ms=MARCH_2026_MS + int(times[at] * HOUR_MS))
            for at, payload in enumerate(payloads)
        ]
        self.next_offset += len(rows)
        self.maker.flush(rows)

    def document(self, **parse: Any) -> dict[str, Any]:
        """Return the configuration, with other settings of `parse`."""
        return {
            "app_id": "shop",
            "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"},
            "routes": {"events": {"topics": ["events"], "table": "raw", "extra_columns": list(self.extras)}},
            "parse": {"events": {"schema": DDL, **self.parse, **parse}},
        }

    def config(self, **parse: Any) -> Path:
        """Write the configuration; return its path."""
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.document(**parse), sort_keys=False))
        return path

    def route(self, **parse: Any) -> Route:
        """Return the route as the jobs get it."""
        loaded = load(self.config(**parse))
        return route_of(loaded, "events", plan.make("events", loaded.parse["events"]))

    def silver(self, *columns: str) -> list[Any]:
        """Return silver's rows in the order of their offsets: one column as values, several as tuples."""
        return self._rows("raw-silver", "stream_offset", columns)

    def quarantine(self, *columns: str) -> list[Any]:
        """Return quarantine's rows, likewise."""
        return self._rows("raw-quarantine", "stream_offset", columns)

    def _rows(self, table: str, order: str, columns: Sequence[str]) -> list[Any]:
        rows = self.table(table).to_pyarrow_table().sort_by(order).to_pylist()
        if len(columns) == 1:
            return [row[columns[0]] for row in rows]
        return [tuple(row[name] for name in columns) for row in rows] if columns else rows

    def table(self, name: str) -> DeltaTable:
        """Return a table of the lake, opened by delta-rs."""
        return DeltaTable(str(self.folder / name))


def merge(lake: Lake, rows: Mapping[int, bytes | None]) -> None:
    """Change raw by a foreign hand, in one log entry: offsets get other payloads, are inserted, or deleted (None)."""
    raw = lake.table("raw")
    like = raw.to_pyarrow_table().slice(0, 1).to_pylist()[0]
    source = pa.Table.from_pylist(
        [{**like, "stream_offset": offset, "message_payload": payload} for offset, payload in rows.items()],
        pa.schema(raw.schema().to_arrow()),
    )
    merging = raw.merge(source, "r.stream_offset = s.stream_offset", source_alias="s", target_alias="r")
    merging = merging.when_matched_delete("s.message_payload IS NULL").when_matched_update_all()
    merging.when_not_matched_insert_all().execute()


def event(user: str | None = "u1", **more: Any) -> bytes:
    """Return a JSON record."""
    return json.dumps({"user_id": user, **more}).encode()


def balance(document: str | Mapping[str, int]) -> tuple[int, ...]:
    """Return raw, silver, quarantine, duplicates and tombstones."""
    found = json.loads(document) if isinstance(document, str) else document
    return tuple(found[name] for name in ("raw", "silver", "quarantine", "duplicates", "tombstones"))


def account(lake: Lake, *, key: str | None = None, ended: bool = True) -> None:
    """Hold the tables against raw, by delta-rs and Python alone: each raw row is in exactly one place.

    A row that is nowhere must be a tombstone, or share its key with a row of silver of the same day; but while a job
    has not ended, it may have to be parsed yet.
    """
    raw = {row["stream_offset"]: row for row in lake.table("raw").to_pyarrow_table().to_pylist()}
    silver, quarantine = lake.silver(), lake.quarantine()
    places = [row["stream_offset"] for row in (*silver, *quarantine)]
    twice = sorted({offset for offset in places if places.count(offset) > 1})
    assert not twice, f"in two places: {twice}"
    assert not set(places) - raw.keys(), f"from nowhere: {sorted(set(places) - raw.keys())}"
    if not ended:
        return
    kept = {row[key]: row["message_timestamp"] for row in silver} if key is not None else {}
    for offset in sorted(raw.keys() - set(places)):
        payload, time = raw[offset]["message_payload"], raw[offset]["message_timestamp"]
        if payload is None:
            continue
        mine = json.loads(payload).get(key) if key is not None else None
        assert mine in kept, f"offset {offset} is lost"
        assert abs(kept[mine] - time).total_seconds() <= DAY_SECONDS, f"offset {offset} is no duplicate"
