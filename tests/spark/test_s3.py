"""Spark beside delta-rs on S3: the store's condition decides, and a store without it is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from tests.support.process.beside import race
from tests.support.process.quick_java import quick_java
from tests.support.silver import Lake, balance, event
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.fixtures import any_store, careless, moto, versity  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stores.stores import Store

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(600)]


def config_on(store: Store, lake: Lake) -> Path:
    """Copy a lake's raw table into a bucket; return the configuration that parses it there."""
    bucket = store.make_bucket()
    raw = lake.table("raw").to_pyarrow_table()
    write_deltalake(store.url(bucket, "raw"), raw, storage_options=store.storage_options)
    document = lake.document()
    document["routes"]["events"]["table"] = store.url(bucket, "raw")
    document["storage_options"] = store.storage_options
    path = lake.folder / "s3.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def parse(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_jobs", "parse", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=quick_java())


def test_a_table_on_s3_is_parsed(any_store: Store, lake: Lake) -> None:  # noqa: F811 - the fixture
    """The store's options are the ingestor's; tables, checkpoint and log entries all lie there."""
    lake.land(event("u1"), b"nope")
    config = config_on(any_store, lake)
    for expected in ((2, 1, 1, 0, 0), (0, 0, 0, 0, 0)):
        done = parse(config)
        assert done.returncode == 0, done.stderr
        assert balance(done.stdout.splitlines()[-1]) == expected
    raw = yaml.safe_load(config.read_text())["routes"]["events"]["table"]
    silver = DeltaTable(f"{raw}-silver", storage_options=any_store.storage_options)
    assert silver.to_pyarrow_table().column("user_id").to_pylist() == ["u1"]


@pytest.mark.soak
def test_a_store_that_ignores_the_condition_is_refused(careless: Store, lake: Lake) -> None:  # noqa: F811 - same
    """Before anything is written there that could be overwritten."""
    lake.land(event("u1"))
    refused = parse(config_on(careless, lake))
    assert refused.returncode == 4
    assert "has no conditional PUT" in refused.stderr.splitlines()[-1]


@pytest.mark.soak
def test_no_acknowledged_append_is_lost_to_slow_compactions_on_s3(any_store: Store) -> None:  # noqa: F811 - same
    """Each of Spark's log entries reaches the store late."""
    bucket = any_store.make_bucket()
    options = any_store.storage_options
    with FaultProxy(any_store.port) as proxy:
        proxy.on("PUT", r"_delta_log/[0-9]{20}\.json", Fault(Kind.DELAY, seconds=0.3), times=None)
        conf = {
            "spark.hadoop.fs.s3a.endpoint": proxy.url,
            "spark.hadoop.fs.s3a.access.key": options["AWS_ACCESS_KEY_ID"],
            "spark.hadoop.fs.s3a.secret.key": options["AWS_SECRET_ACCESS_KEY"],
            "spark.hadoop.fs.s3a.endpoint.region": options["AWS_REGION"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
        race(any_store.url(bucket), conf, options=options)
        assert proxy.hits >= 3
