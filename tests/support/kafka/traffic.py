"""Producers that send on and on while a test does its worst, and know what became of every record.

    with Traffic(kafka.bootstrap, topic, partitions=6, abort_share=0.3) as traffic:
        ...
    assert deployment.expect([topic]).keys() == traffic.committed

Each producer is a thread. With `abort_share` each sends transactions of a few records, of several partitions, and
aborts that share of them; the transactions of several producers are open at the same time, and so their records lie
between each other.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer

from tests.support.kafka.topics import SECONDS_MAX, unique
from tests.support.process.background import Background

if TYPE_CHECKING:
    Coordinate = tuple[str, int, int]  # topic, partition, offset

_BATCH_SECONDS = 0.05
_VALUE_BYTES_MAX = 200


class Traffic(Background):
    """Steady traffic to one topic while the `with` block runs; all of it must have been acknowledged in the end."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        producers: int = 1,
        per_second: int = 300,
        abort_share: float | None = None,
        seed: int = 0,
    ) -> None:
        send = self._send_plainly if abort_share is None else partial(self._send_in_transactions, abort_share)
        super().__init__(*(partial(send, number, random.Random(f"{seed}/{number}")) for number in range(producers)))
        self.committed: set[Coordinate] = set()
        self.aborted: set[Coordinate] = set()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._records_per_batch = max(1, round(per_second * _BATCH_SECONDS / producers))
        self._lock = threading.Lock()
        self._failures: list[str] = []

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert not self._failures, f"{len(self._failures)} failures of producers: {self._failures[:3]}"

    def _send_plainly(self, number: int, rng: random.Random) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5})
        numbers = count()
        while not self._ending.is_set():
            batch = _Batch(self._failures)
            for _ in range(self._records_per_batch):
                self._send(producer, number, next(numbers), rng, batch)
            producer.flush(SECONDS_MAX)
            self._settle(batch, committed=True)
            self._ending.wait(_BATCH_SECONDS)

    def _send_in_transactions(self, abort_share: float, number: int, rng: random.Random) -> None:
        config = {"bootstrap.servers": self._bootstrap, "linger.ms": 5, "transactional.id": unique("traffic")}
        producer = Producer(config)
        producer.init_transactions(SECONDS_MAX)
        numbers = count()
        while not self._ending.is_set():
            batch = _Batch(self._failures)
            producer.begin_transaction()
            for _ in range(rng.randint(1, 2 * self._records_per_batch)):
                self._send(producer, number, next(numbers), rng, batch)
            producer.flush(SECONDS_MAX)
            time.sleep(rng.uniform(0, _BATCH_SECONDS))
            aborts = rng.random() < abort_share
            if aborts:
                producer.abort_transaction(SECONDS_MAX)
            else:
                producer.commit_transaction(SECONDS_MAX)
            self._settle(batch, committed=not aborts)

    def _send(self, producer: Producer, number: int, serial: int, rng: random.Random, batch: _Batch) -> None:
        value = b"%d/%d " % (number, serial) + rng.randbytes(rng.randint(0, _VALUE_BYTES_MAX))
        partition = rng.randrange(self._partitions)
        producer.produce(self._topic, value, b"%d" % serial, partition, on_delivery=batch.report)
        producer.poll(0)

    def _settle(self, batch: _Batch, *, committed: bool) -> None:
        with self._lock:
            (self.committed if committed else self.aborted).update(batch.acknowledged)


class _Batch:
    """What was sent together, and is committed or aborted together."""

    def __init__(self, failures: list[str]) -> None:
        self.acknowledged: list[Coordinate] = []
        self._failures = failures

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take note of an acknowledgement."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None or topic is None or partition is None or offset is None:
            self._failures.append(f"not acknowledged: {error}")
        else:
            self.acknowledged.append((topic, partition, offset))
