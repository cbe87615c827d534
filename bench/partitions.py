"""What many partitions cost: the first record after a start, and throughput beside that of a few partitions.

Each topic is filled and drained once, so that every partition has a committed offset; then it is filled again, and the
drain that is measured begins: where the table says, for all of them. Beside it the topic is only read, and dropped:
what many partitions cost there is librdkafka's and the broker's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import image, measure, report
from bench.options import Sizes
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from argparse import Namespace

_SIZE = 300
_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain of a topic whose partitions all have committed offsets."""

    partitions: int
    repetition: int
    records: int
    first_seconds: float  # from the start of the process to the first log entry with rows
    idle_seconds: float  # the same process with nothing to read
    wall_seconds: float
    cpu_seconds: float
    rss_mib: float
    read_per_second: float  # of all that is in the topic, by somebody who does nothing else

    @property
    def per_second(self) -> float:
        """Records per second, without starting up."""
        return self.records / max(1e-9, self.wall_seconds - self.idle_seconds)


class Bench:
    """A broker, and a table for each topic."""

    def __init__(self, bootstrap: str, folder: Path, records: int, run: int = 1) -> None:
        self._bootstrap = bootstrap
        self._run = run
        self._folder = folder
        self._records = records
        self._there: dict[int, int] = {}  # records in each topic

    def prepare(self, partitions: int) -> None:
        """Make a topic and give each of its partitions a committed offset."""
        topics.create(self._bootstrap, _topic(partitions), partitions=partitions)
        self._fill(partitions, 10 * partitions)
        self._drain(partitions)

    def run(self, partitions: int, repetition: int) -> Drained:
        """Measure a drain of new records."""
        idle, _ = self._drain(partitions)
        self._fill(partitions, self._records)
        cost, first = self._drain(partitions)
        found = Drained(
            partitions,
            repetition,
            self._records,
            first,
            idle.wall_seconds,
            cost.wall_seconds,
            cost.cpu_seconds - idle.cpu_seconds,
            cost.rss_mib,
            self._read(partitions),
        )
        report.say(
            f"{partitions:,} partitions: first rows after {first:.2f} s, {found.per_second:,.0f} records/s, "
            f"reading alone {found.read_per_second:,.0f}"
        )
        return found

    def _fill(self, partitions: int, records: int) -> None:
        arguments = ["produce", self._bootstrap, _topic(partitions), _SIZE, records, partitions, self._run]
        subprocess.run([sys.executable, "-m", "bench.children", *map(str, arguments)], check=True, timeout=_SECONDS_MAX)
        self._there[partitions] = self._there.get(partitions, 0) + records

    def _read(self, partitions: int) -> float:
        """Return how many records a second come where they are dropped at once."""
        there = self._there[partitions]
        arguments = ["read", self._bootstrap, _topic(partitions), there, partitions]
        command = [sys.executable, "-m", "bench.children", *arguments]
        ended = measure.run(command, seconds_max=_SECONDS_MAX, environ=image.environ())
        return float(there / json.loads(ended.last_line)["wall_seconds"])

    def _drain(self, partitions: int) -> tuple[measure.Cost, float]:
        """Drain a topic; return what it cost, and after how long the first rows were there."""
        name = _topic(partitions)
        config = self._folder / f"{name}.yaml"
        config.write_text(
            json.dumps(
                {
                    "app_id": name,
                    "kafka": {"bootstrap.servers": self._bootstrap, "group.id": name},
                    # A short flush, or the first rows would wait for a full file.
                    "routes": {"records": {"topics": [name], "table": name, "flush": {"seconds": 1}}},
                    "http": None,
                }
            )
        )
        started = time.time()
        command = [sys.executable, "-m", "ingestor", "run", config, "--once"]
        cost = measure.run(command, seconds_max=_SECONDS_MAX, environ=image.environ()).cost
        log = (self._folder / name / "_delta_log").glob("*.json")
        landed = sorted(
            at for entry in log if (at := entry.stat().st_mtime) >= started and '"add"' in entry.read_text()
        )
        return cost, landed[0] - started if landed else 0.0


def _topic(partitions: int) -> str:
    return f"partitions-{partitions}"


def _row(runs: list[Drained], few: list[Drained]) -> list[str]:
    ratios = [run.per_second / other.per_second for run, other in zip(runs, few, strict=True)]
    reading = [run.read_per_second / other.read_per_second for run, other in zip(runs, few, strict=True)]
    middle = statistics.median
    return [
        f"{runs[0].partitions:,}",
        f"{middle(run.first_seconds for run in runs):.2f}",
        f"{middle(run.per_second for run in runs):,.0f}",
        f"{middle(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{middle(run.read_per_second for run in runs):,.0f}",
        f"{middle(reading):.2f} ({min(reading):.2f} to {max(reading):.2f})",
        f"{middle(run.cpu_seconds * 1e6 / run.records for run in runs):.2f}",
        f"{max(run.rss_mib for run in runs):.0f}",
    ]


_HEADS = (
    "partitions",
    "s to the first rows",
    "records/s",
    "of the first row's",
    "reading alone",
    "of the first row's",
    "CPU us/record",
    "peak MiB",
)


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("partitions", "Drain topics of few and of many partitions that all have committed offsets.")
    sizes.add_list("partitions", "6,1000", "partitions of each topic")
    sizes.add("records", 1_000_000, "records per topic")
    sizes.add("run", 1, "records that one partition is sent before the next, as by a sticky partitioner")
    sizes.add("repeat", 3, "repetitions, interleaved")
    chosen: Namespace = sizes.parse(arguments)
    report.say("starting a broker")
    with Cluster(measured=True) as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        bench = Bench(cluster.bootstrap, Path(folder), chosen.records, chosen.run)
        for partitions in chosen.partitions:
            bench.prepare(partitions)
        runs = [bench.run(each, repetition) for repetition in range(chosen.repeat) for each in chosen.partitions]
    of = {each: [run for run in runs if run.partitions == each] for each in chosen.partitions}
    of_what = f"{chosen.records:,} records of {_SIZE} B, {chosen.run:,} in a row"
    title = f"Drain of {of_what}, medians of {chosen.repeat} repetitions"
    report.show(title, _HEADS, [_row(each, of[chosen.partitions[0]]) for each in of.values()])
    path = report.save("partitions", vars(chosen), runs=[asdict(run) for run in runs])
    report.say(f"details in {path.parent.name}/{path.name}")
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
