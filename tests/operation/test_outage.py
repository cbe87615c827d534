"""A store that dies and comes back, as operators see it: probes, metrics, alerts, and no record twice or lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka import topics
from tests.support.process.asking import Site, total
from tests.support.process.ingestors import eventually
from tests.support.stores.faultproxy import FaultProxy
from tests.support.stores.s3_commits import QUICK
from tests.support.tools import promtool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment
    from tests.support.stores.stores import Store

pytestmark = [pytest.mark.integration, pytest.mark.faults]

ALERTS = Path(__file__).parents[2] / "docker" / "prometheus" / "alerts.yml"


@pytest.fixture
def proxy(any_store: Store) -> Iterator[FaultProxy]:
    with FaultProxy(any_store.port) as proxying:
        yield proxying


@pytest.fixture
def topic(kafka: Cluster) -> str:
    return topics.create(kafka.bootstrap, partitions=3)


@pytest.fixture
def deployment(topic: str, any_store: Store, proxy: FaultProxy, deploy: Deploy) -> Deployment:
    """One that notices an outage soon, and tries again soon."""
    return deploy(
        topic,
        table=any_store.url(any_store.make_bucket()),
        storage_options={**QUICK, **any_store.options(proxy.url)},
        retry={"max_retries": 1, "base_seconds": 0.1, "max_seconds": 0.2},
        breaker={"failures": 2, "open_seconds": 1.0},
        http={"port": 0},
    )


def test_a_store_that_dies_is_told_everywhere_and_nothing_is_lost(
    deployment: Deployment, kafka: Cluster, topic: str, proxy: FaultProxy
) -> None:
    """`/readyz` says why, the breaker opens, probes and closes, and the lag goes back to 0."""
    topics.produce(kafka.bootstrap, topic, [b"before"] * 300)
    ingestor = deployment.start()
    site = Site(ingestor)
    eventually(lambda: site.get("/readyz")[0] == 200, failure=ingestor.log_tail)
    eventually(lambda: total(site.scrape(), "ingestor_records_total") == 300, failure=ingestor.log_tail)

    proxy.refuse()
    topics.produce(kafka.bootstrap, topic, [b"during"] * 300)
    eventually(lambda: site.get("/readyz")[0] == 503, failure=ingestor.log_tail)
    eventually(lambda: "breaker is open, the table's store does not answer" in site.get("/readyz")[1])
    assert site.get("/livez") == (200, "live\n")
    assert '"status": "DOWN"' in site.get("/actuator/health")[1]
    eventually(lambda: total(site.scrape(), "ingestor_breaker_state", state="open") == 1)
    eventually(lambda: site.status()["routes"]["route"]["state"] == "paused")
    assert site.status()["errors"]
    topics.produce(kafka.bootstrap, topic, [b"piled up"] * 300)
    eventually(lambda: total(site.scrape(), "ingestor_lag_records") == 600, failure=ingestor.log_tail)

    proxy.heal()
    eventually(lambda: total(site.scrape(), "ingestor_records_total") == 900, failure=ingestor.log_tail)
    eventually(lambda: total(site.scrape(), "ingestor_breaker_state", state="closed") == 1)
    eventually(lambda: total(site.scrape(), "ingestor_lag_records") == 0)
    assert site.get("/readyz") == (200, "ready\n")
    states = [event["state"] for event in ingestor.events("breaker")]
    assert states[:2] == ["open", "half_open"]
    assert states[-2:] == ["half_open", "closed"]
    ingestor.stop()
    assert ingestor.wait() == 0
    assert "900 rows" in deployment.command("audit", "--against-kafka")


def test_the_alert_fires_in_an_outage_and_ends_after_it(
    deployment: Deployment, kafka: Cluster, topic: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Over what was really scraped, as if once a minute."""
    if promtool.executable() is None:
        pytest.skip(promtool.HINT)
    ingestor = deployment.start()
    site = Site(ingestor)
    eventually(lambda: site.get("/readyz")[0] == 200, failure=ingestor.log_tail)
    scrapes = [site.scrape() for _ in range(3)]
    proxy.refuse()
    topics.produce(kafka.bootstrap, topic, [b"x"])
    eventually(lambda: total(site.scrape(), "ingestor_breaker_state", state="open") == 1, failure=ingestor.log_tail)
    for _ in range(4):
        scrapes.append(site.scrape())
        eventually(lambda: total(site.scrape(), "ingestor_breaker_state", state="open") == 1)
    proxy.heal()
    eventually(lambda: total(site.scrape(), "ingestor_breaker_state", state="closed") == 1, failure=ingestor.log_tail)
    scrapes += [site.scrape() for _ in range(6)]
    fires = {
        minute: promtool.firing(tmp_path, ALERTS, "IngestorStoreAway", scrapes, minute=minute) for minute in (2, 6, 12)
    }
    assert fires == {2: False, 6: True, 12: False}


def test_probes_answer_while_the_store_hangs(
    deployment: Deployment, kafka: Cluster, topic: str, proxy: FaultProxy
) -> None:
    """A store that says nothing at all holds up its own threads only."""
    topics.produce(kafka.bootstrap, topic, [b"x"] * 10)
    ingestor = deployment.start()
    site = Site(ingestor)
    eventually(lambda: total(site.scrape(), "ingestor_records_total") == 10, failure=ingestor.log_tail)
    proxy.silence()
    topics.produce(kafka.bootstrap, topic, [b"y"] * 10)
    eventually(lambda: site.get("/readyz")[0] == 503, failure=ingestor.log_tail)
    for path in ("/livez", "/metrics", "/api/status", "/", "/actuator/metrics"):
        assert site.get(path)[0] == 200


def test_a_start_without_a_store_is_live_and_says_what_it_waits_for(deployment: Deployment, proxy: FaultProxy) -> None:
    """The server is there before anything that may have to be waited for."""
    proxy.refuse()
    ingestor = deployment.start()
    site = Site(ingestor)
    assert site.get("/livez")[0] == 200
    eventually(lambda: "starting: route route: " in site.get("/readyz")[1], failure=ingestor.log_tail)
    assert "the store of table" in site.get("/readyz")[1]
    assert total(site.scrape(), "ingestor_route_state", state="starting") == 1
    eventually(lambda: site.status()["errors"], failure=ingestor.log_tail)
    proxy.heal()
    eventually(lambda: site.get("/readyz")[0] == 200, failure=ingestor.log_tail)


def test_a_port_in_use_is_refused_before_anything_is_touched(
    deployment: Deployment, topic: str, deploy: Deploy
) -> None:
    """Exit 2, with the way out; not even a table is created."""
    site = Site(deployment.start())
    port = int(site.url.rpartition(":")[2])
    second = deploy(topic, http={"port": port})
    second.refused(2, f"can't listen on 127.0.0.1:{port}", "choose another http.port")
    assert not second.table().exists()
