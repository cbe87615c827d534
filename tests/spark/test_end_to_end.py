"""From Kafka to silver and quarantine, with a real broker, a running ingestor and a thousand small files to compact."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deltalake import DeltaTable

from ingestor.config.load import load
from spark_jobs.compact import compact
from spark_jobs.parse import parse
from spark_jobs.plan import plan
from spark_jobs.plan.route import Route, route_of
from spark_jobs.rows.balance import Balance
from tests.support.kafka import topics
from tests.support.process.background import Background
from tests.support.process.command import ingestor

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment

SMALL_FILES = 1_000
ROWS_PER_FILE = 5
AT_ONCE = 2_000
PARSE: dict[str, Any] = {
    "schema": "number INT, cob STRING",
    "rules": {"even": "number % 10 <> 7"},
    "cob": {"field": "cob"},
}


def records(first: int, count: int) -> list[bytes]:
    return [json.dumps({"number": number, "cob": "2026-01-31"}).encode() for number in range(first, first + count)]


def parsing(deployment: Deployment, **changed: Any) -> Path:
    """Return the deployment's configuration with a parse section."""
    path = deployment.config()
    document = yaml.safe_load(path.read_text()) | {"parse": {"route": {**PARSE, **changed}}}
    parsed = path.with_name("parse.yaml")
    parsed.write_text(yaml.safe_dump(document))
    return parsed


def route(deployment: Deployment, **changed: Any) -> Route:
    """Return the deployment's route as the jobs get it."""
    loaded = load(parsing(deployment, **changed))
    return route_of(loaded, "route", plan.make("route", loaded.parse["route"]))


def rows_of(table: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(
        zip(*(DeltaTable(table).to_pyarrow_table().column(name).to_pylist() for name in columns), strict=True)
    )


class Traffic(Background):
    """Produces a few records every half second while the `with` block runs."""

    def __init__(self, bootstrap: str, topic: str, first: int) -> None:
        super().__init__(self._produce)
        self.next = first
        self._place = (bootstrap, topic)

    def _produce(self) -> None:
        while not self._ending.wait(0.5):
            topics.produce(*self._place, records(self.next, ROWS_PER_FILE))
            self.next += ROWS_PER_FILE


@pytest.mark.soak
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_thousand_small_files_are_compacted_under_a_running_ingestor(
    spark: SparkSession, kafka: Cluster, deploy: Deploy
) -> None:
    """No commit fails, the audit finds every record once, and the parse, begun before, reads none a second time."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    deployment = deploy(topic, flush={"rows": ROWS_PER_FILE, "seconds": 1})
    ingestor = deployment.start()
    wanted = route(deployment)
    total, begun = 0, Balance()
    while len(deployment.log().data_files) < SMALL_FILES:
        topics.produce(kafka.bootstrap, topic, records(total, AT_ONCE))
        total += AT_ONCE
        deployment.wait_for_rows(total, seconds_max=180)
        if begun.raw == 0:
            begun = parse(spark, wanted)
    with Traffic(kafka.bootstrap, topic, total) as traffic:
        deployment.wait_for_commits(2)
        small = set(DeltaTable(deployment.table()).file_uris())
        summary = compact(spark, wanted.raw)
        left = small.intersection(DeltaTable(deployment.table()).file_uris())
        deployment.wait_for_commits(2)
    total = traffic.next
    assert summary is not None
    assert summary.files_before >= SMALL_FILES
    assert summary.files_after < summary.files_before
    assert len(left) < 50
    deployment.expect([topic])
    ingestor.stop()
    assert ingestor.wait() == 0
    deployment.command("audit", "--against-kafka")
    silver = sum(number % 10 != 7 for number in range(total))
    both = begun + parse(spark, wanted)
    assert both == Balance(raw=total, silver=silver, quarantine=total - silver)
    numbers = [number for (number,) in rows_of(wanted.settings.table, "number")]
    assert numbers == [number for number in range(total) if number % 10 != 7]
    where = rows_of(wanted.settings.quarantine, "stream_partition", "stream_offset")
    assert len(set(where)) == total - silver


@pytest.mark.integration
def test_a_bad_record_becomes_a_dead_letter_and_comes_back_as_a_good_one(
    spark: SparkSession, kafka: Cluster, deploy: Deploy
) -> None:
    """Kafka, raw, quarantine, dead letters, replay, raw again, and silver once the rule is mended; nothing twice."""
    topic = topics.create(kafka.bootstrap, partitions=2)
    deployment = deploy(topic)
    topics.produce(kafka.bootstrap, topic, records(0, 20))
    deployment.once()
    assert parse(spark, route(deployment)) == Balance(raw=20, silver=18, quarantine=2)

    config = parsing(deployment)
    for action in (["publish"], ["replay", "--yes"], ["publish"]):
        done = ingestor("dlq", action[0], config, *action[1:])
        assert done.code == 0, done.stderr
    letters = topics.read(kafka.bootstrap, f"{topic}-dlq")
    assert sorted(json.loads(letter.value() or b"")["number"] for letter in letters) == [7, 17]
    assert {dict(letter.headers() or ())["dlq.error.reason"] for letter in letters} == {b"rule:even"}

    deployment.once()
    deployment.expect([topic])
    mended = route(deployment, rules={})
    assert parse(spark, mended) == Balance(raw=2, silver=2)
    assert [number for (number,) in rows_of(mended.settings.table, "number")] == list(range(20))
