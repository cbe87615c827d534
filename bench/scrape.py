"""What a scrape and a look at the status page cost with many partitions, over HTTP as Prometheus asks."""

from __future__ import annotations

import statistics
import sys
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from bench import report
from bench.options import Sizes
from ingestor.observe.http import HttpServer
from ingestor.observe.metrics import Level, Levels, Metrics
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_WARM_UP = 5
_HEADS = ("answer", "KiB", "CPU ms, median", "most", "wall ms, median", "most")
_ASKED = {
    "/metrics": "text/plain",
    "/metrics, OpenMetrics": "application/openmetrics-text; version=1.0.0",
    "/api/status": "*/*",
    "/livez": "*/*",
}


class _State:
    """As much to say as a process with so many partitions has."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "position": 123_456_789,
                "committed_offset": 123_456_788,
                "record_at": 1_700_000_000.0,
                "lag": 1000,
                "open_transaction_at": None,
            }
            for tp in partitions
        ]

    def live(self) -> bool:
        return True

    def readiness(self) -> list[str]:
        return []

    def components(self) -> Mapping[str, str | None]:
        return {}

    def status(self) -> Mapping[str, Any]:
        return {"routes": {"route": {"partitions": self._partitions}}}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print and save."""
    sizes = Sizes("scrape", "The cost of answers over HTTP")
    sizes.add("partitions", 1000, "partitions of one process")
    sizes.add("scrapes", 200, "answers that are measured")
    options = sizes.parse(list(arguments))
    tps = [TopicPartition("user.events.v1", number) for number in range(options.partitions)]
    metrics = Metrics()
    metrics.known("route")
    metrics.landed("route", rows=dict.fromkeys(tps, 1), payload_bytes=1, commit_seconds=0.1)
    metrics.show_levels(lambda: Levels({"route": 1}, [Level("route", tp, 123_456_788, 1000) for tp in tps]))
    server = HttpServer("127.0.0.1", 0, _State(tps), metrics.registry)
    server.start()
    measured = {
        name: _ask(server.port, name.partition(",")[0], accept, options.scrapes) for name, accept in _ASKED.items()
    }
    server.stop()
    rows = [
        [
            name,
            f"{size / 1024:.0f}",
            *(f"{each:.1f}" for times in (cpu, wall) for each in (statistics.median(times), max(times))),
        ]
        for name, (size, cpu, wall) in measured.items()
    ]
    report.show(f"Answers with {options.partitions:,} partitions", _HEADS, rows)
    report.save(
        "scrape",
        vars(options),
        measured={name: {"bytes": m[0], "cpu_ms": m[1], "wall_ms": m[2]} for name, m in measured.items()},
    )
    return 0


def _ask(port: int, path: str, accept: str, count: int) -> tuple[int, list[float], list[float]]:
    """Return the answer's size, and for each answer the CPU and the time that it took, in milliseconds."""
    connection = HTTPConnection("127.0.0.1", port)
    size, cpu, wall = 0, [], []
    for number in range(-_WARM_UP, count):
        cpu_before, wall_before = time.process_time(), time.perf_counter()
        connection.request("GET", path, headers={"Accept": accept})
        size = len(connection.getresponse().read())
        if number >= 0:
            wall.append(1000 * (time.perf_counter() - wall_before))
            cpu.append(1000 * (time.process_time() - cpu_before))
    return size, cpu, wall


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
