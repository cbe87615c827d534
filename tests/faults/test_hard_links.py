"""A local file system without hard links, on which no commit could land, is told as what it is at the start."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka import topics
from tests.support.process.command import Command
from tests.support.stores.no_links import without_links

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy

pytestmark = [pytest.mark.faults, pytest.mark.integration]

ERRNOS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # of FAT and exFAT, of s3fs, of other FUSE file systems


@pytest.mark.parametrize(
    ("number", "there"), [(ERRNOS[0], False), *((number, True) for number in ERRNOS)], ids=errno.errorcode.get
)
def test_a_file_system_without_hard_links_is_refused_at_each_start(
    kafka: Cluster,
    deploy: Deploy,
    tmp_path: Path,
    number: int,
    there: bool,  # noqa: FBT001 - a parameter
) -> None:
    """With exit code 4 and a hint; nothing of the table is touched, nothing of the probe is left."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, [b"record"])
    deployment = deploy(topic)
    if there:
        deployment.once()
        topics.produce(kafka.bootstrap, topic, [b"one more"])
    config = deployment.config()
    environ = without_links(tmp_path, number)
    before = files(tmp_path)
    for _ in range(3):  # as a supervisor does
        with Command("run", config, "--once", environ=environ) as ingestor:
            ended = ingestor.end()
        assert ended.code == 4, ended.stderr
        assert f"has no hard links ({os.strerror(number)})" in ended.last_line
        assert "FAT" in ended.last_line
        assert files(tmp_path) == before
    deployment.once()  # where there are links all is well
    assert deployment.log().rows == 1 + there


def files(folder: Path) -> dict[Path, int]:
    """Return every file below a folder, logs apart, with its size."""
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".log"}
