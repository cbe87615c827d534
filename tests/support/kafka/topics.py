"""Topics of a test: made, filled in and outside of transactions, and read back.

Every function takes the bootstrap address, so that it works through a proxy as well.
"""

import functools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

SECONDS_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a test sends; without more, the key chooses the partition and the time is now."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0
    partition: int = -1


@dataclass(frozen=True, order=True)
class Landed:
    """Where the broker says it put a record."""

    partition: int
    offset: int


def unique(prefix: str = "topic") -> str:
    """A name that no other test has: of a topic, a group, a transactional id."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def create(
    bootstrap: str,
    name: str | None = None,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, object] | None = None,
) -> str:
    """Create a topic, wait until every partition has a leader, return its name."""
    name = name or unique()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key: str(value) for key, value in (config or {}).items()}
    topic = NewTopic(name, partitions, replicas, config=settings)
    admin.create_topics([topic])[name].result(SECONDS_MAX)
    _wait(lambda: _leaders(admin, name) == partitions, f"topic {name} got no leaders")
    return name


def delete(bootstrap: str, name: str) -> None:
    """Delete a topic and wait until the broker knows nothing of it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(SECONDS_MAX)
    _wait(lambda: name not in admin.list_topics(timeout=SECONDS_MAX).topics, f"{name} stays")


def groups(bootstrap: str) -> set[str]:
    """Return the consumer groups that there are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {group.group_id for group in admin.list_consumer_groups().result(timeout=30).valid}


def grow(bootstrap: str, name: str, partitions: int) -> None:
    """Give a topic more partitions, and wait until every one has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(SECONDS_MAX)
    _wait(lambda: _leaders(admin, name) == partitions, f"topic {name} got no leaders")


def expire(bootstrap: str, name: str, partition: int, before: int) -> None:
    """Let the records before an offset vanish, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    position = TopicPartition(name, partition, before)
    admin.delete_records([position])[position].result(SECONDS_MAX)


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record | bytes | None],
    config: Mapping[str, object] | None = None,
) -> list[Landed]:
    """Send records, wait for the acknowledgement of all, say where each one landed."""
    limits = {"linger.ms": 5, "delivery.timeout.ms": int(SECONDS_MAX * 1000)}
    producer = Producer({"bootstrap.servers": bootstrap, **limits, **(config or {})})
    return _send(producer, topic, records)


def transact(
    bootstrap: str,
    topic: str,
    records: Iterable[Record | bytes | None],
    *,
    end: Literal["commit", "abort", "hang"] = "commit",
    transactional_id: str | None = None,
    timeout_seconds: float = 60,
) -> list[Landed]:
    """Send records in one transaction of their own.

    One that hangs holds back all readers of committed records until the broker aborts it after
    `timeout_seconds`, or another transaction with the same id begins.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id or unique("transaction"),
            "transaction.timeout.ms": int(timeout_seconds * 1000),
        }
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    landed = _send(producer, topic, records)
    if end == "commit":
        producer.commit_transaction(SECONDS_MAX)
    elif end == "abort":
        producer.abort_transaction(SECONDS_MAX)
    return landed


def read(bootstrap: str, topic: str, *, isolation: str = "read_committed", seconds_max: float = 30) -> list[Message]:
    """All records of a topic from its start to the end seen now, in order within a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=seconds_max).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return _until_ends(consumer, set(partitions), seconds_max)
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, partitions: set[int], seconds_max: float) -> list[Message]:
    deadline = time.monotonic() + seconds_max
    messages: list[Message] = []
    while partitions:
        if time.monotonic() > deadline:
            msg = f"no end of partitions {sorted(partitions)} within {seconds_max} s"
            raise TimeoutError(msg)
        for message in consumer.consume(10_000, timeout=0.2):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
    return messages


def _send(producer: Producer, topic: str, records: Iterable[Record | bytes | None]) -> list[Landed]:
    landed: dict[int, Landed] = {}
    errors: list[KafkaError | None] = []

    def report(index: int, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            errors.append(error)
        else:
            landed[index] = Landed(partition, offset)

    count = 0
    for item in records:
        record = item if isinstance(item, Record) else Record(value=item)
        while not _offered(producer, topic, record, functools.partial(report, count)):
            producer.poll(0.1)  # the queue empties at the latest when its records time out
        producer.poll(0)
        count += 1
    producer.flush(SECONDS_MAX)
    if len(landed) != count:
        msg = f"{count - len(landed)} of {count} records were not acknowledged: {errors[:3]}"
        raise RuntimeError(msg)
    return [landed[index] for index in range(count)]


def _offered(
    producer: Producer,
    topic: str,
    record: Record,
    report: Callable[[KafkaError | None, Message], None],
) -> bool:
    try:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=report,
        )
    except BufferError:
        return False
    return True


def _leaders(admin: AdminClient, topic: str) -> int:
    known = admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
    return sum(partition.leader >= 0 for partition in known.partitions.values())


def _wait(condition: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            msg = f"{failure} within {SECONDS_MAX} s"
            raise TimeoutError(msg)
        time.sleep(0.05)
