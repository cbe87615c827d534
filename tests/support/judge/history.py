"""The judge: does a table hold exactly what Kafka committed? Shares no code with `ingestor`.

It reads the local `_delta_log` and the Parquet files by itself, and a topic from beginning to end as
a reader of committed records. What it asserts, whatever happened before:

- every expected record stands in the table once, with equal bytes, and no other record does;
- within a file a partition's offsets rise, and no row stands beyond its partition's txn;
- txns only rise from entry to entry, and an entry's rows lie in (previous txn, new txn];
- a commit's last row of a partition is the one that its txn names;
- every live file is there with the size and rows that the log says, and none was added twice.

What an entry did can only be judged while its JSON file is there; entries that log cleanup took are
known by their checkpoint, and their rows are judged as a whole.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    Coordinate = tuple[str, int, int]  # topic, partition, offset
    Partition = tuple[str, int]
    # Timestamp in ms (-1: none), key, value; then, if the table has them, headers.
    Content = tuple[Any, ...]

DEFAULT_TEMPLATE = "{app_id}/{topic}/{partition}"
_SHOWN = 10
_MILLISECONDS_MAX = 2**63 // 1000 - 1  # beyond, 64 bits of microseconds say nothing: null
_TIMEOUT_SECONDS = 60.0


def check_history(
    bootstrap: str,
    topics: Iterable[str],
    table_path: str | Path,
    app_id: str,
    *,
    template: str = DEFAULT_TEMPLATE,
    lost: Collection[Coordinate] = (),
    complete: bool = True,
) -> int:
    """Assert that a table holds every committed record of topics exactly once; return how many."""
    expected = read_topics(bootstrap, topics)
    check_table(expected, table_path, app_id, template=template, lost=lost, complete=complete)
    return len(expected)


def check_table(
    expected: Mapping[Coordinate, Content],
    table_path: str | Path,
    app_id: str,
    *,
    template: str = DEFAULT_TEMPLATE,
    lost: Collection[Coordinate] = (),
    complete: bool = True,
) -> None:
    """Assert that a table holds these records exactly once, and that its log is in order.

    `lost` are records that must not be there: declared data loss. Without `complete` only records
    up to each partition's txn are expected, as while an ingestor still runs.
    """
    root = Path(table_path)
    log = read_log(root)
    rows = [_File.read(root, path, add, log) for path, add in sorted(log.live.items())]
    tps = {tp for file in rows for tp in file.offsets} | {key[:2] for key in expected}
    names = {_app_id(template, app_id, tp): tp for tp in tps}
    txns = {names[name]: txn for name, txn in log.txns.items() if name in names}
    problems = [
        *log.problems,
        *_wrong_chain(log, rows, names),
        *_wrong_files(rows),
        *_beyond_txn(rows, txns),
        *_wrong_records(expected, rows, txns, set(lost), complete=complete),
    ]
    assert not problems, _message(root, log.version, problems)


def _app_id(template: str, app_id: str, tp: Partition) -> str:
    text = template.replace("{topic}", tp[0]).replace("{partition}", str(tp[1]))
    return text.replace("{app_id}", app_id)


def _message(root: Path, version: int, problems: list[str]) -> str:
    more = len(problems) - _SHOWN
    shown = "\n  ".join(problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else []))
    return f"{root.name} at version {version} is wrong in {len(problems)} ways:\n  {shown}"


# --- Kafka ---


def read_topics(bootstrap: str, topics: Iterable[str]) -> dict[Coordinate, Content]:
    """Return every committed record that the topics hold now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "history",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        },
    )
    try:
        return _read_all(consumer, set(topics))
    finally:
        consumer.close()


def _read_all(consumer: Consumer, topics: set[str]) -> dict[Coordinate, Content]:
    metadata = consumer.list_topics(timeout=_TIMEOUT_SECONDS).topics
    waiting = {(topic, number) for topic in topics for number in metadata[topic].partitions}
    consumer.assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in waiting])
    found: dict[Coordinate, Content] = {}
    silent_since = time.monotonic()
    while waiting:
        messages = consumer.consume(10_000, timeout=0.1)
        if messages:
            silent_since = time.monotonic()
        silent = time.monotonic() - silent_since
        assert silent < _TIMEOUT_SECONDS, f"Kafka falls silent before {sorted(waiting)} end"
        for message in messages:
            tp = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                content = (message.timestamp()[1], message.key(), message.value(), message.headers())
                found[message.topic() or "", message.partition() or 0, message.offset() or 0] = content
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(tp)
            else:
                raise AssertionError(error)
    return found


# --- the log ---


@dataclass
class _Entry:
    version: int
    kind: str = "flush"
    ours: bool = False
    txns: dict[str, int] = field(default_factory=dict)
    files: int = 0  # with new data


@dataclass
class Log:
    """What a table's log says: live files, txns, and each entry that is still there."""

    version: int = -1
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    base: dict[str, int] | None = field(default_factory=dict)  # txns before `entries`; None: unknown
    entries: list[_Entry] = field(default_factory=list)
    added: set[str] = field(default_factory=set)
    landed_by: dict[str, int] = field(default_factory=dict)  # files with new data
    problems: list[str] = field(default_factory=list)


def read_log(root: Path) -> Log:
    """Read a local table's log: its newest checkpoint if entries are gone, and every entry left."""
    folder = root / "_delta_log"
    present = {int(path.stem): path for path in folder.glob("*.json") if re.fullmatch(r"\d{20}", path.stem)}
    checkpoints = sorted({int(path.name[:20]) for path in folder.glob("*.checkpoint*.parquet")})
    assert present, f"{folder} has no log entry"
    newest = max(present)
    first = newest
    while first - 1 in present:
        first -= 1
    log = Log()
    start = 0
    if first > 0:
        usable = [version for version in checkpoints if first - 1 <= version <= newest]
        assert usable, f"log entries before {first} are gone, and no checkpoint knows them"
        start = usable[0] + 1
        _load_checkpoint(folder, usable[0], log)
        log.base = dict(log.txns) if usable[0] == first - 1 else None
    for version in range(first, newest + 1):
        actions = [json.loads(line) for line in present[version].read_text().splitlines() if line]
        assert actions, f"log entry {version} is empty"
        _apply(log, version, actions, state=version >= start)
    log.version = newest
    return log


def _load_checkpoint(folder: Path, version: int, log: Log) -> None:
    for path in sorted(folder.glob(f"{version:020d}.checkpoint*.parquet")):
        for row in pq.read_table(path, columns=["add", "txn"]).to_pylist():
            if row["add"] and row["add"]["path"]:
                log.live[unquote(row["add"]["path"])] = row["add"]
            if row["txn"] and row["txn"]["appId"]:
                log.txns[row["txn"]["appId"]] = row["txn"]["version"]


def _apply(log: Log, version: int, actions: list[dict[str, Any]], *, state: bool) -> None:
    entry = _Entry(version)
    for action in actions:
        ((kind, body),) = action.items()
        if kind == "commitInfo":
            entry.kind = body.get("operation_kind", "flush")
            entry.ours = "operation_kind" in body
        elif kind == "txn":
            if body["appId"] in entry.txns:
                log.problems.append(f"version {version} has two txns of {body['appId']}")
            entry.txns[body["appId"]] = body["version"]
        elif kind == "add":
            _apply_add(log, entry, body, state=state)
        elif kind == "remove" and state:
            log.live.pop(unquote(body["path"]), None)
    if state:
        log.txns |= entry.txns
    log.entries.append(entry)


def _apply_add(log: Log, entry: _Entry, body: dict[str, Any], *, state: bool) -> None:
    path = unquote(body["path"])
    if path in log.added:
        log.problems.append(f"version {entry.version} adds {path} again")
    log.added.add(path)
    if body.get("dataChange", True):
        entry.files += 1
        log.landed_by[path] = entry.version
    if state:
        log.live[path] = body


# --- the files ---


@dataclass
class _File:
    path: str
    version: int | None  # the entry that landed its rows, if that is known
    records: pa.Table | None
    offsets: dict[Partition, list[int]]
    problems: list[str]

    @classmethod
    def read(cls, root: Path, path: str, add: dict[str, Any], log: Log) -> _File:
        file = cls(path, log.landed_by.get(path), None, {}, [])
        target = root / path
        if not target.exists():
            file.problems.append(f"live file {path} is not there")
            return file
        if target.stat().st_size != add["size"]:
            file.problems.append(f"{path} has {target.stat().st_size} bytes, not {add['size']}")
        try:
            with pa.OSFile(str(target)) as source:
                file.records = pq.ParquetFile(source).read()
        except (pa.ArrowException, OSError) as error:
            file.problems.append(f"{path} can't be read: {error}")
            return file
        rows = json.loads(add.get("stats") or "{}").get("numRecords")
        if rows is not None and rows != file.records.num_rows:
            file.problems.append(f"{path} has {file.records.num_rows} rows, not {rows}")
        for topic, partition, offset in file.coordinates():
            file.offsets.setdefault((topic, partition), []).append(offset)
        return file

    def coordinates(self) -> Iterator[Coordinate]:
        """Yield the coordinates of each row."""
        if self.records is None:
            return
        names = ("stream_topic", "stream_partition", "stream_offset")
        yield from zip(*(self.records.column(name).to_pylist() for name in names), strict=True)

    def contents(self) -> Iterator[tuple[Coordinate, Content]]:
        """Yield each row: timestamp in ms (-1: null), key, value, headers; `...` where not captured."""
        if self.records is None:
            return
        stamps = self.records.column("message_timestamp").cast(pa.int64()).to_pylist()
        milliseconds = [_milliseconds(stamp) for stamp in stamps]
        values = self.records.column("message_payload").to_pylist()
        captured = []
        for name in ("message_key", "message_headers"):
            there = name in self.records.column_names
            column = self.records.column(name).to_pylist() if there else [...] * len(values)
            captured.append(column)
        keys, headers = captured
        yield from zip(self.coordinates(), zip(milliseconds, keys, values, headers, strict=True), strict=True)


def _milliseconds(micros: int | None) -> int | float:
    """Return what Kafka says for a timestamp of the table; a fraction is no timestamp of Kafka's."""
    if micros is None:
        return -1
    return micros / 1000 if micros % 1000 else micros // 1000


# --- what must hold ---


def _wrong_chain(log: Log, files: list[_File], names: Mapping[str, Partition]) -> Iterator[str]:
    """Yield where txns fall, and rows outside the range of the entry that landed them."""
    by_version: dict[int, list[_File]] = {}
    for file in files:
        if file.version is not None:
            by_version.setdefault(file.version, []).append(file)
    before = dict(log.base or {})
    for entry in log.entries:
        for name, txn in entry.txns.items():
            was = before.get(name)
            if was is not None and txn <= was and entry.kind != "set":
                yield f"version {entry.version} moves the txn of {name} from {was} to {txn}"
        landed = by_version.get(entry.version, [])
        yield from _outside(entry, landed, before, names)
        if entry.ours and entry.kind == "flush" and len(landed) == entry.files:
            yield from _short(entry, landed, names)
        before |= entry.txns


def _outside(
    entry: _Entry, files: list[_File], before: Mapping[str, int], names: Mapping[str, Partition]
) -> Iterator[str]:
    ids = {tp: name for name, tp in names.items()}
    for file in files:
        for tp, offsets in file.offsets.items():
            txn = entry.txns.get(ids[tp])
            if txn is None:
                yield f"version {entry.version} landed rows of {tp} without a txn ({file.path})"
                continue
            was = before.get(ids[tp], -1)
            wrong = [offset for offset in offsets if not was < offset <= txn]
            if wrong:
                yield f"version {entry.version} landed {tp} {_ranges(wrong)}, not in ({was}, {txn}]"


def _short(entry: _Entry, files: list[_File], names: Mapping[str, Partition]) -> Iterator[str]:
    if any(file.records is None for file in files):
        return
    for name, txn in entry.txns.items():
        tp = names.get(name)
        if tp is None:
            continue  # another app_id's
        offsets = [offset for file in files for offset in file.offsets.get(tp, ())]
        last = max(offsets, default=-1)
        if last < txn:
            yield f"version {entry.version} sets {name} to {txn}, its last row is at {last}"


def _wrong_files(files: list[_File]) -> Iterator[str]:
    for file in files:
        yield from file.problems
        for tp, offsets in file.offsets.items():
            falls = [b for a, b in pairwise(offsets) if b <= a]
            if falls and file.version is not None:
                yield f"{file.path} holds {tp} out of order at {_ranges(falls)}"


def _beyond_txn(files: list[_File], txns: Mapping[Partition, int]) -> Iterator[str]:
    highest: dict[Partition, int] = {}
    for file in files:
        for tp, offsets in file.offsets.items():
            highest[tp] = max(highest.get(tp, -1), *offsets)
    for tp, offset in sorted(highest.items()):
        txn = txns.get(tp)
        if txn is None:
            yield f"{tp} has rows up to {offset}, and no txn"
        elif offset > txn:
            yield f"{tp} has rows up to {offset}, beyond its txn {txn}"


def _wrong_records(
    expected: Mapping[Coordinate, Content],
    files: list[_File],
    txns: Mapping[Partition, int],
    lost: set[Coordinate],
    *,
    complete: bool,
) -> Iterator[str]:
    count = Counter(key for file in files for key in file.coordinates())
    wanted = {key for key in expected if key not in lost and (complete or key[2] <= txns.get(key[:2], -1))}
    yield from _listed("more than once in the table", (key for key, n in count.items() if n > 1))
    yield from _listed("committed, but not in the table", wanted - count.keys())
    yield from _listed("in the table, but not committed", count.keys() - expected.keys())
    yield from _listed("in the table, but declared lost", count.keys() & lost)
    for file in files:
        for key, row in file.contents():
            if key in expected:
                yield from _differences(key, expected[key], row)


def _differences(key: Coordinate, kafka: Content, row: Content) -> Iterator[str]:
    names = ("timestamp", "key", "value", "headers")
    for name, theirs, ours in zip(names, kafka, row, strict=False):
        if ours is ...:
            continue
        mine, yours = ours, theirs
        if name == "headers":
            mine = [(header["key"], header["value"]) for header in ours or ()]
            yours = list(theirs or ())
        if name == "timestamp" and abs(theirs) > _MILLISECONDS_MAX:
            yours = -1
        if mine != yours:
            yield f"{key}: {name} is {_short_repr(mine)}, Kafka has {_short_repr(yours)}"


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


def _listed(what: str, keys: Iterable[Coordinate]) -> Iterator[str]:
    """Yield one line per partition."""
    by_partition: dict[Partition, list[int]] = {}
    for topic, partition, offset in sorted(keys):
        by_partition.setdefault((topic, partition), []).append(offset)
    for tp, offsets in by_partition.items():
        yield f"{tp} {_ranges(offsets)}: {what}"


def _ranges(offsets: Iterable[int]) -> str:
    """Spell offsets as ranges: `3-5, 9`."""
    runs: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if runs and runs[-1][1] == offset - 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else "")
