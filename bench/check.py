"""Has it become slower? Short benchmarks, whose ratios are held against those that are stored: `make bench-check`.

Only ratios are compared, each of two things that were measured in turn in the same run: another machine, or a busy one,
moves both. The baseline is written by `python -m bench check --write`, on a machine that does nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench import drain, report
from bench.options import Sizes
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

BASELINE = Path(__file__).parent / "baseline.json"
_WORSE_BY_MAX = 0.15
_WRITE = "--write"
_SHORT, _LONG = 100, 3_000
_PROGRAMS = ("read", "objects", "write", "ingest")


def measure(chosen: Namespace) -> dict[str, float]:
    """Return every ratio by its name; smaller is better."""
    return {**_draining(chosen), **_committing(chosen), **_parsing(chosen)}


def _draining(chosen: Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    with Cluster(measured=True) as cluster, tempfile.TemporaryDirectory(prefix="ingestor-bench-") as folder:
        bench = drain.Bench(cluster.bootstrap, Path(folder), drain.counts(chosen.records))
        bench.fill()
        runs = [
            bench.run(program, size, repetition)
            for repetition in range(chosen.repeat)
            for size in drain.SIZES
            for program in _PROGRAMS
        ]
    for size in drain.SIZES:
        found[f"drain of {size} B: CPU over librdkafka in C and writing"] = statistics.median(drain.ratios(runs, size))
        rss = {name: max(r.whole.rss_mib for r in runs if (r.size, r.program) == (size, name)) for name in _PROGRAMS}
        found[f"drain of {size} B: peak memory over that of reading objects"] = rss["ingest"] / rss["objects"]
    return found


# What these two load would count as memory of the programs above: a child begins as a copy of us.


def _committing(chosen: Namespace) -> dict[str, float]:
    from bench import commit  # noqa: PLC0415
    from tests.support.stores.stores import VersityStore  # noqa: PLC0415

    found: dict[str, float] = {}
    with VersityStore() as s3:
        for place, store in (("disk", None), ("S3", s3)):
            series = commit.compare((_SHORT, _LONG), chosen.commits, chosen.repeat, "checkpoints", store)
            short, long = (statistics.median(timing.cpu_ms for timing in each.commits) for each in series)
            found[f"commit, {place}: CPU at {_LONG} log entries over that at {_SHORT}"] = long / short
    return found


def _parsing(chosen: Namespace) -> dict[str, float]:
    from bench import parse  # noqa: PLC0415

    taken = parse.run(chosen.rows, chosen.repeat)
    return {"parse: CPU over that of a bare write": statistics.median(parse.ratios(taken)["all"])}


def worse(found: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return the names of the ratios that are worse than the baseline by more than is allowed."""
    return [name for name, ratio in found.items() if ratio > baseline[name] * (1 + _WORSE_BY_MAX)]


def main(arguments: list[str]) -> int:
    """Measure, and compare with the baseline or write it."""
    sizes = Sizes("check", "Compare short benchmarks with the stored baseline.")
    sizes.add("records", 300_000, "records of 1,000 B, and five times as many of 100 B")
    sizes.add("repeat", 5, "repetitions of everything, interleaved")
    sizes.add("commits", 50, "commits measured on each log")
    sizes.add("rows", 1_000_000, "records parsed on Spark")
    write = _WRITE in arguments
    chosen = sizes.parse([argument for argument in arguments if argument != _WRITE])
    found = measure(chosen)
    if write:
        BASELINE.write_text(json.dumps({name: round(ratio, 3) for name, ratio in found.items()}, indent=1) + "\n")
        report.say(f"wrote {BASELINE.name}")
        return os.EX_OK
    baseline = json.loads(BASELINE.read_text())
    bad = worse(found, baseline)
    rows = [
        [name, f"{ratio:.2f}", f"{baseline[name]:.2f}", "worse" if name in bad else ""] for name, ratio in found.items()
    ]
    report.show("Ratios, beside the baseline", ("ratio", "now", "baseline", ""), rows)
    if bad:
        report.say(f"more than {_WORSE_BY_MAX:.0%} worse than the baseline: {'; '.join(bad)}")
        return 1
    return os.EX_OK
