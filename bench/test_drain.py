"""End-to-end throughput as users compare releases: `ingestor run --once` on a real broker, timed by pytest-benchmark.

The time of a round is that of the whole process; records a second and CPU are told without starting up. Sizes come from
the environment: BENCH_RECORDS (of 1,000 B, and five times as many of 100 B), BENCH_REPEAT, BENCH_POOL.
"""

from __future__ import annotations

import os
import statistics
from typing import TYPE_CHECKING

import pytest

from bench import drain
from tests.support.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from bench.measure import Cost

COUNTS = drain.counts(int(os.environ.get("BENCH_RECORDS", "300000")))
ROUNDS = int(os.environ.get("BENCH_REPEAT", "3"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[drain.Bench]:
    """Topics that are filled and read once."""
    with Cluster(measured=True) as cluster:
        filled = drain.Bench(cluster.bootstrap, tmp_path_factory.mktemp("drain"), COUNTS)
        filled.fill()
        yield filled


@pytest.mark.parametrize("size", drain.SIZES)
def test_drain(benchmark: BenchmarkFixture, bench: drain.Bench, size: int) -> None:
    """All records of a topic into a new table."""
    started, _ = bench.drained(drain.EMPTY, 0)
    costs: list[Cost] = []
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: costs.append(bench.drained(drain.topic(size), COUNTS[size])[0]), rounds=ROUNDS
    )
    runs = [drain.Run(size, 0, "ingest", COUNTS[size], started, cost) for cost in costs]
    benchmark.extra_info["records_per_second"] = round(statistics.median(run.records_per_second for run in runs))
    benchmark.extra_info["cpu_us_per_record"] = round(statistics.median(run.cpu_micros for run in runs), 2)
    benchmark.extra_info["peak_mib"] = round(max(cost.rss_mib for cost in costs))
