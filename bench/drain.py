"""How much CPU, time and memory a drain takes: `ingestor run --once` beside its two floors, on a real broker.

All of them with libc's allocator, and again with the image's. The programs take turns. What records cost is always told
apart from what starting up costs: each program's own doc says how.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import statistics
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import image, measure, report
from bench.options import Sizes
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.measure import Cost, Ended

_TIMES = {1_000: 1, 100: 5}  # bytes of a payload, and how many times as many: else small ones are over in a second
SIZES = tuple(_TIMES)
PROGRAMS = ("consume", "write", "both", "ingest")
FLOORS = ("consume", "write")
PARTITIONS = 6
FLUSH_MIB = 128  # the default
SECONDS_MAX = 600.0
EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Run:
    """One program on all records of one size, and what of it was starting up."""

    size: int
    repetition: int
    program: str
    in_image: bool  # with the image's allocator
    records: int
    start_up: Cost
    whole: Cost
    written_bytes: int = 0
    commits: int = 0

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
        in_image: bool = False,
    ) -> None:
        """Prepare for so many records of each size, with libc's allocator or with the image's."""
        self._bootstrap = bootstrap
        self._folder = folder
        self._counts = counts
        self._flush = {"bytes": flush_mib << 20}
        self._in_image = in_image

    def fill(self) -> None:
        """Make the topics, fill all but the empty one, and read them once: the first to read has a slow broker."""
        topics.create(self._bootstrap, EMPTY, partitions=PARTITIONS)
        for size, count in self._counts.items():
            topics.create(self._bootstrap, topic(size), partitions=PARTITIONS)
            cost = self._child("produce", self._bootstrap, topic(size), size, count).cost
            report.say(f"produced {count:,} records of {size:,} B in {cost.wall_seconds:.1f} s")
            self._child("consume", self._bootstrap, topic(size), count)

    def run(self, program: str, size: int, repetition: int) -> Run:
        """Measure one program."""
        measured: Callable[[int, int], Run] = getattr(self, f"_{program}")
        run = measured(size, repetition)
        report.say(
            f"repetition {repetition + 1}: {_name(run):23}  {run.cpu_micros:5.2f} us CPU per record, "
            f"{run.records_per_second:9,.0f} records/s, {run.whole.rss_mib:4.0f} MiB"
        )
        return run

    def _consume(self, size: int, repetition: int) -> Run:
        """Reading alone. The first record may be long in coming, so the program itself takes the time from there on."""
        idle = self._child("consume", self._bootstrap, EMPTY, 0).cost
        ended = self._child("consume", self._bootstrap, topic(size), self._counts[size])
        started = ended.cost.wall_seconds - json.loads(ended.last_line)["wall_seconds"]
        start_up = dataclasses.replace(idle, wall_seconds=started)
        return Run(size, repetition, "consume", self._in_image, self._counts[size], start_up, ended.cost)

    def _write(self, size: int, repetition: int) -> Run:
        """Writing alone. Its columns are made before, so the program itself tells what the rest took."""
        return self._of_columns("write", size, repetition)

    def _both(self, size: int, repetition: int) -> Run:
        """Reading and writing at once, in one process."""
        return self._of_columns("both", size, repetition, self._bootstrap, topic(size))

    def _of_columns(self, program: str, size: int, repetition: int, *more: object) -> Run:
        file = self._folder / "floor.parquet"
        ended = self._child(program, file, size, self._counts[size], *more)
        written = file.stat().st_size
        file.unlink()
        told, whole = json.loads(ended.last_line), ended.cost
        start_up = dataclasses.replace(
            whole,
            cpu_seconds=whole.cpu_seconds - told["cpu_seconds"],
            wall_seconds=whole.wall_seconds - told["wall_seconds"],
        )
        return Run(size, repetition, program, self._in_image, self._counts[size], start_up, whole, written, 1)

    def _ingest(self, size: int, repetition: int) -> Run:
        """The ingestor: on an empty topic, which is what starting, joining and leaving cost, then on all records."""
        start_up, _, _ = self._ingested(EMPTY, 0)
        whole, written, commits = self._ingested(topic(size), self._counts[size])
        return Run(size, repetition, "ingest", self._in_image, self._counts[size], start_up, whole, written, commits)

    def _ingested(self, topic: str, records: int) -> tuple[Cost, int, int]:
        """Ingest a topic into a new table; check that it holds every record."""
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
        ended = self._measured("ingestor", "run", path, "--once")
        rows, written, commits = _landed(table)
        shutil.rmtree(table)
        if rows != records:
            raise measure.ProgramFailedError(f"the table holds {rows} rows, not {records}")
        return ended.cost, written, commits

    def _child(self, *arguments: object) -> Ended:
        return self._measured("bench.children", *arguments)

    def _measured(self, module: str, *arguments: object) -> Ended:
        environ = image.environ() if self._in_image else None
        return measure.run([sys.executable, "-m", module, *arguments], seconds_max=SECONDS_MAX, environ=environ)


def counts(records: int) -> dict[int, int]:
    """Return how many records there are of each size, with so many of the largest."""
    return {size: times * records for size, times in _TIMES.items()}


def topic(size: int) -> str:
    """Return the name of the topic with payloads of a size."""
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


def ratios(
    runs: Sequence[Run], size: int, floors: Sequence[str] = FLOORS, *, in_image: bool = False, over_libc: bool = False
) -> list[float]:
    """Return for each repetition the ingestor's CPU per record over the sum of floors, its own or those with libc's."""
    of = {(run.repetition, run.program, run.in_image): run.cpu_micros for run in runs if run.size == size}
    return [
        of[n, "ingest", in_image] / sum(of[n, floor, in_image and not over_libc] for floor in floors)
        for n in sorted({n for n, _, _ in of})
    ]


def summary(runs: Sequence[Run]) -> list[list[str]]:
    """Return the medians over the repetitions as rows of a table."""
    kinds = dict.fromkeys((run.size, run.in_image, run.program) for run in runs)
    return [
        _row(runs, [run for run in runs if (run.size, run.in_image, run.program) == kind])
        for kind in sorted(kinds, key=lambda kind: (-kind[0], kind[1], PROGRAMS.index(kind[2])))
    ]


def _row(runs: Sequence[Run], own: Sequence[Run]) -> list[str]:
    one, middle = own[0], statistics.median
    spread = sorted(run.cpu_micros for run in own)
    factors = ["", "", ""]
    if one.program == "ingest":
        factors = [
            _told(ratios(runs, one.size, in_image=one.in_image, over_libc=True)),
            _told(ratios(runs, one.size, in_image=one.in_image)),
            _told(ratios(runs, one.size, ("both",), in_image=one.in_image)),
        ]
    return [
        _name(one),
        f"{middle(spread):.2f}",
        f"{spread[0]:.2f} to {spread[-1]:.2f}",
        f"{middle(run.whole.cpu_seconds * 1e6 / run.records for run in own):.2f}",
        f"{middle(run.records_per_second for run in own):,.0f}",
        f"{middle(run.records / run.whole.wall_seconds for run in own):,.0f}",
        f"{max(run.whole.rss_mib for run in own):,.0f}",
        f"{middle(run.written_bytes / run.records for run in own):,.0f}" if one.program != "consume" else "",
        *factors,
    ]


def _name(run: Run) -> str:
    return f"{run.size:,} B, {run.program}{', image' if run.in_image else ''}"


def _told(factors: Sequence[float]) -> str:
    return f"{statistics.median(factors):.2f} ({min(factors):.2f} to {max(factors):.2f})"


_HEADS = (
    "payload, program",
    "CPU us/record",
    "spread",
    "with start-up",
    "records/s",
    "with start-up",
    "peak MiB",
    "B/record written",
    "CPU over both floors with libc's allocator",
    "over both with its own",
    "over both at once",
)


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("drain", "Drain a topic: the ingestor beside the least that reading and writing cost.")
    sizes.add("records", 1_000_000, "records of 1,000 B, and five times as many of 100 B")
    sizes.add("repeat", 5, "repetitions of everything, interleaved")
    sizes.add("flush_mib", FLUSH_MIB, "flush.bytes of the route, in MiB")
    chosen = sizes.parse(arguments)
    runs: list[Run] = []
    report.say("starting a broker")
    with Cluster(measured=True) as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        benches = [
            Bench(
                cluster.bootstrap,
                Path(folder),
                counts(chosen.records),
                flush_mib=chosen.flush_mib,
                in_image=in_image,
            )
            for in_image in (False, True)[: 1 + bool(image.environ())]
        ]
        benches[0].fill()
        for repetition in range(chosen.repeat):
            runs += [
                bench.run(program, size, repetition) for size in SIZES for bench in benches for program in PROGRAMS
            ]
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
