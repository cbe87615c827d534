"""The whole ingestor on S3: real processes, a real broker, a store that keeps its promises and one that does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from ingestor.config.load import check
from ingestor.delta.table import RawTable
from ingestor.ingest.maintenance import Maintenance
from ingestor.records import RawSchema
from tests.support.kafka import topics
from tests.support.process.command import ingestor, refused
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster
    from tests.support.stores.stores import Store, VersityStore

pytestmark = [pytest.mark.faults, pytest.mark.integration]


def _config(folder: Path, kafka: Cluster, topic: str, url: str, storage_options: dict[str, str]) -> Path:
    options = "\n".join(f'  {key}: "{value}"' for key, value in storage_options.items())
    path = folder / "config.yaml"
    path.write_text(
        f"""\
app_id: shop
kafka: {{bootstrap.servers: "{kafka.bootstrap}", group.id: {topic}}}
storage_options:
{options}
http: null
routes:
  route: {{topics: [{topic}], table: "{url}", flush: {{rows: 100}}}}
"""
    )
    return path


def test_records_land_in_an_s3_table_and_the_audit_agrees(kafka: Cluster, moto: Store, tmp_path: Path) -> None:
    """Twice, so that the second run starts from what the first left."""
    topic = topics.create(kafka.bootstrap, partitions=3)
    url = moto.url(moto.make_bucket())
    config = _config(tmp_path, kafka, topic, url, moto.storage_options)
    for _ in range(2):
        topics.produce(kafka.bootstrap, topic, [b"%d" % number for number in range(500)])
        done = ingestor("run", config, "--once")
        assert done.code == 0, done.stderr
    audit = ingestor("audit", config, "--against-kafka")
    assert audit.code == 0, audit.stderr + audit.stdout
    assert "1,000 rows" in audit.stdout


def test_a_store_that_ignores_the_condition_is_refused(kafka: Cluster, careless: Store, tmp_path: Path) -> None:
    """Before anything is written that could be overwritten."""
    topic = topics.create(kafka.bootstrap)
    bucket = careless.make_bucket()
    config = _config(tmp_path, kafka, topic, careless.url(bucket), careless.storage_options)
    refused("run", config, "--once", code=4, words=["no conditional PUT"])
    assert not [key for key in careless.objects(bucket) if "_ingestor_probe" not in key]


def test_once_says_why_the_store_does_not_answer(kafka: Cluster, moto: Store, tmp_path: Path) -> None:
    """Whoever reads the last line only must not have to look further."""
    topic = topics.create(kafka.bootstrap)
    with FaultProxy(moto.port) as proxy:
        proxy.on("*", "", Fault(Kind.STATUS_BEFORE, status=503), times=None)
        options = moto.options(proxy.url, max_retries="1", retry_timeout="1s")
        config = _config(tmp_path, kafka, topic, "s3://bucket/table", options)
        code = "from ingestor import cli; from ingestor.commands import run; run.ONCE_PATIENCE_SECONDS = 3; cli.main()"
        command = [sys.executable, "-c", code, "run", str(config), "--once"]
        for _ in range(3):  # as a supervisor does
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            last_line = done.stderr.splitlines()[-1]
            assert done.returncode == 4
            assert "table s3://bucket/table does not answer" in last_line
            assert "503" in last_line


def test_expired_log_entries_go_in_a_store_too(versity: VersityStore, tmp_path: Path) -> None:
    """Behind a checkpoint; the table is the same."""
    bucket = versity.make_bucket()
    options = versity.storage_options
    table = RawTable(versity.url(bucket), RawSchema(), options)
    for version in range(1, 5):
        table.attempt((), {"a": version}, {"commit_id": f"c{version}"})
        table.refresh()
    log = versity.data / bucket / "table" / "_delta_log"
    old = time.time() - 31 * 86_400
    for entry in log.iterdir():
        os.utime(entry, (old, old))
    document = {
        "app_id": "shop",
        "kafka": {"bootstrap.servers": "127.0.0.1:1", "group.id": "shop"},
        "storage_options": options,
        "routes": {"route": {"topics": ["a"], "table": table.uri}},
    }
    watcher = Mock()
    loaded = check(document, tmp_path / "config.yaml", {})
    Maintenance(loaded, "route", table, worker=Mock(), watcher=watcher).run()
    watcher.checkpointed.assert_called_once_with("route", 4)
    watcher.log_kept.assert_not_called()
    assert [entry.name for entry in log.glob("*.json")] == [f"{4:020d}.json"]
    assert RawTable(table.uri, RawSchema(), options).txns == {"a": 4}
