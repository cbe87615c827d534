"""librdkafka's mock cluster for the demo: a broker inside this process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from ingestor.errors import IngestorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError, Message

_PATIENCE_SECONDS = 60.0


class MockCluster:
    """One mock broker with a producer."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, "linger.ms": 5, "log_level": 0})
        brokers = self._producer.list_topics(timeout=10).brokers
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())

    def produce(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> Counter[int]:
        """Produce keys and values; return how many each partition got."""
        acknowledged: Counter[int] = Counter()
        failures: list[str] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                acknowledged[message.partition() or 0] += 1

        for key, value in records:
            while True:
                try:
                    self._producer.produce(topic, value, key=key, on_delivery=on_delivery)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        self._producer.flush(_PATIENCE_SECONDS)
        if failures:
            raise IngestorError(f"the mock cluster refused {len(failures)} records: {failures[0]}", hint="try again")
        return acknowledged
