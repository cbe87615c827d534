"""How much CPU, time and memory a drain takes: `ingestor run --once` beside its floors, on a real broker.

The programs take turns. What records cost is always told apart from what starting up costs: each program's own doc says
how.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import image, measure, reading, report
from bench.options import Sizes
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.measure import Cost, Ended

_TIMES = {1_000: 1, 100: 5}  # bytes of a payload, and how many times as many: else small ones are over in a second
SIZES = tuple(_TIMES)
PROGRAMS = ("read", "objects", "write", "ingest", "image")
FLOORS = ("read", "write")  # librdkafka in C, and pyarrow's writing of the same rows
BY_OBJECTS = ("objects", "write")
PARTITIONS = 6
FLUSH_MIB = 128  # the default
_OWN_TO_KCAT = {"group.id", "enable.partition.eof"}  # it assigns itself all partitions, and knows their ends
SECONDS_MAX = 600.0
EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Run:
    """One program on all records of one size, and what of it was starting up."""

    size: int
    repetition: int
    program: str
    records: int
    start_up: Cost
    whole: Cost
    written_bytes: int = 0

    @property
    def cpu_micros(self) -> float:
        """CPU per record, without starting up."""
        return (self.whole.cpu_seconds - self.start_up.cpu_seconds) * 1e6 / self.records

    @property
    def records_per_second(self) -> float:
        """Records per second of wall time, without starting up; too few records to tell are infinitely fast."""
        seconds = self.whole.wall_seconds - self.start_up.wall_seconds
        return self.records / seconds if seconds > 0 else math.inf


class Bench:
    """The programs, with all that they need to run."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        counts: Mapping[int, int],
        *,
        flush_mib: int = FLUSH_MIB,
    ) -> None:
        """Prepare for so many records of each size."""
        self._bootstrap = bootstrap
        self._folder = folder
        self._counts = counts
        self._flush = {"bytes": flush_mib << 20}

    def fill(self) -> None:
        """Make the topics, fill all but the empty one, and read them once: the first to read has a slow broker."""
        topics.create(self._bootstrap, EMPTY, partitions=PARTITIONS)
        for size, count in self._counts.items():
            topics.create(self._bootstrap, topic(size), partitions=PARTITIONS)
            cost = self._child("produce", self._bootstrap, topic(size), size, count).cost
            report.say(f"produced {count:,} records of {size:,} B in {cost.wall_seconds:.1f} s")
            self._child("read", self._bootstrap, topic(size), count)

    def run(self, program: str, size: int, repetition: int) -> Run:
        """Measure one program."""
        measured: Callable[[int, int], Run] = getattr(self, f"_{program}")
        run = measured(size, repetition)
        report.say(
            f"repetition {repetition + 1}: {_name(run):17}  {run.cpu_micros:5.2f} us CPU per record, "
            f"{run.records_per_second:9,.0f} records/s, {run.whole.rss_mib:4.0f} MiB"
        )
        return run

    def _read(self, size: int, repetition: int) -> Run:
        """Librdkafka in C: kcat where it is installed, else the ingestor's native intake, whose columns are dropped."""
        if shutil.which("kcat") is None:
            return self._consumed("read", size, repetition)
        idle, whole = (self._kcat(name) for name in (EMPTY, topic(size)))
        return Run(size, repetition, "read", self._counts[size], idle, whole)

    def _kcat(self, topic: str) -> Cost:
        """Let kcat read a topic to its end and print nothing, with those of our settings that its librdkafka has."""
        listed = subprocess.run(["kcat", "-X", "list"], check=True, capture_output=True, text=True).stdout
        known = {line.partition("|")[0].strip() for line in listed.splitlines()} - _OWN_TO_KCAT
        options = reading.options(self._bootstrap).items()
        settings = [word for key, value in options if key in known for word in ("-X", f"{key}={value}")]
        command = ["kcat", "-C", "-q", "-e", "-f", "", "-o", "beginning", "-b", self._bootstrap, "-t", topic]
        return measure.run([*command, *settings], seconds_max=SECONDS_MAX).cost

    def _objects(self, size: int, repetition: int) -> Run:
        """Reading as Python programs do, with an object for each record."""
        return self._consumed("objects", size, repetition)

    def _consumed(self, program: str, size: int, repetition: int) -> Run:
        """The first record may be long in coming, so the program itself takes the time from there on."""
        idle = self._child(program, self._bootstrap, EMPTY, 0).cost
        ended = self._child(program, self._bootstrap, topic(size), self._counts[size])
        started = ended.cost.wall_seconds - json.loads(ended.last_line)["wall_seconds"]
        start_up = dataclasses.replace(idle, wall_seconds=started)
        return Run(size, repetition, program, self._counts[size], start_up, ended.cost)

    def _write(self, size: int, repetition: int) -> Run:
        """Writing alone. Its columns are made before, so the program itself tells what the rest took."""
        file = self._folder / "floor.parquet"
        ended = self._child("write", file, size, self._counts[size])
        written = file.stat().st_size
        file.unlink()
        told, whole = json.loads(ended.last_line), ended.cost
        start_up = dataclasses.replace(
            whole,
            cpu_seconds=whole.cpu_seconds - told["cpu_seconds"],
            wall_seconds=whole.wall_seconds - told["wall_seconds"],
        )
        return Run(size, repetition, "write", self._counts[size], start_up, whole, written)

    def _ingest(self, size: int, repetition: int) -> Run:
        """The ingestor: on an empty topic, which is what starting, joining and leaving cost, then on all records."""
        return self._ingested("ingest", size, repetition, {})

    def _image(self, size: int, repetition: int) -> Run:
        """The same with the image's allocator."""
        return self._ingested("image", size, repetition, image.environ())

    def _ingested(self, program: str, size: int, repetition: int, environ: Mapping[str, str]) -> Run:
        start_up, _ = self.drained(EMPTY, 0, environ)
        whole, written = self.drained(topic(size), self._counts[size], environ)
        return Run(size, repetition, program, self._counts[size], start_up, whole, written)

    def drained(self, topic: str, records: int, environ: Mapping[str, str] | None = None) -> tuple[Cost, int]:
        """Ingest a topic into a new table that must hold every record; return what that took and the bytes written."""
        table = self._folder / "table"
        name = f"bench-{uuid.uuid4().hex[:12]}"
        config = {
            "app_id": name,
            "kafka": {"bootstrap.servers": self._bootstrap, "group.id": name},
            "routes": {"records": {"topics": [topic], "table": str(table), "flush": self._flush}},
            "http": {"port": 0},
        }
        path = self._folder / "config.yaml"
        path.write_text(json.dumps(config))
        ended = _measured("ingestor", "run", path, "--once", environ=environ)
        rows, written = _landed(table)
        shutil.rmtree(table)
        if rows != records:
            raise measure.ProgramFailedError(f"the table holds {rows} rows, not {records}")
        return ended.cost, written

    def _child(self, *arguments: object) -> Ended:
        return _measured("bench.children", *arguments)


def _measured(module: str, *arguments: object, environ: Mapping[str, str] | None = None) -> Ended:
    return measure.run([sys.executable, "-m", module, *arguments], seconds_max=SECONDS_MAX, environ=environ)


def programs() -> tuple[str, ...]:
    """Return the programs that this machine has all for."""
    return PROGRAMS if image.environ() else PROGRAMS[:-1]


def counts(records: int) -> dict[int, int]:
    """Return how many records there are of each size, with so many of the largest."""
    return {size: times * records for size, times in _TIMES.items()}


def topic(size: int) -> str:
    """Return the name of the topic with payloads of a size."""
    return f"records-{size}"


def _landed(table: Path) -> tuple[int, int]:
    """Return rows and bytes, as the table's log tells."""
    rows = written = 0
    for entry in sorted((table / "_delta_log").glob("*.json")):
        adds = [action["add"] for line in entry.read_text().splitlines() if "add" in (action := json.loads(line))]
        rows += sum(json.loads(add["stats"])["numRecords"] for add in adds)
        written += sum(add["size"] for add in adds)
    return rows, written


def ratios(runs: Sequence[Run], size: int, program: str = "ingest", floors: Sequence[str] = FLOORS) -> list[float]:
    """Return for each repetition a program's CPU per record over the sum of floors."""
    of = {(run.repetition, run.program): run.cpu_micros for run in runs if run.size == size}
    return [of[n, program] / sum(of[n, floor] for floor in floors) for n in sorted({n for n, _ in of})]


def summary(runs: Sequence[Run]) -> list[list[str]]:
    """Return the medians over the repetitions as rows of a table."""
    kinds = dict.fromkeys((run.size, run.program) for run in runs)
    return [
        _row(runs, [run for run in runs if (run.size, run.program) == kind])
        for kind in sorted(kinds, key=lambda kind: (-kind[0], PROGRAMS.index(kind[1])))
    ]


def _row(runs: Sequence[Run], own: Sequence[Run]) -> list[str]:
    one, middle = own[0], statistics.median
    spread = sorted(run.cpu_micros for run in own)
    factors = ["", ""]
    if one.program in ("ingest", "image"):
        factors = [_told(ratios(runs, one.size, one.program, floors)) for floors in (FLOORS, BY_OBJECTS)]
    writes = one.program not in ("read", "objects")
    return [
        _name(one),
        f"{middle(spread):.2f}",
        f"{spread[0]:.2f} to {spread[-1]:.2f}",
        f"{middle(run.records_per_second for run in own):,.0f}",
        f"{max(run.whole.rss_mib for run in own):,.0f}",
        f"{middle(run.written_bytes / run.records for run in own):,.0f}" if writes else "",
        *factors,
    ]


def _name(run: Run) -> str:
    return f"{run.size:,} B, {run.program}"


def _told(factors: Sequence[float]) -> str:
    return f"{statistics.median(factors):.2f} ({min(factors):.2f} to {max(factors):.2f})"


_HEADS = (
    "payload, program",
    "CPU us/record",
    "spread",
    "records/s",
    "peak MiB",
    "B/record written",
    "CPU over read + write",
    "over objects + write",
)


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("drain", "Drain a topic: the ingestor beside the least that reading and writing cost.")
    sizes.add("records", 1_000_000, "records of 1,000 B, and five times as many of 100 B")
    sizes.add("repeat", 5, "repetitions of everything, interleaved")
    sizes.add("flush_mib", FLUSH_MIB, "flush.bytes of the route, in MiB")
    sizes.add_pool()
    chosen = sizes.parse(arguments)
    runs: list[Run] = []
    report.say("starting a broker")
    with Cluster(measured=True) as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        bench = Bench(cluster.bootstrap, Path(folder), counts(chosen.records), flush_mib=chosen.flush_mib)
        bench.fill()
        for repetition in range(chosen.repeat):
            runs += [bench.run(program, size, repetition) for size in SIZES for program in programs()]
    starts = [run.start_up for run in runs if run.program == "ingest"]
    start = {
        "cpu_seconds": statistics.median(cost.cpu_seconds for cost in starts),
        "wall_seconds": statistics.median(cost.wall_seconds for cost in starts),
        "rss_mib": statistics.median(cost.rss_mib for cost in starts),
    }
    report.show(
        f"Drain of {chosen.records:,} records of 1,000 B and five times as many of 100 B, {chosen.repeat} repetitions",
        _HEADS,
        summary(runs),
    )
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
