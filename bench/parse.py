"""What parsing costs on Spark, beside the least that it could: a bare `from_json` and a Delta write of the same rows.

Both run in turns in one session, warmed up first; CPU is that of the JVM's whole process, garbage collection included.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import yaml
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bench import report
from bench.options import Sizes
from ingestor.config.load import load
from ingestor.records import RawSchema, TopicPartition
from spark_jobs.parse import parse
from spark_jobs.plan import plan
from spark_jobs.plan.route import route_of
from spark_jobs.runtime import session
from spark_jobs.runtime.session import jvm
from tests.support.rawtables import Record, TableMaker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route

BYTES = 300
_FILES = 8
_WARM_UP_ROWS = 20_000
_WARM_UPS = 10  # planning a batch is much code, which the JVM interprets at first; two full runs of each follow
_SCHEMA = (
    "request_id BIGINT, user_id STRING, event_type STRING, amount DOUBLE, cob STRING, session STRING, "
    "country STRING, count INT, flag BOOLEAN, note STRING"
)
_PARSE = {
    "schema": _SCHEMA,
    "required": ["user_id"],
    "rules": {"positive_amount": "amount is null or amount >= 0"},
    "cob": {"field": "cob"},
    "partition_by": ["cob_date"],
}


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run took."""

    program: str
    cpu_seconds: float
    compiling_seconds: float  # of them: what the JVM compiles, less in each run
    wall_seconds: float


def payload(number: int, rng: random.Random) -> bytes:
    """Return a record of JSON, exactly so many bytes."""
    head = (
        f'{{"request_id": {number}, "user_id": "user-{rng.randrange(100_000)}", "event_type": "click", '
        f'"amount": {rng.uniform(0, 1e4):.2f}, "cob": "2026-01-31", "session": "{rng.getrandbits(128):032x}", '
        f'"country": "DE", "count": {rng.randrange(1000)}, "flag": true, "note": "'
    )
    return (head + "x" * (BYTES - len(head) - 2) + '"}').encode()


def make_raw(folder: Path, rows: int) -> None:
    """Write a raw table of so many rows, as an ingestor lands them."""
    maker, rng = TableMaker(folder / "raw", RawSchema()), random.Random(1)
    for file in range(_FILES):
        tp = TopicPartition("events", file % 4)
        numbers = range(file * rows // _FILES, (file + 1) * rows // _FILES)
        maker.flush([Record(number, payload(number, rng), tp, timestamp_ms=1_772_323_200_000) for number in numbers])


def route_in(folder: Path) -> Route:
    """Return the route that parses a folder's raw table."""
    document = {
        "app_id": "bench",
        "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "bench"},
        "routes": {"events": {"topics": ["events"], "table": "raw"}},
        "parse": {"events": _PARSE},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    loaded = load(path)
    return route_of(loaded, "events", plan.make("events", loaded.parse["events"]))


def bare(spark: SparkSession, folder: Path) -> None:
    """Parse every payload as JSON of the schema and write the rows: no detection, no checks, no quarantine."""
    raw = spark.read.format("delta").load(str(folder / "raw"))
    fields = F.from_json(F.col("message_payload").cast("string"), _SCHEMA).alias("fields")
    kept = ("stream_topic", "stream_partition", "stream_offset", "message_timestamp")
    rows = raw.select(fields, *kept).select("fields.*", F.to_date("fields.cob").alias("cob_date"), *kept)
    rows.write.format("delta").partitionBy("cob_date").save(str(folder / "bare"))


def job(spark: SparkSession, folder: Path) -> None:
    """Run the parse job."""
    parse(spark, route_in(folder))


def clean(folder: Path) -> None:
    """Remove what both have made."""
    for name in ("bare", "raw-silver", "raw-quarantine", "raw-checkpoint"):
        shutil.rmtree(folder / name, ignore_errors=True)


def measure(spark: SparkSession, folder: Path, program: str) -> Taken:
    """Run one of both, and tell what it took."""
    clean(folder)
    java = jvm(spark)
    java.java.lang.System.gc()
    process = psutil.Process(int(java.java.lang.ProcessHandle.current().pid()))
    before, compiled, wall = process.cpu_times(), compiling(process.pid), time.perf_counter()
    {"bare": bare, "job": job}[program](spark, folder)
    after = process.cpu_times()
    cpu_seconds = after.user - before.user + after.system - before.system
    taken = Taken(program, cpu_seconds, compiling(process.pid) - compiled, time.perf_counter() - wall)
    report.say(f"{program}: {taken.cpu_seconds:.1f} s CPU, {taken.wall_seconds:.1f} s")
    return taken


def compiling(pid: int) -> float:
    """Return the CPU seconds of a JVM's compiler threads, which live as long as it."""
    seconds = 0.0
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            name, _, numbers = stat.read_text().partition("(")[2].rpartition(")")
            if name.startswith(("C1 Comp", "C2 Comp")):
                user, system = numbers.split()[11:13]
                seconds += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return seconds


def ratios(taken: Sequence[Taken]) -> dict[str, list[float]]:
    """Return the job's CPU over that of the bare write, for each pair of runs; with and without what Java compiles."""
    job, bare = ([each for each in taken if each.program == name] for name in ("job", "bare"))
    pairs = list(zip(job, bare, strict=True))
    return {
        "all": [one.cpu_seconds / other.cpu_seconds for one, other in pairs],
        "without compiling": [
            (one.cpu_seconds - one.compiling_seconds) / (other.cpu_seconds - other.compiling_seconds)
            for one, other in pairs
        ],
    }


def show(rows: int, taken: Sequence[Taken]) -> None:
    """Print both, and their ratio within each pair of runs."""
    runs = {name: [each for each in taken if each.program == name] for name in ("bare", "job")}
    table = [
        [
            name,
            f"{statistics.median(each.cpu_seconds for each in found):.1f}",
            f"{statistics.median(each.cpu_seconds for each in found) / rows * 1e6:.1f}",
            f"{statistics.median(each.compiling_seconds for each in found):.1f}",
            f"{statistics.median(each.wall_seconds for each in found):.1f}",
        ]
        for name, found in runs.items()
    ]
    title = f"{rows:,} JSON records of {BYTES} B, {len(runs['job'])} runs each, medians"
    report.show(title, ("program", "CPU s", "CPU us/record", "compiling s", "wall s"), table)
    report.show(
        "CPU of the job over that of the bare write",
        ("CPU", "ratio", "least", "most"),
        [
            [name, f"{statistics.median(of):.2f}", f"{min(of):.2f}", f"{max(of):.2f}"]
            for name, of in ratios(taken).items()
        ],
    )


def run(rows: int, repeat: int) -> list[Taken]:
    """Run both in turn, so many times, in one session that is warm."""
    with tempfile.TemporaryDirectory(prefix="ingestor-bench-") as name:
        folder = Path(name)
        for size, part in ((_WARM_UP_ROWS, "warm"), (rows, "full")):
            (folder / part).mkdir()
            make_raw(folder / part, size)
        report.say(f"made {rows:,} records")
        spark = session.start({"spark.driver.memory": "4g"}, s3=False)
        try:
            for part in (*("warm",) * _WARM_UPS, "full", "full"):
                for each in ("bare", "job"):
                    measure(spark, folder / part, each)
            return [measure(spark, folder / "full", each) for _ in range(repeat) for each in ("bare", "job")]
        finally:
            spark.stop()


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("parse", "Parse JSON on Spark, and write the same rows bare.")
    sizes.add("rows", 1_000_000, "records parsed")
    sizes.add("repeat", 5, "runs of each program")
    chosen = sizes.parse(arguments)
    taken = run(chosen.rows, chosen.repeat)
    show(chosen.rows, taken)
    report.save("parse", vars(chosen), taken=[asdict(each) for each in taken])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
