"""Real failures of real processes, and which of the shipped alerts a real Prometheus raises, after how long.

The rules' times are a twentieth of what is shipped; the table at the end says both.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, Producer

from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.asking import Site, total
from tests.support.process.background import Background
from tests.support.process.ingestors import Deploy, Deployment, Ingestor, eventually
from tests.support.process.prometheus import Alert, Prometheus, shortened
from tests.support.process.server import free_ports
from tests.support.stores.s3_commits import QUICK
from tests.support.tools.prometheus import PrometheusUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.stores.stores import Store

ALERTS = Path(__file__).parents[2] / "docker" / "prometheus" / "alerts.yml"
TIMES = 20
QUIET_SECONDS = 120.0  # 40 minutes as shipped
ALERT_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.2
RETRY = {"base_seconds": 1 / TIMES, "max_seconds": 30 / TIMES}
ALONE_SECONDS = 45.0  # 15 minutes as shipped: so long no other alert may join


class Steady(Background):
    """A producer of a few records a second to some topics, through whatever happens to the broker."""

    def __init__(self, bootstrap: str, *names: str) -> None:
        super().__init__(self._send)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._names = names

    def _send(self) -> None:
        number = 0
        while not self._ending.wait(0.1):
            number += 1
            for name in self._names:
                self._producer.produce(name, b"x", partition=number % 4)
            self._producer.poll(0)
        self._producer.flush(10)


class World:
    """Two processes of one group on a store in S3, one more process with two routes on a disk, and who watches them."""

    def __init__(self, cluster: Cluster, store: Store, deploy: Deploy, prometheus: Prometheus) -> None:
        self.cluster = cluster
        self.prometheus = prometheus
        self.pair_topic, self.fine_topic, self.doomed_topic = (
            topics.create(cluster.bootstrap, partitions=4) for _ in range(3)
        )
        quick: dict[str, Any] = {"bootstrap": cluster.bootstrap}
        self.pair = deploy.routes(
            {"pair": {"topics": [self.pair_topic], "table": store.url(store.make_bucket()), "retry": RETRY}},
            storage_options={**QUICK, **store.options(), "max_retries": "1"},
            breaker={"open_seconds": 60 / TIMES},
            **quick,
        )
        self.disk = deploy.routes(
            {"fine": {"topics": [self.fine_topic]}, "doomed": {"topics": [self.doomed_topic]}}, **quick
        )
        self.sites: dict[str, Site] = {}
        self.table: list[tuple[str, Alert, float]] = []

    def start(self, name: str, deployment: Deployment) -> Ingestor:
        """Start a process at an address that it keeps, and let Prometheus know it."""
        deployment.document["http"] = {"port": free_ports(1)[0]}
        ingestor = deployment.start()
        self.sites[name] = Site(ingestor)
        self.prometheus.watch(**{each: site.url.removeprefix("http://") for each, site in self.sites.items()})
        return ingestor

    def calm(self) -> None:
        """Wait until every route lands records again, and nothing fires any more."""
        started = time.time()
        for name, site in self.sites.items():
            eventually(partial(lands, site, started), seconds_max=180, failure=partial("{} lands nothing".format, name))
        eventually(lambda: not self.prometheus.firing(), seconds_max=180, failure=lambda: str(self.prometheus.firing()))

    def expect(self, fault: str, wanted: set[Alert], do: Callable[[], object]) -> None:
        """Let something fail; these alerts fire, no other one, and they go on as long as the fault does."""
        seen = self.prometheus.firing()
        do()
        began = time.monotonic()
        alone_until = began + ALERT_SECONDS_MAX
        while time.monotonic() < alone_until:
            now = self.prometheus.firing()
            self.table += [(fault, alert, time.monotonic() - began) for alert in sorted(now - seen)]
            seen |= now
            if seen >= wanted and alone_until == began + ALERT_SECONDS_MAX:
                alone_until = time.monotonic() + ALONE_SECONDS
            time.sleep(LOOK_SECONDS)
        assert seen == wanted, f"{fault}: {self.table}"
        assert self.prometheus.firing() == wanted, fault


def lands(site: Site, since: float) -> bool:
    """Tell whether every route of a process has committed since then."""
    try:
        found = site.scrape()
    except OSError:
        return False  # it is being started
    commits = [at for name, at in found.items() if name.startswith("ingestor_last_commit_timestamp_seconds")]
    return bool(commits) and min(commits) > since and site.get("/readyz")[0] == 200


@pytest.fixture
def world(any_store: Store, tmp_path: Path) -> Iterator[World]:
    try:
        prometheus = Prometheus(ALERTS, times=TIMES)
    except PrometheusUnavailableError as error:
        pytest.skip(str(error))
    with prometheus, Cluster() as cluster, Deploy(tmp_path, cluster.bootstrap) as deploy:
        yield World(cluster, any_store, deploy, prometheus)


def test_every_time_of_the_rules_is_shorter() -> None:
    text = shortened(ALERTS.read_text(), TIMES)
    assert "for: 9000ms" in text  # 3m
    assert "< 45.0" in text  # 900 s
    assert "> 30.0 * sum" in text  # 600 s
    assert "> 360.0" in text  # 7200 s
    assert "[3000ms]" in text  # 1m


@pytest.mark.soak
@pytest.mark.integration
@pytest.mark.faults
@pytest.mark.timeout(2400)
def test_each_failure_wakes_people_once_with_its_cause(
    world: World, any_store: Store, summary: Callable[[str], None]
) -> None:
    """Nothing fires while all is well."""
    one, two = (world.start(name, world.pair) for name in ("one", "two"))
    disk = world.start("disk", world.disk)
    with Steady(world.cluster.bootstrap, world.pair_topic, world.fine_topic, world.doomed_topic):
        world.calm()
        quiet(world)

        away = {Alert("IngestorKafkaAway", name) for name in ("one", "two", "disk")}
        world.expect("broker killed", away, world.cluster.kill)
        world.cluster.start()
        world.calm()

        stores = {Alert("IngestorStoreAway", name) for name in ("one", "two")}
        world.expect("store killed", stores, any_store.kill)
        any_store.start()
        world.calm()

        world.expect("one of two instances killed", {Alert("IngestorDown", "two")}, two.kill)
        two.start()
        world.calm()

        stopped = {Alert("IngestorRouteStopped", "disk doomed")}
        world.expect("one route stopped later", stopped, lambda: lose_meanwhile(world, disk))
        near = stopped | {Alert("IngestorRetentionNear", "disk doomed")}
        with Retention(world):
            world.expect("and retention comes near", near, lambda: None)
        disk.stop()
        disk.wait()
        world.disk.command("offsets", "--set", f"{world.doomed_topic}:0=earliest", "--yes")
        disk.start()
        world.calm()

        disk.stop()
        disk.wait()
        lose(world)
        world.expect("one route stopped at its start", stopped, disk.start)
    report(world, summary)
    for ingestor in (one, two):
        ingestor.stop()
        assert ingestor.wait() == 0


def quiet(world: World) -> None:
    """Nothing fires for a while, and everything lands."""
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        assert world.prometheus.firing() == set()
        time.sleep(LOOK_SECONDS)
    assert all(total(site.scrape(), "ingestor_records_total") > 0 for site in world.sites.values())


def lose_meanwhile(world: World, ingestor: Ingestor) -> None:
    """Let Kafka lose records of one partition while the process is held still for a moment."""
    ingestor.freeze()
    time.sleep(3)  # for some to come
    topics.expire(world.cluster.bootstrap, world.doomed_topic, 0, OFFSET_END)
    ingestor.thaw()


def lose(world: World) -> None:
    """Let Kafka lose records of one partition that the table lacks."""
    time.sleep(5)  # for some to come that are not in the table
    held = world.disk.txns("doomed")[world.disk.app_id_of(world.doomed_topic, 0)]
    topics.expire(world.cluster.bootstrap, world.doomed_topic, 0, held + 5)


class Retention(Background):
    """Lets records vanish from the beginning of one partition, nearly up to those that the table lacks."""

    def __init__(self, world: World) -> None:
        super().__init__(self._expire)
        self._world = world

    def _expire(self) -> None:
        world = self._world
        held = world.disk.txns("doomed")[world.disk.app_id_of(world.doomed_topic, 1)]
        step = held // 200
        for before in range(step, held - step, step):
            topics.expire(world.cluster.bootstrap, world.doomed_topic, 1, before)
            if self._ending.wait(1.0):
                return


def report(world: World, summary: Callable[[str], None]) -> None:
    """Print the table: seconds in this test, and at most how many minutes with the rules as they are shipped."""
    width = max(len(fault) for fault, _, _ in world.table)
    summary(f"alerts: {'quiet'.ljust(width)}  none in {QUIET_SECONDS:.0f} s ({QUIET_SECONDS * TIMES / 60:.0f} min)")
    for fault, alert, seconds in world.table:
        shown = f"{alert.name} ({alert.where})"
        summary(f"alerts: {fault.ljust(width)}  {shown:42} {seconds:5.1f} s (<= {seconds * TIMES / 60:.1f} min)")
