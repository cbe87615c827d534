"""How soon `/livez` and `/metrics` answer when it matters: while a backlog drains, and while the store says nothing."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench import measure, report
from bench.options import Sizes
from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.ingestors import Deploy
from tests.support.stores.faultproxy import FaultProxy
from tests.support.stores.stores import MotoStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.process.ingestors import Deployment, Ingestor

RECORD_BYTES = 1_000
PARTITIONS = 6
SECONDS_MAX = 600.0
_PATHS = ("/livez", "/metrics")
_EVERY_SECONDS = 0.02
_SILENCE_SECONDS = 20.0
_HEADS = ("answer", "asked", "ms, median", "99 %", "most")


@dataclass
class Answers:
    """How long the answers of one time took, by path, in milliseconds."""

    during: str
    millis: dict[str, list[float]] = field(default_factory=lambda: {path: [] for path in _PATHS})

    def ask(self, ingestor: Ingestor, until: Callable[[], bool]) -> None:
        """Ask again and again, each time on a new connection, as probes do."""
        host = urlsplit(ingestor.wait_for("http server listens")[0]["url"]).netloc
        while not until():
            for path in _PATHS:
                started = time.perf_counter()
                connection = HTTPConnection(host, timeout=30)
                connection.request("GET", path)
                connection.getresponse().read()
                connection.close()
                self.millis[path].append(1000 * (time.perf_counter() - started))
            time.sleep(_EVERY_SECONDS)

    @property
    def rows(self) -> list[list[str]]:
        """The answers as rows of a table."""
        return [
            [
                f"{path} {self.during}",
                f"{len(millis):,}",
                *(
                    f"{each:.1f}"
                    for each in (statistics.median(millis), statistics.quantiles(millis, n=100)[98], max(millis))
                ),
            ]
            for path, millis in self.millis.items()
        ]


def main(arguments: Sequence[str] = ()) -> int:
    """Measure, print and save."""
    sizes = Sizes("probe", "The time of answers over HTTP")
    sizes.add("records", 1_000_000, f"records of {RECORD_BYTES:,} B in the backlog")
    options = sizes.parse(list(arguments))
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster(measured=True) as kafka,
        Deploy(Path(name), kafka.bootstrap) as deploy,
    ):
        found = [_backlog(kafka, deploy, options.records), _silence(kafka, deploy)]
    report.show("Answers over HTTP", _HEADS, [row for answers in found for row in answers.rows])
    report.save("probe", vars(options), millis={answers.during: answers.millis for answers in found})
    return 0


def _backlog(kafka: Cluster, deploy: Deploy, records: int) -> Answers:
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    produce = [sys.executable, "-m", "bench.children", "produce", kafka.bootstrap, topic, RECORD_BYTES, records]
    measure.run(produce, seconds_max=SECONDS_MAX)
    report.say(f"{records:,} records wait")
    deployment = deploy(topic, http={"port": 0}, flush={"seconds": 60})
    answers = Answers("while a backlog drains")
    ingestor = deployment.start()
    ingestor.wait_for("placed")
    answers.ask(ingestor, lambda: _landed(deployment) >= records)
    ingestor.kill()
    return answers


def _landed(deployment: Deployment) -> int:
    return deployment.log().rows


def _silence(kafka: Cluster, deploy: Deploy) -> Answers:
    answers = Answers("while the store hangs")
    topic = topics.create(kafka.bootstrap)
    with MotoStore() as store, FaultProxy(store.port) as proxy:
        options = store.options(proxy.url)
        deployment = deploy(topic, table=store.url(store.make_bucket()), storage_options=options, http={"port": 0})
        ingestor = deployment.start()
        topics.produce(kafka.bootstrap, topic, [b"x"])
        ingestor.wait_for("committed")
        proxy.silence()
        topics.produce(kafka.bootstrap, topic, [b"x"] * 1000)
        over = time.monotonic() + _SILENCE_SECONDS
        answers.ask(ingestor, lambda: time.monotonic() > over)
        ingestor.kill()
    return answers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
