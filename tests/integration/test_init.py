"""From nothing to an audited table by what `init` writes, as a newcomer does it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ingestor.config.load import load
from tests.support.kafka import topics
from tests.support.process.command import SECONDS_MAX, ingestor, refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration

COUNT = 100
NOBODY = "127.0.0.1:1"  # no broker listens there


@pytest.fixture
def topic(kafka: Cluster) -> str:
    name = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, name, [b"%d" % number for number in range(COUNT)])
    return name


def test_init_then_check_then_run_then_audit(kafka: Cluster, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "shop.yaml"
    flags = ["--brokers", kafka.bootstrap, "--topic", topic, "--table", "./lake/raw/orders", "--app-id", topic]

    made = ingestor("init", config, *flags)
    assert made.code == 0, made.stderr
    assert "1 topic, 2 partitions now" in made.stdout
    for command in (["check"], ["run", "--once", "--http-port", 0, "--log-level", "warning"], ["audit"]):
        name, *rest = command
        ended = ingestor(name, config, *rest)
        assert ended.code == 0, ended.stderr
        if name == "run":
            assert ended.stderr == f"ingestor: done, {COUNT} rows landed\n"
    assert f"{COUNT} rows" in ended.stdout
    assert "every offset once" in ended.stdout
    assert (tmp_path / "lake" / "raw" / "orders" / "_delta_log").is_dir()

    refused("init", config, *flags, code=2, words=["exists already", "--force"])
    assert ingestor("init", config, *flags, "--force").code == 0


def test_on_a_terminal_it_asks(kafka: Cluster, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "asked.yaml"
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{kafka.bootstrap}\n{topic}\n\nshop\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "ingestor", "init", config],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=SECONDS_MAX,
            check=False,
        )
        said = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, said
    settings = load(config, {})
    (route,) = settings.routes.values()
    assert (settings.app_id, route.topics) == ("shop", (topic,))
    assert route.table == str(tmp_path / "lake" / "raw" / topic)
    assert settings.kafka["bootstrap.servers"] == kafka.bootstrap


def test_what_is_wrong_is_told_and_nothing_is_written(kafka: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "shop.yaml"
    rest = ("--table", "./lake")
    refused("init", config, code=2, words=["--brokers, --topic, --table"], starts=1)
    refused("init", config, "--output", config, code=2, words=["don't go together"], starts=1)
    away = ("--brokers", NOBODY, "--topic", "a", *rest)
    refused("init", config, *away, code=4, words=[NOBODY, "--offline"], starts=1)
    missing = ("--brokers", kafka.bootstrap, "--topic", "no.such", *rest)
    refused("init", config, *missing, code=2, words=["Kafka has no topic no.such"], starts=1)
    assert list(tmp_path.iterdir()) == []
    assert ingestor("init", "--output", config, *away, "--offline").code == 0
    assert config.exists()
