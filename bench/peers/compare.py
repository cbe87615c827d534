"""The ingestor beside its peers: the same topics, the same machine, in turn.

What starting up costs is measured on a topic with next to nothing in it, and taken off: the JVM's start is not what
records cost. Whoever runs a job each hour pays for it all the same, so the CPU with it is told beside.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from bench import drain, image, measure, report
from bench.options import Sizes
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Cost

_HERE = Path(__file__).parent
_SECONDS_MAX = 900.0
_QUIX = "quixstreams==3.28.1"
# The newest Spark of whose Kafka source all jars are to be had, and the Delta that goes with it.
_SPARK = "pyspark==4.0.0"
_SPARK_PACKAGES = ("io.delta:delta-spark_2.13:4.0.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
# Spark has them; two versions of one class path is one too many.
_SPARK_EXCLUDES = (
    "org.slf4j:slf4j-api",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.scala-lang:scala-library",
)
_SPARK_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",  # as the others; by default it takes more time for less
    "spark.jars.packages": ",".join(_SPARK_PACKAGES),
    "spark.jars.excludes": ",".join(_SPARK_EXCLUDES),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
_ABOUT = {
    "ingest": "the ingestor, with its image's allocator where that is installed: exactly once into Delta",
    "spark": "Spark Structured Streaming: exactly once into Delta by a checkpoint beside the table",
    "quix": "Quix Streams: at least once into Parquet files, no table",
}


class Peers:
    """The programs, with all that they need."""

    def __init__(self, bootstrap: str, folder: Path, records: int) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._counts = drain.counts(records)
        self._own = drain.Bench(bootstrap, folder, self._counts)

    def prepare(self) -> None:
        """Fill the topics, and make the environment that is not ours."""
        self._own.fill()
        self._quix_python = _install(self._folder / "quix", _QUIX, "pyarrow")
        self._spark_python = _install(self._folder / "spark", _SPARK)
        report.say("fetching Spark's jars")
        self._spark(drain.EMPTY)

    def run(self, program: str, size: int, repetition: int) -> drain.Run:
        """Measure one program on one topic."""
        if program == "ingest":
            own = self._own.run("image" if image.environ() else program, size, repetition)
            return dataclasses.replace(own, program=program)
        records = self._counts[size]
        if program == "spark":
            (started, _), (whole, written) = self._spark(drain.EMPTY), self._spark(drain.topic(size))
        else:
            (started, _), (whole, written) = (self._quix(drain.topic(size), count) for count in (1, records))
        run = drain.Run(
            size,
            repetition,
            program,
            records=records,
            start_up=started,
            whole=whole,
            written_bytes=written,
        )
        report.say(
            f"repetition {repetition + 1}: {size:5,} B  {program:7}  {run.cpu_micros:6.2f} us CPU per record, "
            f"{run.records_per_second:9,.0f} records/s, {run.whole.rss_mib:5.0f} MiB"
        )
        return run

    def _spark(self, topic: str) -> tuple[Cost, int]:
        """Return what a drain takes, and the bytes of the files it writes."""
        table = self._folder / f"spark-{uuid.uuid4().hex[:8]}"
        home = next(self._spark_python.parent.parent.glob("lib/*/site-packages/pyspark"))
        os.environ.update(SPARK_HOME=str(home), PYSPARK_PYTHON=str(self._spark_python))
        settings = [word for key, value in _SPARK_SETTINGS.items() for word in ("--conf", f"{key}={value}")]
        job = [_HERE / "spark_stream.py", self._bootstrap, topic, table]
        command = [
            home / "bin" / "spark-submit",
            "--master",
            "local[2]",
            "--driver-memory",
            "4g",
            *settings,
            *job,
        ]
        cost = measure.run(command, seconds_max=_SECONDS_MAX).cost
        shutil.rmtree(f"{table}-checkpoint", ignore_errors=True)
        return cost, _taken_away(table)

    def _quix(self, topic: str, records: int) -> tuple[Cost, int]:
        """Return the same of so many records."""
        files = self._folder / f"quix-{uuid.uuid4().hex[:8]}"
        cost = measure.run(
            [self._quix_python, _HERE / "quix_stream.py", self._bootstrap, topic, files, records],
            seconds_max=_SECONDS_MAX,
        ).cost
        return cost, _taken_away(files)


def _taken_away(folder: Path) -> int:
    """Remove what a program has written; return how many bytes of Parquet that was."""
    written = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
    shutil.rmtree(folder, ignore_errors=True)
    return written


def _install(folder: Path, *packages: str) -> Path:
    """Make an environment of its own for packages that are not in ours; return its Python."""
    report.say(f"installing {packages[0]}")
    python = folder / "bin" / "python"
    for command in (
        ["uv", "venv", "--quiet", "--python", sys.executable, folder],
        ["uv", "pip", "install", "--quiet", "--python", python, *packages],
    ):
        subprocess.run([sys.executable, "-m", *map(str, command)], check=True, timeout=_SECONDS_MAX)
    return python


def _rows(runs: Sequence[drain.Run]) -> list[list[str]]:
    rows = []
    middle = statistics.median
    for size in drain.SIZES:
        of = {name: [run for run in runs if (run.size, run.program) == (size, name)] for name in _ABOUT}
        for name, own in of.items():
            pairs = list(zip(own, of["ingest"], strict=True))
            rows.append(
                [
                    f"{size:,} B, {name}",
                    f"{middle(run.cpu_micros for run in own):.2f}",
                    f"{middle(run.cpu_micros / ours.cpu_micros for run, ours in pairs):.1f}",
                    f"{middle(run.whole.cpu_seconds for run in own):.1f}",
                    f"{middle(run.whole.cpu_seconds / ours.whole.cpu_seconds for run, ours in pairs):.1f}",
                    f"{middle(run.records_per_second for run in own):,.0f}",
                    f"{middle(ours.records_per_second / run.records_per_second for run, ours in pairs):.1f}",
                    f"{max(run.whole.rss_mib for run in own):,.0f}",
                    f"{middle(run.written_bytes / run.records for run in own):,.0f}",
                ]
            )
    return rows


_HEADS = (
    "payload, program",
    "CPU us/record",
    "of ours",
    "CPU s with start-up",
    "of ours",
    "records/s",
    "ours is faster by",
    "peak MiB",
    "B/record written",
)


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes("peers", "Drain topics with the ingestor and with its peers.")
    sizes.add("records", 1_000_000, "records of 1,000 B, and five times as many of 100 B")
    sizes.add("repeat", 3, "repetitions of everything, interleaved")
    sizes.add_pool()
    chosen = sizes.parse(arguments)
    report.say("starting a broker")
    runs: list[drain.Run] = []
    with Cluster(measured=True) as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        peers = Peers(cluster.bootstrap, Path(folder), chosen.records)
        peers.prepare()
        for repetition in range(chosen.repeat):
            runs += [peers.run(name, size, repetition) for size in drain.SIZES for name in _ABOUT]
    title = (
        f"Drain of {chosen.records:,} records of 1,000 B and five times as many of 100 B, 6 partitions, "
        f"medians of {chosen.repeat} repetitions"
    )
    report.show(title, _HEADS, _rows(runs))
    for name, about in _ABOUT.items():
        print(f"{name}: {about}.")
    details = [{**dataclasses.asdict(run), "cpu_micros": run.cpu_micros} for run in runs]
    path = report.save("peers", vars(chosen), runs=details)
    report.say(f"details in {path.parent.name}/{path.name}")
    return os.EX_OK
