"""`offsets --set` beside ingestors that run: refused while the group has members, and never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from deltalake import DeltaTable

from tests.support.kafka import topics
from tests.support.kafka.cluster import Cluster
from tests.support.process.command import ingestor, refused, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.process.ingestors import Deploy

pytestmark = pytest.mark.integration

COUNT = 50


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_not_set_while_the_group_has_members(kafka: Cluster, deploy: Deploy, protocol: str) -> None:
    """The next offset of a running ingestor is its own to say, else it would pass over records that it is to land."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic, kafka={"group.protocol": protocol}, flush={"seconds": 600})
    config = deployment.config()
    running = deployment.start()
    running.wait_for("placed")
    topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)
    version = deployment.log().version

    group = str(deployment.document["kafka"]["group.id"])
    arguments = ("offsets", config, "--set", f"{topic}:0=latest", "--yes")
    refused(*arguments, code=2, words=[f"group {group} has 1 member (", "nothing was changed", "--force"])

    assert deployment.log().version == version
    running.stop()
    assert running.wait() == 0
    assert len(deployment.expect([topic])) == COUNT
    assert ingestor(*arguments).code == 0, "the group is empty now"


def test_offsets_that_are_set_by_force_beside_an_ingestor_fence_it(kafka: Cluster, deploy: Deploy) -> None:
    """What it had in hand is dropped, and it goes on from where the person said."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic, flush={"seconds": 600})
    running = deployment.start()
    running.wait_for("placed")
    topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)

    forced = ingestor("offsets", deployment.config(), "--set", f"{topic}:0={COUNT - 10}", "--yes", "--force")

    assert forced.code == 0, forced.stderr
    assert f"offsets 0 to {COUNT - 11} ({COUNT - 10}) will not be landed" in forced.stderr
    assert f"{topic}:0: never committed → {COUNT - 10}, in version 1" in forced.stdout
    running.stop()
    assert running.wait() == 0
    deployment.once()
    rows = DeltaTable(str(deployment.table())).to_pyarrow_table()["stream_offset"].to_pylist()
    assert sorted(rows) == list(range(COUNT - 10, COUNT))


def test_adopting_rows_passes_over_nothing(kafka: Cluster, deploy: Deploy) -> None:
    """What somebody else has landed is no record that is left out."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, [b"v"] * COUNT)
    owner = deploy(topic)
    owner.once()
    heir = deploy(topic, folder=owner.folder)

    ended = ingestor("offsets", heir.config(), "--set", f"{topic}:0={COUNT}", "--yes")

    assert (ended.code, ended.stderr) == (0, "")


def test_a_cluster_that_does_not_tell_who_is_in_the_group_needs_force(tmp_path: Path) -> None:
    """Librdkafka's mock cluster does not know the question. Nobody knows then whether an ingestor runs."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    producer.produce("t", b"v", partition=0)
    producer.flush(10)
    config = write_config(tmp_path, f"{broker.host}:{broker.port}", "t")
    arguments = ("offsets", config, "--set", "t:0=latest", "--yes")

    refused(*arguments, code=4, words=["whether group t has members is not known", "nothing was changed", "--force"])

    assert not (tmp_path / "table").exists()
    assert ingestor(*arguments, "--force").code == 0


SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "clerk",
    "sasl.password": "clerk",
}


def test_a_user_who_may_not_describe_the_group_needs_force(tmp_path: Path) -> None:
    """The broker says no, and the line says what to grant."""
    listener = "listener.name.asking"
    users = 'username="admin" password="admin" user_admin="admin" user_clerk="clerk"'
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    settings = {
        f"{listener}.sasl.enabled.mechanisms": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with Cluster(config=settings, listeners={"ASKING": "SASL_PLAINTEXT"}) as cluster:
        topic = topics.create(cluster.bootstrap)
        topics.produce(cluster.bootstrap, topic, [b"v"] * COUNT)
        grant = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:clerk",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # held: one that is gone gives no answer
        for future in admin.create_acls([grant]).values():
            future.result(10)
        config = write_config(tmp_path, cluster.address("ASKING"), topic)
        document = yaml.safe_load(config.read_text())
        document["kafka"] |= SASL
        config.write_text(yaml.safe_dump(document))

        words = [f"whether group {topic} has members is not known", "GROUP_AUTHORIZATION_FAILED", "grant DESCRIBE"]
        refused("offsets", config, "--set", f"{topic}:0=5", "--yes", code=4, words=words)
        assert not (tmp_path / "table").exists()
        assert ingestor("offsets", config, "--set", f"{topic}:0=5", "--yes", "--force").code == 0
