"""Quarantine tables as the Spark jobs write them, and processes that are stopped at a chosen step of `ingestor dlq`."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import yaml
from deltalake import DeltaTable, write_deltalake

from ingestor.config.load import load
from ingestor.dead_letters.letters import SCHEMA
from ingestor.records import Coordinate
from tests.support.process.child import ENDS_WITH_PARENT
from tests.support.process.command import write_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from confluent_kafka import Message

    from ingestor.config.settings import Settings

ROUTE = "events"
SEPTEMBER_2001_MS = 1_000_000_000_000

# Stops itself at the nth call of one method, before or after it, as if somebody did so from outside.
_STOPPED = f"""{ENDS_WITH_PARENT}
import functools, importlib
module, _, path = sys.argv[1].partition(":")
when, number, nth, rows = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
owner_name, _, method = path.partition(".")
owner = getattr(importlib.import_module(module), owner_name)
original, calls = getattr(owner, method), []

@functools.wraps(original)
def stopping(*args, **kwargs):
    calls.append(None)
    if when == "before" and len(calls) == nth:
        os.kill(os.getpid(), number)
    result = original(*args, **kwargs)
    if when == "after" and len(calls) == nth:
        os.kill(os.getpid(), number)
    return result

setattr(owner, method, stopping)
from ingestor.dead_letters import portions
portions._ROWS_MAX = rows
from ingestor.cli import main
sys.argv = ["ingestor", *sys.argv[6:]]
main()
"""


def letter(topic: str, partition: int, offset: int, **columns: Any) -> dict[str, Any]:
    """Return a row; what is not given is as in most of them."""
    row = {
        "stream_topic": topic,
        "stream_partition": partition,
        "stream_offset": offset,
        "message_timestamp": (SEPTEMBER_2001_MS + offset) * 1000,
        "message_payload": b"%d of %d" % (offset, partition),
        "message_key": b"key %d" % offset,
        "message_headers": None,
        "message_timestamp_type": None,
        "error_reason": "malformed",
        "error_class": "MalformedRecord",
        "error_message": "it does not fit",
        "processing_version": "1.0",
        "replayed_at": None,
    }
    unknown = columns.keys() - row.keys()
    assert not unknown, unknown
    return {**row, **columns}


@dataclass
class Shop:
    """One route with a quarantine table of its own."""

    folder: Path
    bootstrap: str
    topic: str
    config: Path
    document: dict[str, Any] = field(repr=False)

    @property
    def table(self) -> Path:
        """Where the quarantine table lies."""
        return self.folder / "table-quarantine"

    @property
    def dead(self) -> str:
        """The dead letter topic."""
        return f"{self.topic}-dlq"

    def settings(self) -> Settings:
        """Return the configuration as it is loaded."""
        return load(self.config)

    def configure(self, **sections: Any) -> Self:
        """Set whole sections of the configuration."""
        self.document |= sections
        self.config.write_text(yaml.safe_dump(self.document, sort_keys=False))
        return self

    def quarantine(self, *rows: Mapping[str, Any], table: pa.Table | None = None) -> int:
        """Append rows in one commit; return its version."""
        columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
        content = pa.table(columns, schema=SCHEMA) if table is None else table
        write_deltalake(self.table, content, mode="append")
        return DeltaTable(self.table).version()

    def letters(self, count: int, *, partition: int = 0, first: int = 0) -> list[dict[str, Any]]:
        """Return rows of one partition."""
        return [letter(self.topic, partition, first + number) for number in range(count)]

    def rows(self) -> list[dict[str, Any]]:
        """Return what the table holds, in order."""
        found = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: (row["stream_topic"], row["stream_partition"], row["stream_offset"]))

    def replayed(self) -> set[Coordinate]:
        """Return the letters that are marked as replayed."""
        coordinates = ("stream_topic", "stream_partition", "stream_offset")
        return {Coordinate(*(row[name] for name in coordinates)) for row in self.rows() if row["replayed_at"]}


def open_shop(folder: Path, bootstrap: str, topic: str, **sections: Any) -> Shop:
    """Return a route over a topic, to which nothing bad has come yet."""
    config = write_config(folder, bootstrap, topic, retry={"base_seconds": 0.1}, occ={"base_seconds": 0.05})
    shop = Shop(folder, bootstrap, topic, config, yaml.safe_load(config.read_text()))
    return shop.configure(parse={ROUTE: {}}, **sections)


def headers(message: Message) -> dict[str, bytes | None]:
    """Return a message's headers; of equal names the last."""
    found: Any = message.headers() or ()
    return dict(found)


class Stopped:
    """`ingestor` in a process that kills or holds itself at a step; gone with the `with` block."""

    def __init__(
        self,
        step: str,
        *arguments: object,
        when: str = "after",
        number: signal.Signals = signal.SIGKILL,
        nth: int = 1,
        rows: int = 5_000,
    ) -> None:
        """Start it; `step` names a method: `dead_letters.publish:Publisher._note`."""
        place = [f"ingestor.{step}", when, str(int(number)), str(nth), str(rows)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _STOPPED, *place, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def killed(self, seconds_max: float = 60) -> None:
        """Wait until it has killed itself."""
        said, _ = self.process.communicate(timeout=seconds_max)
        assert self.process.returncode == -signal.SIGKILL, f"it ended with {self.process.returncode}:\n{said}"

    def ended(self, seconds_max: float = 60) -> tuple[int, str]:
        """Wait until it has ended by itself; return its exit code and what it said."""
        said, _ = self.process.communicate(timeout=seconds_max)
        return self.process.returncode, said

    @property
    def held(self) -> bool:
        """Whether it holds still."""
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return state.stdout.startswith("T")

    def go_on(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def origins(messages: Sequence[Message]) -> list[Coordinate]:
    """Return which records dead letters were made of, by their headers."""
    found = []
    for message in messages:
        said = {name: (value or b"").decode() for name, value in headers(message).items()}
        parts = [said[f"dlq.original.{part}"] for part in ("topic", "partition", "offset")]
        found.append(Coordinate(parts[0], int(parts[1]), int(parts[2])))
    return found
