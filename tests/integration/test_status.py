"""`ingestor status` beside a real process: by its configuration and by its address, while it runs and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.kafka import topics
from tests.support.process.asking import Site
from tests.support.process.command import ingestor, refused
from tests.support.process.ingestors import ROUTE

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy

pytestmark = pytest.mark.integration

COUNT = 50


def test_status_tells_how_a_process_is(kafka: Cluster, deploy: Deploy) -> None:
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)
    deployment = deploy(topic, http={"port": 0})
    process = deployment.start()
    site = Site(process)
    deployment.wait_for_rows(COUNT)
    deployment.wait_for(lambda: site.status()["ready"])
    config = deployment.folder / "status.yaml"
    port = int(site.url.rpartition(":")[2])
    config.write_text(yaml.safe_dump({**deployment.document, "http": {"port": port}}))

    by_config = ingestor("status", config)
    assert by_config.code == 0, by_config.stderr
    assert by_config.stdout.startswith(f"ready · {deployment.app_id} ")
    (line,) = (line for line in by_config.stdout.splitlines() if line.startswith(ROUTE))
    assert line.split()[1] == "running"
    assert "version " in line

    by_url = ingestor("status", site.url, "--json")
    assert by_url.code == 0, by_url.stderr
    assert list(json.loads(by_url.stdout)["routes"]) == [ROUTE]

    process.stop()
    assert process.wait() == 0
    refused("status", config, code=1, words=["does not answer", "start it"], starts=1)


def test_a_stopped_route_is_told_with_its_reason(kafka: Cluster, deploy: Deploy) -> None:
    good, gone = (topics.create(kafka.bootstrap) for _ in range(2))
    for topic in (good, gone):
        topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)
    routes = {name: {"topics": [topic]} for name, topic in (("good", good), ("gone", gone))}
    deployment = deploy.routes(routes, http={"port": 0})
    process = deployment.start()
    for route in routes:
        deployment.wait_for_rows(COUNT, route=route)
    site = Site(process)
    (deployment.table("gone") / "_delta_log").rename(deployment.folder / "taken-away")
    topics.produce(kafka.bootstrap, gone, [b"v"])
    deployment.wait_for(lambda: site.status()["routes"]["gone"]["state"] == "stopped")

    told = refused("status", site.url, code=1, words=["is not well", "route gone was stopped"], starts=1)
    lines = told.stdout.splitlines()
    (first, second) = (line.split()[:2] for line in lines if line.startswith(("good ", "gone ")))
    assert (first, second) == (["gone", "stopped"], ["good", "running"])
