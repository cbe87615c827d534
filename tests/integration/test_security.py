"""Kafka behind TLS: who has password or certificate gets in, and who has not is told so, without the password."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.support.judge.history import check_table, read_topics
from tests.support.kafka import topics
from tests.support.kafka.secure import PASSWORD, USER, SecureCluster
from tests.support.process.command import Command, ingestor, refused, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

COMMANDS = (("run", "--once"), ("check",), ("offsets",), ("audit", "--against-kafka"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    found = SecureCluster(tmp_path_factory.mktemp("secure"))
    try:
        found.start()
        yield found
    finally:
        found.cluster.close()


@pytest.mark.parametrize("by", ["password", "certificate"])
def test_records_land_over_tls(secure: SecureCluster, tmp_path: Path, by: str) -> None:
    """By SCRAM, and by a certificate of one's own; the audit reads on the same terms."""
    topic = topics.create(secure.cluster.bootstrap, partitions=2)
    topics.produce(secure.cluster.bootstrap, topic, [b"%d" % number for number in range(100)])
    client = secure.by_password() if by == "password" else secure.by_certificate()
    config = write_config(tmp_path, str(client["bootstrap.servers"]), topic, kafka=client)
    done = ingestor("run", config, "--once")
    assert done.code == 0, done.stderr
    check_table(read_topics(secure.cluster.bootstrap, [topic]), tmp_path / "table", "shop")
    audit = ingestor("audit", config, "--against-kafka")
    assert audit.code == 0, audit.stderr
    assert PASSWORD not in done.stderr + done.stdout + audit.stderr + audit.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_wrong_password_is_told_at_once_and_never_shown(
    secure: SecureCluster, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Whoever mistyped it need not wait until the broker is given up."""
    topic = topics.create(secure.cluster.bootstrap)
    right = write_config(tmp_path, secure.cluster.bootstrap, topic)
    topics.produce(secure.cluster.bootstrap, topic, [b"v"])
    assert ingestor("run", right, "--once").code == 0
    secret = "hunter2-of-orders"
    client = secure.by_password(sasl_password=secret)
    config = write_config(tmp_path, str(client["bootstrap.servers"]), topic, kafka=client)
    ended = refused(command[0], config, *command[1:], code=4, words=["invalid credentials", "sasl"])
    assert ended.seconds < 20
    assert secret not in ended.stderr + ended.stdout
    assert USER not in ended.last_line


def test_a_broker_of_another_authority_is_refused(secure: SecureCluster, tmp_path: Path) -> None:
    """Nobody must read from whoever sits in between."""
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    client = secure.by_password(ssl_ca_location=str(other))
    config = write_config(tmp_path, str(client["bootstrap.servers"]), "some-topic", kafka=client)
    refused("run", config, "--once", code=4, words=["certificate verify failed", "ssl.ca.location"])


def test_a_client_of_another_authority_is_refused(secure: SecureCluster, tmp_path: Path) -> None:
    """Kafka's client hears no reason, only that it was hung up on during the handshake; that is told."""
    client = secure.by_certificate(trustme.CA())
    config = write_config(tmp_path, str(client["bootstrap.servers"]), "some-topic", kafka=client)
    refused("check", config, code=4, words=["SSL"])


@pytest.mark.faults
def test_a_broker_behind_tls_that_is_killed_comes_back(secure: SecureCluster, tmp_path: Path) -> None:
    """A handshake that is cut off in its middle is no refusal."""
    topic = topics.create(secure.cluster.bootstrap)
    client = secure.by_password()
    config = write_config(tmp_path, str(client["bootstrap.servers"]), topic, kafka=client, flush={"seconds": 0.3})
    with Command("run", config) as running:
        topics.produce(secure.cluster.bootstrap, topic, [b"v"])
        running.wait_for("committed")
        secure.cluster.kill()
        secure.cluster.start()
        topics.produce(secure.cluster.bootstrap, topic, [b"v"])
        running.wait_for("committed", count=2)
        running.signal(signal.SIGTERM)
        assert running.end().code == 0
    check_table(read_topics(secure.cluster.bootstrap, [topic]), tmp_path / "table", "shop")
