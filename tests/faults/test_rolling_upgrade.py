"""A mixed pair in one group, this version and the one before it: an upgrade need not stop everything.

Both read and write the same log, so what either leaves there the other has to understand: txns, gaps, checkpoints, and
whatever a version adds to a commit. The version before comes out of git's history.
"""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka import topics
from tests.support.kafka.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy

pytestmark = [pytest.mark.integration, pytest.mark.faults]

REPOSITORY = Path(__file__).resolve().parents[2]
BEFORE = "c1ceb698a8fec73b2965d26bf6ee7aca349395ec"  # the last commit of the version before this one
PARTITIONS = 4
KILLS = 4  # there, and back again


@pytest.fixture
def before(tmp_path: Path) -> Mapping[str, str]:
    """What makes `python -m ingestor` run the version before this one."""
    command = ["git", "-C", str(REPOSITORY), "archive", BEFORE, "ingestor"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the version before this one ({BEFORE[:7]}) is not in git's history here: {error}")
    folder = tmp_path / "before"
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    environ = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    code = "import ingestor; print(ingestor.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(folder / "ingestor" / "__init__.py")
    return environ


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.soak), "consumer"])
def test_an_upgrade_one_by_one_under_kills_lands_each_record_once(
    kafka: Cluster, deploy: Deploy, before: Mapping[str, str], protocol: str
) -> None:
    """And back again: each process is killed in the midst of its work and comes back as the other version."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploy(topic, kafka={"group.protocol": protocol}, flush={"seconds": 0.2})
    rng = random.Random(1)
    # Under KIP-848 nobody takes over the name of a dead member before its session is out.
    names = [{"group_instance_id": name} if protocol == "classic" else {} for name in ("one", "other")]
    pair = [deployment.prepare(**name) for name in names]
    for process in pair:
        process.environ = dict(before)
        process.start()
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS, per_second=500) as traffic:
        for number in range(KILLS):
            deployment.wait_for_commits(rng.randint(2, 4))
            time.sleep(rng.uniform(0, 0.3))  # anywhere between two commits, or in one
            process = pair[number % 2]
            process.kill()
            process.environ = {} if process.environ else dict(before)
            process.start()
        deployment.wait_for_commits(4)
    assert deployment.expect([topic]).keys() == traffic.committed
    for process in pair:
        process.stop()
        assert process.wait() == 0, process.log_tail()

    assert "every offset once" in deployment.command("audit", "--against-kafka")
    deployment.once()
    deployment.judge_committed([topic])
