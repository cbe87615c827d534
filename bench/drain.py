"""How much CPU, time and memory a drain takes: `ingestor run --once` beside its two floors, on a real broker.

Per repetition and size of record, each program runs twice, one right after the other: on nothing, and on all records.
The first run is what starting up costs; the difference is what the records cost.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import measure, report
from bench.options import Sizes
from tests.support import topics
from tests.support.kafka import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.measure import Cost

SIZES = (1_000, 100)  # bytes of a payload
PROGRAMS = ("consume", "write", "ingest")
PARTITIONS = 6
SECONDS_MAX = 600.0
_EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Run:
    """One program on one topic, once with nothing in it and once with all records."""

    size: int
    repetition: int
    program: str
    records: int
    empty: Cost
    full: Cost
    written_bytes: int = 0  # by the ingestor
    commits: int = 0

    @property
    def cpu_micros(self) -> float:
        """CPU per record, without starting up."""
        return (self.full.cpu_seconds - self.empty.cpu_seconds) * 1e6 / self.records

    @property
    def records_per_second(self) -> float:
        """Records per second of wall time, without starting up."""
        return self.records / max(1e-9, self.full.wall_seconds - self.empty.wall_seconds)


class Bench:
    """The programs, with all that they need to run."""

    def __init__(self, bootstrap: str, folder: Path, records: int) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._records = records

    def fill(self) -> None:
        """Make the topics and fill all but the empty one."""
        topics.create(self._bootstrap, _EMPTY, partitions=PARTITIONS)
        for size in SIZES:
            topics.create(self._bootstrap, _topic(size), partitions=PARTITIONS)
            cost = self._child("produce", self._bootstrap, _topic(size), size, self._records)
            report.say(f"produced {self._records:,} records of {size:,} B in {cost.wall_seconds:.1f} s")

    def run(self, program: str, size: int, repetition: int) -> Run:
        """Measure one program: on nothing, then on all records."""
        measured: Callable[[int, int], tuple[Cost, int, int]] = getattr(self, f"_{program}")
        empty, _, _ = measured(size, 0)
        full, written, commits = measured(size, self._records)
        run = Run(size, repetition, program, self._records, empty, full, written, commits)
        report.say(
            f"repetition {repetition + 1}: {size:5,} B  {program:7}  {run.cpu_micros:5.2f} us CPU per record, "
            f"{run.records_per_second:9,.0f} records/s, {full.rss_mib:4.0f} MiB"
        )
        return run

    def _consume(self, size: int, records: int) -> tuple[Cost, int, int]:
        topic = _topic(size) if records else _EMPTY
        return self._child("consume", self._bootstrap, topic, records), 0, 0

    def _write(self, size: int, records: int) -> tuple[Cost, int, int]:
        file = self._folder / "floor.parquet"
        cost = self._child("write", file, size, records)
        written = file.stat().st_size if records else 0
        file.unlink(missing_ok=True)
        return cost, written, 1 if records else 0

    def _ingest(self, size: int, records: int) -> tuple[Cost, int, int]:
        """Ingest with default settings into a new table; check that it holds every record."""
        table = self._folder / "table"
        name = f"bench-{uuid.uuid4().hex[:12]}"
        config = {
            "app_id": name,
            "kafka": {"bootstrap.servers": self._bootstrap, "group.id": name},
            "routes": {"records": {"topics": [_topic(size) if records else _EMPTY], "table": str(table)}},
            "http": {"port": 0},
        }
        path = self._folder / "config.yaml"
        path.write_text(json.dumps(config))
        cost = measure.run([sys.executable, "-m", "ingestor", "run", path, "--once"], seconds_max=SECONDS_MAX)
        rows, written, commits = _landed(table)
        shutil.rmtree(table)
        if rows != records:
            raise measure.ProgramFailedError(f"the table holds {rows} rows, not {records}")
        return cost, written, commits

    def _child(self, *arguments: object) -> Cost:
        return measure.run([sys.executable, "-m", "bench.children", *arguments], seconds_max=SECONDS_MAX)


def _topic(size: int) -> str:
    return f"records-{size}"


def _landed(table: Path) -> tuple[int, int, int]:
    """Return rows, bytes and commits with rows, as the table's log tells."""
    rows = written = commits = 0
    for entry in sorted((table / "_delta_log").glob("*.json")):
        adds = [action["add"] for line in entry.read_text().splitlines() if "add" in (action := json.loads(line))]
        rows += sum(json.loads(add["stats"])["numRecords"] for add in adds)
        written += sum(add["size"] for add in adds)
        commits += bool(adds)
    return rows, written, commits


def ratios(runs: Sequence[Run], size: int) -> list[float]:
    """Return for each repetition the ingestor's CPU per record over the sum of its two floors."""
    of = {(run.repetition, run.program): run.cpu_micros for run in runs if run.size == size}
    return [of[n, "ingest"] / (of[n, "consume"] + of[n, "write"]) for n in sorted({n for n, _ in of})]


def summary(runs: Sequence[Run]) -> list[list[str]]:
    """Return the medians over the repetitions as rows of a table."""
    rows = []
    for size in SIZES:
        for program in PROGRAMS:
            own = [run for run in runs if (run.size, run.program) == (size, program)]
            middle = statistics.median
            spread = sorted(run.cpu_micros for run in own)
            factor = sorted(ratios(runs, size))
            rows.append(
                [
                    f"{size:,} B, {program}",
                    f"{middle(spread):.2f}",
                    f"{spread[0]:.2f} to {spread[-1]:.2f}",
                    f"{middle(run.full.cpu_seconds * 1e6 / run.records for run in own):.2f}",
                    f"{middle(run.records_per_second for run in own):,.0f}",
                    f"{middle(run.records / run.full.wall_seconds for run in own):,.0f}",
                    f"{max(run.full.rss_mib for run in own):,.0f}",
                    f"{middle(run.written_bytes / run.records for run in own):,.0f}" if program != "consume" else "",
                    f"{middle(factor):.2f} ({factor[0]:.2f} to {factor[-1]:.2f})" if program == "ingest" else "",
                ]
            )
    return rows


_HEADS = (
    "payload, program",
    "CPU us/record",
    "spread",
    "with start-up",
    "records/s",
    "with start-up",
    "peak MiB",
    "B/record written",
    "CPU over both floors",
)


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("drain", "Drain a topic: the ingestor beside the least that reading and writing cost.")
    sizes.add("records", 1_000_000, "records per topic, of each size")
    sizes.add("repeat", 5, "repetitions of everything, interleaved")
    chosen = sizes.parse(arguments)
    runs: list[Run] = []
    report.say("starting a broker")
    with Cluster() as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        bench = Bench(cluster.bootstrap, Path(folder), chosen.records)
        bench.fill()
        for repetition in range(chosen.repeat):
            runs += [bench.run(program, size, repetition) for size in SIZES for program in PROGRAMS]
    starts = [run.empty for run in runs if run.program == "ingest"]
    start = {
        "cpu_seconds": statistics.median(cost.cpu_seconds for cost in starts),
        "wall_seconds": statistics.median(cost.wall_seconds for cost in starts),
        "rss_mib": statistics.median(cost.rss_mib for cost in starts),
    }
    report.show(f"Drain of {chosen.records:,} records, medians of {chosen.repeat} repetitions", _HEADS, summary(runs))
    print(
        f"\nIngestor on an empty topic, start to end: {start['wall_seconds']:.2f} s, "
        f"{start['cpu_seconds']:.2f} s CPU, {start['rss_mib']:.0f} MiB."
    )
    details = [{**dataclasses.asdict(run), "cpu_micros": run.cpu_micros} for run in runs]
    path = report.save("drain", vars(chosen), start_up=start, runs=details)
    report.say(f"details in {path.parent.name}/{path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
