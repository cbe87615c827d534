"""`ingestor check` is a preflight: what `run` would refuse or wait for, it says, with the same exit code."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.command import Ended, ingestor, refused, write_config
from tests.support.process.ingestors import ROUTE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.process.ingestors import Deploy, Deployment
    from tests.support.stores.stores import Store

pytestmark = pytest.mark.integration

COUNT = 50
VALUES = [b"v"] * COUNT


def ingested(kafka: Cluster, deploy: Deploy, **settings: Any) -> tuple[str, Deployment]:
    """Return a topic whose records are in a deployment's table."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, VALUES)
    deployment = deploy(topic, **settings)
    deployment.once()
    return topic, deployment


def both_refuse(config: Path, code: int, *words: str) -> Ended:
    """See `check` and `run` refuse with one code, each time they are started; return what `check` said."""
    refused("run", config, "--once", code=code, words=words, starts=1)
    return refused("check", config, code=code, words=words)


def change(config: Path, **route: Any) -> Path:
    """Give the one route other settings."""
    document = yaml.safe_load(config.read_text())
    next(iter(document["routes"].values())).update(route)
    config.write_text(yaml.safe_dump(document))
    return config


def test_another_app_id_is_found(kafka: Cluster, deploy: Deploy) -> None:
    """Reading everything again under another name would double it."""
    topic, owner = ingested(kafka, deploy)

    ended = both_refuse(deploy(topic, folder=owner.folder).config(), 2, "already holds", "set app_id", topic)

    assert f"FAIL  partitions of {ROUTE}: " in ended.stdout
    assert "ok    partitions" in ingestor("check", owner.config()).stdout


def test_lost_records_are_found_per_partition(kafka: Cluster, deploy: Deploy) -> None:
    """With `skip` they are a note: that start would go on behind them."""
    topic, deployment = ingested(kafka, deploy)
    topics.produce(kafka.bootstrap, topic, VALUES)
    topics.expire(kafka.bootstrap, topic, 0, COUNT + 10)
    version = deployment.log().version
    lost = f"{topic}:0 offsets 50 to 59 (retention)"

    ended = both_refuse(deployment.config(), 3, lost, "on_data_loss: skip")

    assert f"note  partitions of {ROUTE}: Kafka no longer has {lost}; on_data_loss: fail stops at them" in ended.stdout
    skipping = ingestor("check", change(deployment.config(), on_data_loss="skip"))
    assert skipping.code == 0, skipping.stderr
    assert f"note  partitions of {ROUTE}: Kafka no longer has {lost}; on_data_loss: skip passes over" in skipping.stdout
    assert deployment.log().version == version


def test_a_recreated_topic_is_found(kafka: Cluster, deploy: Deploy) -> None:
    """It has as many records as before: only its id tells."""
    topic, deployment = ingested(kafka, deploy)
    topics.delete(kafka.bootstrap, topic)
    topics.create(kafka.bootstrap, topic)
    topics.produce(kafka.bootstrap, topic, VALUES)

    both_refuse(deployment.config(), 3, f"{topic}:0 offsets 0 to 49 (recreated)")


def test_an_unknown_scheme_is_found(kafka: Cluster, tmp_path: Path) -> None:
    """Also where the store may not be tried: it is no table that is still to be made."""
    topic = topics.create(kafka.bootstrap)
    config = write_config(tmp_path, kafka.bootstrap, topic, table="nowhere://bucket/table")

    both_refuse(config, 4, "nowhere://bucket/table", "URL")
    refused("check", config, "--no-probe", code=4, words=["nowhere://bucket/table"], starts=1)


def test_a_port_in_use_is_found(kafka: Cluster, tmp_path: Path) -> None:
    """Whoever listens there."""
    config = write_config(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config.write_text(config.read_text().replace("http: null", f"http: {{port: {port}}}"))
        both_refuse(config, 2, f"can't listen on 127.0.0.1:{port}", "http.port")

    ended = ingestor("check", config)
    assert ended.code == 0, ended.stderr
    assert f"ok    http: 127.0.0.1:{port} is free" in ended.stdout


GOOD = {"schema": "user_id STRING, amount DOUBLE", "rules": {"positive": "amount >= 0"}}


@pytest.mark.parametrize(
    ("parse", "words"),
    [
        ({"schema": "user_id STRNG"}, ("parse.events.schema", "STRNG")),
        ({"schema": "nowhere.avsc"}, ("parse.events.schema", "nowhere.avsc can't be read")),
        ({**GOOD, "rules": {"positive": "amuont >= 0"}}, ("parse.events.rules.positive", "amuont")),
        ({**GOOD, "required": ["user"]}, ("parse.events.required", "user is no field")),
    ],
)
def test_a_parse_section_that_spark_would_refuse_is_found(
    kafka: Cluster, tmp_path: Path, parse: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Without a JVM, before the ingestor is started that it comes with."""
    config = write_config(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap))
    document = yaml.safe_load(config.read_text())
    environ = {"PATH": "", "JAVA_HOME": str(tmp_path)}

    config.write_text(yaml.safe_dump({**document, "parse": {"events": parse}}))
    refused("check", config, code=2, words=words, environ=environ)

    config.write_text(yaml.safe_dump({**document, "parse": {"events": GOOD}}))
    ended = ingestor("check", config, environ=environ)
    assert ended.code == 0, ended.stderr
    assert "ok    parse of events: 2 fields, 1 rules" in ended.stdout


def test_a_store_without_conditional_put_is_found(kafka: Cluster, tmp_path: Path, careless: Store) -> None:
    """Only by writing, in a name of its own; who may not write there says --no-probe."""
    bucket = careless.make_bucket()
    config = write_config(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap), table=careless.url(bucket))
    document = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**document, "storage_options": careless.storage_options}))

    both_refuse(config, 4, "no conditional PUT")

    assert ingestor("check", config, "--no-probe").code == 0
    assert not [key for key in careless.objects(bucket) if "_ingestor_probe" not in key]


def test_a_check_of_a_store_leaves_nothing_there(kafka: Cluster, tmp_path: Path, moto: Store) -> None:
    """What it wrote to try the store is gone again."""
    bucket = moto.make_bucket()
    config = write_config(tmp_path, kafka.bootstrap, topics.create(kafka.bootstrap), table=moto.url(bucket))
    document = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**document, "storage_options": moto.storage_options}))

    ended = ingestor("check", config)

    assert ended.code == 0, ended.stderr
    assert "ok    store of events" in ended.stdout
    assert not moto.objects(bucket)


def test_a_topic_of_two_routes_is_found(kafka: Cluster, deploy: Deploy) -> None:
    """Two regexes that meet in a topic which exists."""
    topic = topics.create(kafka.bootstrap)
    routes = {"one": {"topics": [f"^{topic}$"]}, "two": {"topics": [f"^{topic}.*"]}}

    refused("check", deploy.routes(routes).config(), code=2, words=[f"topic {topic} matches the routes one and two"])


def test_a_broker_that_does_not_know_the_group_protocol_is_found(kafka: Cluster, deploy: Deploy) -> None:
    """It is tried in a group of its own, which is gone again."""
    with Cluster(config={"group.coordinator.rebalance.protocols": "classic"}) as cluster:
        topic = topics.create(cluster.bootstrap)
        deployment = deploy(topic, kafka={"group.protocol": "consumer"}, bootstrap=cluster.bootstrap)
        words = ("the broker does not know group.protocol: consumer", "leave kafka.group.protocol out")
        both_refuse(deployment.config(), 4, *words)

    there = deploy(topics.create(kafka.bootstrap), kafka={"group.protocol": "consumer"})
    ended = ingestor("check", there.config())
    assert ended.code == 0, ended.stderr
    assert f"ok    group: {there.app_id} has 0 members" in ended.stdout
    assert not [name for name in topics.groups(kafka.bootstrap) if name.startswith(there.app_id)]


def test_a_check_as_json_is_one_object(kafka: Cluster, deploy: Deploy) -> None:
    """A program reads the same from it, also when something is wrong."""
    topic, deployment = ingested(kafka, deploy)

    well = ingestor("check", deployment.config(), "--json")
    wrong = ingestor("check", deploy(topic, folder=deployment.folder).config(), "--json")

    assert (well.code, well.stderr) == (0, "")
    report = json.loads(well.stdout)
    assert (report["ok"], report["exit_code"]) == (True, 0)
    assert {one["status"] for one in report["checks"]} == {"ok"}
    assert wrong.code == 2
    report = json.loads(wrong.stdout)
    assert (report["ok"], report["exit_code"]) == (False, 2)
    (failed,) = (one for one in report["checks"] if one["status"] == "FAIL")
    assert (failed["name"], failed["exit_code"]) == (f"partitions of {ROUTE}", 2)
    assert "already holds" in failed["text"]
