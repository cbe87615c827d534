"""A broker that dies and comes back, as operators see it: everything names Kafka, and no level vanishes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.asking import Site, total
from tests.support.process.ingestors import eventually

if TYPE_CHECKING:
    from tests.support.process.ingestors import Deploy

pytestmark = [pytest.mark.integration, pytest.mark.faults]

LEVELS = (
    "ingestor_lag_records",
    "ingestor_committed_offset",
    "ingestor_behind_seconds",
    "ingestor_assigned_partitions",
    "ingestor_last_commit_timestamp_seconds",
    "ingestor_route_state",
)


def levels(site: Site) -> set[str]:
    """Return the names of the levels that are shown."""
    return {name for name in LEVELS for series in site.scrape() if series.startswith(name)}


def test_a_kafka_that_dies_is_named_everywhere_and_no_level_vanishes(deploy: Deploy) -> None:
    """Also when the session ends meanwhile, and takes the partitions with it."""
    with Cluster() as cluster:
        topic = topics.create(cluster.bootstrap, partitions=2)
        both = [topics.Record(value=b"x", partition=number % 2) for number in range(20)]  # each has a level then
        topics.produce(cluster.bootstrap, topic, both)
        deployment = deploy(topic, http={"port": 0}, bootstrap=cluster.bootstrap)
        ingestor = deployment.start()
        site = Site(ingestor)
        eventually(lambda: total(site.scrape(), "ingestor_records_total") == 20, failure=ingestor.log_tail)
        eventually(lambda: total(site.scrape(), "ingestor_lag_records") == 0, failure=ingestor.log_tail)
        eventually(lambda: site.get("/readyz") == (200, "ready\n"), failure=lambda: site.get("/readyz")[1])
        assert total(site.scrape(), "ingestor_route_state", state="running") == 1
        assert levels(site) == set(LEVELS)

        cluster.kill()
        eventually(lambda: total(site.scrape(), "ingestor_kafka_up") == 0, failure=ingestor.log_tail)
        code, text = site.get("/readyz")
        assert code == 503
        assert re.search(r"Kafka is away: .*no broker at 127.0.0.1:\d+ can be reached", text), text
        health = json.loads(site.get("/actuator/health")[1])
        assert health["components"]["kafka"]["details"]["reason"].startswith("Kafka is away")
        assert site.status()["reasons"][0].startswith("Kafka is away")
        assert site.status()["routes"]["route"]["state"] == "waiting"
        assert ingestor.events("not ready")[-1]["reasons"][0].startswith("Kafka is away")
        eventually(lambda: {"lost"} & {each["event_kind"] for each in ingestor.events("rebalance")})
        assert levels(site) == set(LEVELS)
        assert site.status()["stale"]
        shown = site.status()["routes"]["route"]["partitions"]
        assert sum(each["committed_offset"] + 1 for each in shown) == 20

        cluster.start()
        eventually(lambda: site.get("/readyz")[0] == 200, failure=ingestor.log_tail)
        topics.produce(cluster.bootstrap, topic, [b"y"] * 10)
        eventually(lambda: total(site.scrape(), "ingestor_records_total") == 30, failure=ingestor.log_tail)
        assert ingestor.events("ready")
        assert not site.status()["stale"]
        ingestor.stop()
        assert ingestor.wait() == 0


def test_a_start_without_kafka_says_so(deploy: Deploy) -> None:
    """From the first answer on."""
    deployment = deploy("events", http={"port": 0}, bootstrap="127.0.0.1:1")
    site = Site(deployment.start())
    eventually(lambda: "starting: Kafka is away" in site.get("/readyz")[1], failure=lambda: site.get("/readyz")[1])
    shown = site.scrape()
    assert total(shown, "ingestor_kafka_up") == 0
    assert total(shown, "ingestor_route_state", state="starting") == 1


def test_a_route_that_stops_at_its_start_is_stopped_until_it_runs_again(kafka: Cluster, deploy: Deploy) -> None:
    """Another route goes on, so the process stays."""
    lost, fine = topics.create(kafka.bootstrap), topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, lost, [b"x"] * 20)
    deployment = deploy.routes({"lost": {"topics": [lost]}, "fine": {"topics": [fine]}}, http={"port": 0})
    deployment.once()
    topics.produce(kafka.bootstrap, lost, [b"x"] * 20)
    topics.expire(kafka.bootstrap, lost, 0, 30)
    site = Site(deployment.start())
    eventually(lambda: total(site.scrape(), "ingestor_route_state", route="lost", state="stopped") == 1)
    assert "route lost was stopped: " in site.get("/readyz")[1]
    eventually(
        lambda: total(site.scrape(), "ingestor_lag_records", route="lost") == 10, failure=lambda: str(site.status())
    )
    eventually(lambda: total(site.scrape(), "ingestor_behind_seconds", route="lost") > 0)
    eventually(lambda: total(site.scrape(), "ingestor_route_state", route="fine", state="running") == 1)
