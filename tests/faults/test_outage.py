"""The store is gone for longer than a session, while records keep coming: memory is bounded and nobody is lost."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from confluent_kafka import Producer

from tests.support.kafka import topics
from tests.support.process.background import Background
from tests.support.stores.faultproxy import FaultProxy
from tests.support.stores.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Ingestor
    from tests.support.stores.stores import Store

pytestmark = [pytest.mark.faults, pytest.mark.integration]

MIB = 1 << 20
PARTITIONS = 4
PER_SECOND = 5_000
MEMORY_MIB = 256  # the default
OVERHEAD_MIB = 150  # of the interpreter and its libraries, beside the buffers that `memory` bounds
QUICK = {"timeout": "2s", "connect_timeout": "1s", "retry_timeout": "2s"}


class Flood(Background):
    """A producer that sends records at a steady rate while the `with` block runs."""

    def __init__(self, bootstrap: str, topic: str, value_bytes: int) -> None:
        super().__init__(self._send)
        self.sent = 0
        self._value_bytes = value_bytes
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
        self._topic = topic
        self._noise = np.random.default_rng(1).bytes(MIB)  # nothing that could be compressed

    def _send(self) -> None:
        started = time.monotonic()
        while not self._ending.wait(0.02):
            due = int((time.monotonic() - started) * PER_SECOND) - self.sent
            for _ in range(due):
                at = self.sent * 7919 % (MIB - self._value_bytes)
                value = self._noise[at : at + self._value_bytes]
                self._producer.produce(self._topic, value, partition=self.sent % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert self._producer.flush(30) == 0


class Gauge(Background):
    """Watches a process's memory while the `with` block runs; `highest_mib` is the most that it had."""

    def __init__(self, ingestor: Ingestor) -> None:
        super().__init__(self._watch)
        self._process = psutil.Process(ingestor.pid)
        self.highest_mib = 0.0

    def _watch(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends within the block
            while not self._ending.wait(0.05):
                self.highest_mib = max(self.highest_mib, self._process.memory_info().rss / MIB)


def test_an_outage_of_the_store_costs_neither_memory_nor_partitions(
    kafka: Cluster, deploy: Deploy, any_store: Store
) -> None:
    """10 s are longer than session and poll interval allow to be silent, and bring more than `memory` may hold."""
    breaker = {"failures": 1, "open_seconds": 1}  # a round of tries takes seconds, on a slow machine half of the outage
    endure(kafka, deploy, any_store, seconds=10, value_bytes=4_000, breaker=breaker, silent=False)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("silent", [False, True], ids=["refusing", "silent"])
def test_a_long_outage_of_the_store_costs_neither_memory_nor_partitions(
    kafka: Cluster,
    deploy: Deploy,
    any_store: Store,
    silent: bool,  # noqa: FBT001 - a parameter
) -> None:
    """90 s with the breaker as it comes."""
    endure(kafka, deploy, any_store, seconds=90, value_bytes=1_000, breaker={}, silent=silent)


def endure(
    kafka: Cluster,
    deploy: Deploy,
    store: Store,
    *,
    seconds: float,
    value_bytes: int,
    breaker: Mapping[str, float],
    silent: bool,
) -> None:
    """Cut the store off under load, and see that nothing but time is lost."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    bucket = store.make_bucket()
    with FaultProxy(store.port) as proxy:
        deployment = deploy(
            topic,
            table=store.url(bucket),
            storage_options=store.options(proxy.url, **QUICK),
            kafka={"session.timeout.ms": 6000, "max.poll.interval.ms": 6000},
            memory=f"{MEMORY_MIB}MiB",
            flush={"seconds": 1},
            retry={"max_retries": 1, "base_seconds": 0.1, "max_seconds": 0.5},
            breaker=breaker,
        )
        deployment.before_look = Mirror(store, bucket, deployment.table()).fetch
        ingestor = deployment.start()
        with Gauge(ingestor) as gauge:
            with Flood(kafka.bootstrap, topic, value_bytes) as flood:
                deployment.wait_for_commits(3)
                proxy.outage(seconds, silent=silent)
                ingestor.wait_for("breaker", seconds_max=seconds)
                time.sleep(seconds)
                deployment.wait_for(lambda: ingestor.events("breaker")[-1]["state"] == "closed", seconds_max=120)
            deployment.wait_for_rows(flood.sent, seconds_max=120)
        lag = {each["lag"] for each in json.loads(deployment.command("offsets", "--json"))["partitions"]}
        ingestor.stop()
        assert ingestor.wait() == 0
    print(f"{flood.sent} records, at most {gauge.highest_mib:.0f} MiB with memory of {MEMORY_MIB} MiB")  # noqa: T201
    deployment.judge_committed([topic])
    assert flood.sent > seconds * PER_SECOND
    assert gauge.highest_mib < MEMORY_MIB + OVERHEAD_MIB
    assert lag == {0}
    before_the_end = [event["event_kind"] for event in ingestor.events("rebalance")][:-1]
    assert before_the_end == ["assigned"]
