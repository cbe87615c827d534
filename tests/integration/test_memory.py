"""`memory` bounds what the process takes, whatever the records unpack to."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.kafka import topics

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Ingestor

pytestmark = pytest.mark.integration

PARTITIONS = 24
RECORDS = 480_000
RECORD_BYTES = 1_000
MEMORY_MIB = 64
OVERHEAD_MIB = 190  # of the interpreter and its libraries, and of what the allocator keeps


def fill(kafka: Cluster, codec: str) -> str:
    """Make a topic of 480 MB that packs at least 50 times; return its name."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    sent = {"compression.type": codec, "batch.size": 1_000_000, "linger.ms": 500, "queue.buffering.max.kbytes": 64_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 10_000, **sent})
    alike = random.Random(0).randbytes(RECORD_BYTES - 8)
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, b"%s%08d" % (alike, number), partition=number * PARTITIONS // RECORDS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return topic


def highest_mib(ingestor: Ingestor) -> float:
    """Return the most memory that a process has had when it ends."""
    status, highest = Path(f"/proc/{ingestor.pid}/status"), 0
    while ingestor.running:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
        highest = int(found[1]) if found else highest
        time.sleep(0.02)
    return highest / 1024


@pytest.mark.usefixtures("either_intake")
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_payloads_that_pack_well_take_no_more_memory(kafka: Cluster, deploy: Deploy, codec: str) -> None:
    """What a broker answers with is small enough, packed, for what it unpacks to."""
    deployment = deploy(fill(kafka, codec), memory=f"{MEMORY_MIB}MiB")
    ingestor = deployment.prepare("--once").start()
    highest = highest_mib(ingestor)
    assert ingestor.wait() == 0
    print(f"{codec}: at most {highest:.0f} MiB with memory of {MEMORY_MIB} MiB")  # noqa: T201
    assert deployment.log().rows == RECORDS
    assert highest < MEMORY_MIB + OVERHEAD_MIB
