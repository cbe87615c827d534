"""`ingestor demo`: exactly-once in a minute, on librdkafka's mock cluster and a table in a temporary folder.

The mock cluster runs in this process; ingestors run as child processes, which are really killed. The demo proves
nothing about real brokers; the tests do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ingestor.commands.audit import audit_routes
from ingestor.commands.demo_spark import SparkHalf
from ingestor.config.load import load
from ingestor.delta.open import open_existing
from ingestor.errors import DataLossError, IngestorError
from ingestor.kafka.mock import MockCluster

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

_TOPIC = "user.events.v1"
_RECORDS = 50_000  # a mock partition keeps only its newest 5 MB
_BAD_EVERY = 1_000  # so that quarantine has rows
_KILLS = 2
_PATIENCE_SECONDS = 60.0
_CONFIG = """\
app_id: demo
kafka:
  bootstrap.servers: {bootstrap}
  group.id: demo
  session.timeout.ms: 6000
routes:
  user-events:
    topics: [{topic}]
    table: ./lake/raw/user-events
    flush: {{rows: 1000, seconds: 1}}
parse:
  user-events:
    schema: "request_id LONG, user_id STRING, event_type STRING, cob STRING"
    required: [user_id]
    cob: {{field: cob}}
    partition_by: [cob_date]
http: null
log: {{level: WARNING}}
"""


def demo(tell: Callable[[str], None]) -> None:
    """Produce, ingest, kill, restart, audit, then parse and compact on Spark; raise if anything is wrong."""
    with tempfile.TemporaryDirectory(prefix="ingestor-demo-") as folder:
        _demo(Path(folder), tell)


def _demo(folder: Path, tell: Callable[[str], None]) -> None:
    kafka = MockCluster()
    tell(f"Kafka (librdkafka's mock cluster) listens on {kafka.bootstrap}")
    config = folder / "demo.yaml"
    config.write_text(_CONFIG.format(bootstrap=kafka.bootstrap, topic=_TOPIC))
    with SparkHalf(config, tell) as spark_half:
        rows = _show_ingestor(config, kafka, tell)
        spark_half.show(rows)


def _show_ingestor(config: Path, kafka: MockCluster, tell: Callable[[str], None]) -> int:
    """Produce, ingest, kill, restart and audit; return the table's number of rows."""
    produced = _produce(kafka)
    tell(f"produced {sum(produced.values()):,} records to {len(produced)} partitions of {_TOPIC}")
    loaded = load(config)
    table = loaded.routes["user-events"].table
    for kill in range(1, _KILLS + 1):
        _kill_in_the_middle(config, table, kill * 2)
        tell(f"killed the ingestor hard (SIGKILL) with the table at version {_version(table)}")
    more = _produce(kafka)
    tell(f"produced {sum(more.values()):,} more while no ingestor ran; restarted it until everything is drained")
    drained = subprocess.run([sys.executable, "-m", "ingestor", "run", str(config), "--once"], check=False)  # noqa: S603 - ourselves
    if drained.returncode != 0:
        raise IngestorError(
            f"the ingestor ended with exit code {drained.returncode}", hint="its last line above says why"
        )
    wanted = sum((produced + more).values())
    report = audit_routes(loaded, against_kafka=False, watched=False)["user-events"]
    for line in report.lines():
        tell(line)
    if not report.ok or report.rows != wanted:
        raise DataLossError(
            f"the table holds {report.rows:,} rows, {wanted:,} were produced", hint="report this, please"
        )
    return wanted


def _produce(kafka: MockCluster) -> Counter[int]:
    """Produce the demo's records; return how many each partition got."""
    return kafka.produce(_TOPIC, (_record(number) for number in range(_RECORDS)))


def _record(number: int) -> tuple[bytes, bytes]:
    user = f"u{number % 997}"
    value = json.dumps({"request_id": number, "user_id": user, "event_type": "click", "cob": "2024-01-31"})
    if number % _BAD_EVERY == 0:
        value = "no record of the schema"
    return user.encode(), value.encode()


def _kill_in_the_middle(config: Path, table: str, versions: int) -> None:
    """Start an ingestor, and kill it after a few more commits."""
    goal = max(0, _version(table)) + versions
    process = subprocess.Popen([sys.executable, "-m", "ingestor", "run", str(config)])  # noqa: S603 - ourselves
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while _version(table) < goal and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is not None:
            raise IngestorError(
                f"the ingestor ended by itself ({process.returncode})", hint="its last line above says why"
            )
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


def _version(table: str) -> int:
    found = open_existing(table, {})
    return -1 if found is None else found[0]
