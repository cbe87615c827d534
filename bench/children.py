"""The programs that `drain` measures beside the ingestor, each a process of its own.

produce BOOTSTRAP TOPIC SIZE RECORDS [PARTITIONS RUN]    fills a topic; not measured
trickle BOOTSTRAP TOPIC SIZE PER_SECOND SECONDS PARTITIONS    sends so many records each second; not measured
arrive BOOTSTRAP TOPIC RECORDS PARTITIONS FLUSH_SECONDS    tells how old records are when they come; not measured itself
read BOOTSTRAP TOPIC RECORDS [PARTITIONS]       librdkafka in C: records are taken in natively and dropped
objects BOOTSTRAP TOPIC RECORDS [PARTITIONS]    the same by confluent_kafka, which makes an object of each record
write FILE SIZE RECORDS                         what writing costs by pyarrow: ready columns into one Parquet file
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import time
from array import array
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench import reading
from bench.payloads import endless
from ingestor.ingest import buffer
from ingestor.ingest.parquet import ROW_GROUP_BYTES, parquet_writer
from ingestor.kafka.native.intake import NativeIntake
from ingestor.kafka.native.library import load, with_plugin
from ingestor.records import Columns, RawSchema
from ingestor.records import TopicPartition as Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTITIONS = 6
_CONSUME_RECORDS = 10_000
_POLL_SECONDS = 0.1
_BATCH_BYTES = 4 << 20  # what the ingestor takes in one poll, with
_ROW_BYTES = 28  # of all other columns
_DISTINCT_BYTES = 64 << 20  # of columns to write, which come again: more than any cache has
_SILENCE_SECONDS_MAX = 60.0
_PORTIONS_PER_SECOND = 50


class _Sender:
    """Sends runs of records to the partitions in turn; closing it waits until all are acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, linger_ms: int, run: int = 1) -> None:
        self._topic = topic
        runs = (itertools.repeat(number, run) for number in itertools.cycle(range(partitions)))
        self._partitions = itertools.chain.from_iterable(runs)
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": "zstd",
                "linger.ms": linger_ms,
                "batch.size": 1 << 20,
                "queue.buffering.max.kbytes": 64 << 10,
                "queue.buffering.max.messages": 500_000,
            }
        )

    def send(self, values: Iterable[bytes]) -> None:
        for value in values:
            partition = next(self._partitions)
            while True:
                try:
                    self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def close(self) -> None:
        if self._producer.flush(_SILENCE_SECONDS_MAX) or self._failures:
            raise RuntimeError(f"not every record was acknowledged: {self._failures[:3]}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failures.append(error)


def produce(bootstrap: str, topic: str, size: int, records: int, partitions: int = PARTITIONS, run: int = 1) -> None:
    """Send records of one size, runs to the partitions in turn, and wait until all are acknowledged."""
    sender = _Sender(bootstrap, topic, partitions, linger_ms=100, run=run)
    values = itertools.islice(endless(size), records)
    while chunk := list(itertools.islice(values, 1_000)):
        sender.send(chunk)
    sender.close()


def trickle(bootstrap: str, topic: str, size: int, per_second: int, seconds: int, partitions: int) -> None:
    """Send so many records each second, in even portions; a portion that is late is sent at once."""
    sender = _Sender(bootstrap, topic, partitions, linger_ms=5)
    values, portions = endless(size), _PORTIONS_PER_SECOND
    began = time.perf_counter()
    sent = 0
    for portion in range(1, seconds * portions + 1):
        time.sleep(max(0.0, began + portion / portions - time.perf_counter()))
        due = per_second * portion // portions
        sender.send(itertools.islice(values, due - sent))
        sent = due
    sender.close()


def arrive(bootstrap: str, topic: str, records: int, partitions: int, flush_seconds: float) -> array[float]:
    """Return how old each record is, in seconds, when a consumer that does nothing else has it."""
    consumer = Consumer(reading.options(bootstrap, flush_seconds))
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    ages = array("d")
    last = time.monotonic()
    while len(ages) < records:
        messages = consumer.consume(_CONSUME_RECORDS, 0.1)
        now = time.time()
        came = [now - message.timestamp()[1] / 1000 for message in messages if message.error() is None]
        if came:
            last = time.monotonic()
        elif time.monotonic() - last > _SILENCE_SECONDS_MAX:
            raise TimeoutError(f"nothing came for {_SILENCE_SECONDS_MAX:.0f} s")
        ages.extend(came)
    consumer.close()
    return ages


class _Objects:
    """A consumer whose records come as Python's objects."""

    def __init__(self, options: dict[str, str], tps: list[TopicPartition]) -> None:
        self._consumer = Consumer(options)
        self._consumer.assign(tps)

    def poll(self) -> tuple[int, list[int]]:
        """Return how many records came, and which partitions are at their end."""
        messages = self._consumer.consume(_CONSUME_RECORDS, _POLL_SECONDS)
        if not any(map(Message.error, messages)):
            return len(messages), []
        errors = [(message.partition() or 0, error) for message in messages if (error := message.error()) is not None]
        _refuse(error for _, error in errors)
        return len(messages) - len(errors), [partition for partition, _ in errors]

    def close(self) -> None:
        self._consumer.close()


class _Native:
    """One whose records are laid out as columns in C, as the ingestor has them."""

    def __init__(self, options: dict[str, str], tps: list[TopicPartition]) -> None:
        native, why_not = load()
        if native is None:
            raise RuntimeError(why_not)
        self._consumer = Consumer(with_plugin(options))
        self._intake = NativeIntake(native, self._consumer, ())
        self._intake.expect([Partition(tp.topic, tp.partition) for tp in tps])
        self._consumer.assign(tps)

    def poll(self) -> tuple[int, list[int]]:
        """Return how many records came, and which partitions are at their end."""
        taken = self._intake.take(_CONSUME_RECORDS, _POLL_SECONDS)
        _refuse(event.error for event in taken.events)
        return sum(map(len, taken.columns)), [event.tp.partition for event in taken.events]

    def close(self) -> None:
        self._intake.close()
        self._consumer.close()


def _refuse(errors: Iterable[KafkaError]) -> None:
    for error in errors:
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells its own codes so
            raise KafkaException(error)


def consume(kind: type[_Objects | _Native], bootstrap: str, topic: str, records: int, partitions: int) -> float:
    """Read a topic to its end with the ingestor's settings and drop what comes; return the seconds while it came."""
    consumer = kind(
        reading.options(bootstrap), [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    seen, unfinished = 0, set(range(partitions))
    began = first = last = time.perf_counter()
    while unfinished:
        asked = time.perf_counter()
        if asked - max(began, last) > _SILENCE_SECONDS_MAX:
            raise TimeoutError(f"nothing came for {_SILENCE_SECONDS_MAX:.0f} s")
        came, ends = consumer.poll()
        unfinished.difference_update(ends)
        if came:
            first, last = first if seen else asked, time.perf_counter()
            seen += came
    consumer.close()
    if seen != records:
        raise RuntimeError(f"{seen} records came, not {records}")
    return last - first  # the wait for the ends costs no records anything


def write(file: str, groups: list[pa.Table], records: int) -> None:
    """Write ready row groups like the ingestor's, again and again, until there are so many records."""
    with pa.OSFile(file, "wb") as sink:
        writer = parquet_writer(sink, groups[0], "zstd", [])
        for group in itertools.cycle(groups):
            table = group.slice(0, records)
            writer.write_table(table, row_group_size=table.num_rows)
            records -= table.num_rows
            if not records:
                break
        writer.close()


def timed(work: Callable[[], object]) -> None:
    """Do some work, and print what it took."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    print(json.dumps({"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}))


def _row_groups(size: int) -> list[pa.Table]:
    """Return row groups as the ingestor's: of batches as they come, as soon as they have its size."""
    values, count = endless(size), min(_CONSUME_RECORDS, _BATCH_BYTES // (size + _ROW_BYTES))
    groups, gathered = [], []
    for number in range(_DISTINCT_BYTES // (count * size)):
        gathered.append(record_batch(list(itertools.islice(values, count)), first=number * 1_000_000))
        if sum(batch.nbytes for batch in gathered) >= ROW_GROUP_BYTES:
            groups.append(pa.Table.from_batches(gathered).unify_dictionaries())
            gathered = []
    return groups


def record_batch(values: list[bytes], *, first: int) -> pa.RecordBatch:
    """Return payloads as the ingestor's columns, as if they had come in runs from each partition in turn."""
    count = len(values)
    runs = np.repeat(np.arange(PARTITIONS, dtype=np.int32), -(-count // PARTITIONS))[:count]
    columns = Columns(
        topics=("records",),
        topic_codes=np.zeros(count, np.int32),
        partitions=runs,
        offsets=np.arange(first, first + count),
        timestamps_ms=1_700_000_000_000 + np.arange(count) // 100,
        values=values,
    )
    positions = {Partition("records", number): 0 for number in range(PARTITIONS)}
    batch = buffer.select(columns, positions, RawSchema()).batch
    if batch is None:
        raise RuntimeError("no record was taken")
    return batch.records


def main(arguments: list[str]) -> None:
    """Run the program that the first argument names."""
    gc.disable()  # a floor has no garbage to look for
    match arguments:
        case ["produce", bootstrap, topic, size, records]:
            produce(bootstrap, topic, int(size), int(records))
        case ["produce", bootstrap, topic, size, records, partitions, run]:
            produce(bootstrap, topic, int(size), int(records), int(partitions), int(run))
        case ["trickle", bootstrap, topic, size, per_second, seconds, partitions]:
            trickle(bootstrap, topic, int(size), int(per_second), int(seconds), int(partitions))
        case ["arrive", bootstrap, topic, records, partitions, flush_seconds]:
            ages = arrive(bootstrap, topic, int(records), int(partitions), float(flush_seconds))
            print(json.dumps(dict(zip(("p50", "p99", "max"), np.percentile(ages, [50, 99, 100]), strict=True))))
        case ["read" | "objects" as how, bootstrap, topic, records, *partitions]:
            kind = _Native if how == "read" else _Objects
            took = consume(kind, bootstrap, topic, int(records), int(partitions[0]) if partitions else PARTITIONS)
            print(json.dumps({"wall_seconds": took}))
        case ["write", file, size, records]:
            groups = _row_groups(int(size))
            timed(lambda: write(file, groups, int(records)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
