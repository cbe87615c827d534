"""What one commit costs as the log grows: refresh, compare, put, sync, through the real committer.

On a local disk, and in an S3 store that runs beside, whose own CPU does not count.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench import report
from bench.options import Sizes
from bench.tables import OldTable
from ingestor.delta.table_log import CHECKPOINT_EVERY
from tests.support.stores.stores import VersityStore
from tests.support.stores.versitygw import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS = 6
# What is done beside the commits. An ingestor does the last, with files that `spark_jobs compact` compacts every hour.
_CARE = {
    "checkpoints": {},
    "checkpoints, compacted": {"compacted": True},
    "checkpoints, compacted, cleaned": {"compacted": True, "cleaned": True},
}
_WARM_UP = 20  # commits before the measured ones; a handle reopens every 50, so any 50 in a row hold one reopening


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU of all threads, and wall time, of one thing that was done."""

    cpu_ms: float
    wall_ms: float


@dataclass(frozen=True, slots=True)
class Series:
    """The commits on a log of one length."""

    place: str
    length: int
    care: str
    commits: tuple[Timing, ...]
    checkpointing: tuple[Timing, ...]

    @property
    def row(self) -> list[str]:
        """The series as a row of a table."""
        cpu, wall = ([getattr(timing, name) for timing in self.commits] for name in ("cpu_ms", "wall_ms"))
        apart = sum(timing.cpu_ms for timing in self.checkpointing) / len(self.commits)
        return [
            f"{self.place}, {self.length:,} entries, {self.care}",
            f"{statistics.median(cpu):.1f}",
            f"{statistics.mean(cpu):.1f}",
            f"{max(cpu):.1f}",
            f"{statistics.median(wall):.1f}",
            f"{max(wall):.1f}",
            f"{apart:.1f}",
        ]


_HEADS = ("log", "CPU ms, median", "mean", "most", "wall ms, median", "most", "checkpoint CPU ms per commit")


class _Stopwatch:
    """Measures a block; delta-rs works on threads of its own, and their CPU counts."""

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        self.timing = Timing(cpu * 1e3, wall * 1e3)


def measure(length: int, commits: int, care: str, store: VersityStore | None = None) -> Series:
    """Commit to a log of a given length, with a checkpoint every so often like the ingestor's."""
    timings: list[Timing] = []
    checkpointing: list[Timing] = []
    with tempfile.TemporaryDirectory(prefix="ingestor-bench-") as name:
        folder, at = Path(name), None
        if store is not None:
            bucket = store.make_bucket()
            folder, at = store.data / bucket / "table", (store.url(bucket), store.storage_options)
        old = OldTable(folder, length=length, partitions=PARTITIONS, checkpoints=True, at=at, **_CARE[care])
        os.sync()  # or what was made just now would be written while commits are measured
        for version in range(length + 1, length + 1 + _WARM_UP + commits):
            with _Stopwatch() as commit:
                old.commit(version)
            timings.append(commit.timing)
            if version % CHECKPOINT_EVERY == 0:
                with _Stopwatch() as checkpoint:
                    old.table.checkpoint()
                checkpointing.append(checkpoint.timing)
    place = "disk" if store is None else "S3"
    return Series(place, length, care, tuple(timings[_WARM_UP:]), tuple(checkpointing))


def compare(
    lengths: Sequence[int], commits: int, repeat: int, care: str, store: VersityStore | None = None
) -> list[Series]:
    """Commit to logs of several lengths in turn, several times over; return one series for each length."""
    turns = [[measure(length, commits, care, store) for length in lengths] for _ in range(repeat)]
    return [_joined(of_one_length) for of_one_length in zip(*turns, strict=True)]


def _joined(series: Sequence[Series]) -> Series:
    return dataclasses.replace(
        series[0],
        commits=tuple(timing for each in series for timing in each.commits),
        checkpointing=tuple(timing for each in series for timing in each.checkpointing),
    )


def _save(options: dict[str, object], series: Sequence[Series]) -> None:
    path = report.save("commit", options, series=[dataclasses.asdict(each) for each in series])
    report.say(f"details in {path.parent.name}/{path.name}")


def main(arguments: list[str]) -> int:
    """Measure and report."""
    sizes = Sizes(
        "commit", "Commit to logs of several lengths, with all that is done beside the commits or a part of it."
    )
    sizes.add_list("lengths", "10,100,1000,3000", "log entries there are before")
    sizes.add("commits", CHECKPOINT_EVERY, "commits measured on each log")
    sizes.add("repeat", 3, "logs of each length, interleaved")
    chosen = sizes.parse(arguments)
    series: list[Series] = []
    with contextlib.ExitStack() as stores:
        places: list[VersityStore | None] = [None]
        try:
            places.append(stores.enter_context(VersityStore()))
        except StoreUnavailableError as error:
            report.say(f"no commits in S3: {error}")
        for store in places:
            for care in _CARE:
                found = compare(chosen.lengths, chosen.commits, chosen.repeat, care, store)
                series += found
                for each in found:
                    report.say(f"{each.row[0]}: {each.row[1]} ms CPU per commit")
    title = f"{chosen.repeat} times {chosen.commits} commits, each of {PARTITIONS} partitions"
    report.show(title, _HEADS, [each.row for each in series])
    _save(vars(chosen), series)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
