"""How fresh a table is under steady traffic, what memory does over time, and how several ingestors share one table.

Real `ingestor run` processes, one producer beside them. A record's age is the time from its Kafka timestamp to the
moment when the log entry that holds it appears in the table's folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import image, report
from bench.options import Sizes
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

PARTITIONS = 24
_TOPIC = "steady"
_READY_SECONDS_MAX = 60.0
_DRAIN_SECONDS_MAX = 120.0
_OLDEST_SHOWN = 5
_WARM_UP_SECONDS = 30


@dataclass(slots=True)
class Member:
    """One ingestor: its process, its log, and its memory second by second."""

    process: subprocess.Popen[bytes]
    log: Path
    rss_mib: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def sample(self) -> None:
        """Look at what the process uses."""
        seen = psutil.Process(self.process.pid)
        times = seen.cpu_times()
        self.cpu_seconds = times.user + times.system
        self.rss_mib.append(seen.memory_info().rss / (1 << 20))

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log's events of one name."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if event["event"] == name]


def run(chosen: Namespace, bootstrap: str, folder: Path) -> dict[str, Any]:
    """Let members ingest while a producer sends; return what was measured."""
    _warm_up(chosen, bootstrap)
    topics.create(bootstrap, _TOPIC, partitions=PARTITIONS)
    config = folder / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "app_id": "steady",
                "kafka": {
                    "bootstrap.servers": bootstrap,
                    "group.id": "steady",
                    "partition.assignment.strategy": "cooperative-sticky",
                },
                "routes": {
                    "records": {"topics": [_TOPIC], "table": "table", "flush": {"seconds": chosen.flush_seconds}}
                },
                "http": {"port": 0},
                "log": {"format": "json"},
            }
        )
    )
    members: list[Member] = []
    try:
        members += [_start(config, folder / f"member-{number}.log") for number in range(chosen.members)]
        _wait_until_assigned(members)
        arrived = _send_and_sample(chosen, bootstrap, members)
        _wait_until_landed(folder / "table", chosen.per_second * chosen.seconds)
    finally:
        for member in members:
            member.process.send_signal(signal.SIGTERM)
        codes = [member.process.wait(60) for member in members]
    if any(codes):
        raise RuntimeError(f"members ended with {codes}; see {members[0].log.read_text()[-2000:]}")
    return {**_measure(chosen, folder / "table", members), "arrival_seconds": arrived}


def _warm_up(chosen: Namespace, bootstrap: str) -> None:
    """Let the broker's JVM compile what it will need: else records wait for it, not for us."""
    report.say(f"warming up the broker for {_WARM_UP_SECONDS} s")
    topics.create(bootstrap, "warm-up", partitions=PARTITIONS)
    sizes = (chosen.per_second, _WARM_UP_SECONDS, PARTITIONS)
    records = chosen.per_second * _WARM_UP_SECONDS
    with (
        _child("trickle", bootstrap, "warm-up", chosen.size, *sizes) as sender,
        _child("arrive", bootstrap, "warm-up", records, PARTITIONS, chosen.flush_seconds) as reader,
    ):
        for child in (sender, reader):
            child.communicate(timeout=_DRAIN_SECONDS_MAX)
            if child.returncode:
                raise RuntimeError(f"a program to warm up the broker ended with {child.returncode}")


def _start(config: Path, log: Path) -> Member:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "ingestor", "run", str(config)]
        environ = {**os.environ, **image.environ()}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ)
        return Member(process, log)


def _wait_until_assigned(members: Sequence[Member]) -> None:
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while True:
        held = [sum(placed["count"] for placed in member.events("placed")) for member in members]
        if all(held) and sum(held) >= PARTITIONS:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions placed after {_READY_SECONDS_MAX:.0f} s: {held}")
        time.sleep(0.2)


@contextlib.contextmanager
def _child(program: str, bootstrap: str, topic: str, *sizes: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.children", program, bootstrap, topic, *map(str, sizes)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()  # it has ended, unless something went wrong


def _send_and_sample(chosen: Namespace, bootstrap: str, members: Sequence[Member]) -> dict[str, float]:
    """Let records be sent, look at the members meanwhile; return how old records were when a bare consumer had them."""
    records = chosen.per_second * chosen.seconds
    with (
        _child("arrive", bootstrap, _TOPIC, records, PARTITIONS, chosen.flush_seconds) as bare,
        _child("trickle", bootstrap, _TOPIC, chosen.size, chosen.per_second, chosen.seconds, PARTITIONS) as producer,
    ):
        shown = time.monotonic()
        while producer.poll() is None:
            time.sleep(1)
            for member in members:
                member.sample()
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                report.say(f"{len(members[0].rss_mib)} of {chosen.seconds} s, {members[0].rss_mib[-1]:.0f} MiB")
        output, _ = bare.communicate(timeout=_DRAIN_SECONDS_MAX)
    if producer.returncode or bare.returncode:
        raise RuntimeError(f"the producer ended with {producer.returncode}, the bare consumer with {bare.returncode}")
    found: dict[str, float] = json.loads(output)
    return found


def _entries(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def _adds(entry: Path) -> list[dict[str, Any]]:
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    return [action["add"] for action in actions if "add" in action]


def _wait_until_landed(table: Path, rows: int) -> None:
    deadline = time.monotonic() + _DRAIN_SECONDS_MAX
    landed, seen = 0, 0
    while landed < rows:
        entries = _entries(table)
        landed += sum(json.loads(add["stats"])["numRecords"] for entry in entries[seen:] for add in _adds(entry))
        seen = len(entries)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{landed} rows landed of {rows}")
        time.sleep(0.2)


def _ages(table: Path, entry: Path) -> np.ndarray[Any, Any]:
    """Return how old the rows of a log entry were when it appeared."""
    visible_micros = entry.stat().st_mtime_ns // 1000
    found = [np.empty(0)]
    for add in _adds(entry):
        column = pq.read_table(table / add["path"], columns=["message_timestamp"])["message_timestamp"]
        found.append((visible_micros - pc.cast(column, "int64").to_numpy()) / 1e6)
    return np.concatenate(found)


def _oldest(ages: Mapping[int, np.ndarray[Any, Any]], commits: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return for the commits with the oldest records where their seconds went.

    The newest record of a commit waits for nothing but encoding, syncing and the commit: where it is much older than
    these took, records came late or the process stood still.
    """
    steps = {commit["version"]: commit for commit in commits}
    worst = sorted(ages, key=lambda version: -float(ages[version].max()))[:_OLDEST_SHOWN]
    return [
        {
            "version": version,
            "rows": len(ages[version]),
            "oldest": float(ages[version].max()),
            "newest": float(ages[version].min()),
            "write": steps[version]["write_seconds"],
            "commit": steps[version]["seconds"],
        }
        for version in worst
    ]


def _measure(chosen: Namespace, table: Path, members: Sequence[Member]) -> dict[str, Any]:
    ages = {int(entry.stem): found for entry in _entries(table) if (found := _ages(table, entry)).size}
    age = np.concatenate(list(ages.values()))
    commits = [event for member in members for event in member.events("committed")]
    seconds = np.array([event["seconds"] for event in commits])
    rows = np.array([sum(event["rows"] for event in member.events("committed")) for member in members])
    quarter = max(1, len(members[0].rss_mib) // 4)
    return {
        "records": len(age),
        "age_seconds": {"p50": _at(age, 50), "p99": _at(age, 99), "max": float(age.max())},
        "commits": len(commits),
        "commit_seconds": {"p50": _at(seconds, 50), "p99": _at(seconds, 99), "max": float(seconds.max())},
        "conflicts": sum(event["conflicts"] for event in commits),
        "slowest_share_of_mean": float(rows.min() / rows.mean()),
        "rss_mib": {
            "first_quarter": max(max(member.rss_mib[:quarter]) for member in members),
            "last_quarter": max(max(member.rss_mib[-quarter:]) for member in members),
        },
        "oldest": _oldest(ages, commits),
        "cpu_share_of_a_core": sum(member.cpu_seconds for member in members) / len(members) / chosen.seconds,
    }


def _at(values: np.ndarray[Any, Any], percent: float) -> float:
    return float(np.percentile(values, percent))


def row(chosen: Namespace, found: dict[str, Any]) -> list[str]:
    """Return what was measured as a row of a table."""
    age, commit, rss = found["age_seconds"], found["commit_seconds"], found["rss_mib"]
    return [
        f"{chosen.members} for {chosen.seconds} s",
        f"{chosen.per_second:,}",
        *(f"{age[name]:.2f}" for name in ("p50", "p99", "max")),
        f"{found['arrival_seconds']['p99']:.2f}, {found['arrival_seconds']['max']:.2f}",
        f"{found['commits']:,}",
        f"{commit['p99']:.3f}",
        f"{found['conflicts']:,}",
        f"{found['slowest_share_of_mean']:.2f}",
        f"{rss['first_quarter']:.0f}, {rss['last_quarter']:.0f}",
        f"{found['cpu_share_of_a_core']:.0%}",
    ]


_HEADS = (
    "ingestors",
    "records/s",
    "age s, p50",
    "p99",
    "most",
    "on arrival, p99, most",
    "commits",
    "commit s, p99",
    "conflicts",
    "slowest of mean",
    "MiB, first and last quarter",
    "CPU each",
)


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("steady", "Ingest steady traffic: freshness, memory over time, several ingestors on one table.")
    sizes.add("seconds", 60, "how long to send")
    sizes.add("per_second", 5_000, "records per second")
    sizes.add("size", 300, "bytes of a payload")
    sizes.add("members", 1, "ingestors in the group")
    sizes.add("flush_seconds", 1, "flush.seconds of the route")
    chosen = sizes.parse(arguments)
    report.say("starting a broker")
    with Cluster(measured=True) as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        found = run(chosen, cluster.bootstrap, Path(folder))
    report.show(
        f"Steady traffic of {chosen.size} B records, a flush every {chosen.flush_seconds} s",
        _HEADS,
        [row(chosen, found)],
    )
    heads = ("version", "rows", "oldest", "newest", "write", "commit")
    table = [
        [f"{each[head]:,}" if head in heads[:2] else f"{each[head]:.2f}" for head in heads] for each in found["oldest"]
    ]
    report.show(
        "The commits with the oldest records: ages when they appeared, and what their steps took, in s", heads, table
    )
    path = report.save("steady", vars(chosen), **found)
    report.say(f"details in {path.parent.name}/{path.name}")
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
