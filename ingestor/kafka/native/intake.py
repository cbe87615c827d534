"""Reads records from the partitions' queues into columns.

librdkafka has a queue per partition. We forward each to one queue of our own (`rd_kafka_queue_forward`), whose records
go straight into columns. Everything else, rebalances above all, stays on the consumer's queue, which confluent_kafka
serves. So a rebalance and records of our queue never come from the same call. Of confluent_kafka's callbacks only the
error callback is replaced: errors become events without a partition.

When a partition is revoked, librdkafka's main thread removes the forwarding (`rd_kafka_toppar_fetch_stop`). If the
partition comes back quickly, that may happen after we have forwarded it again. Its records then stay on a queue that
is not read. So partitions are forwarded again at intervals, and soon if nothing has come since they were placed;
forwarding moves the waiting records over in their order.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from ingestor.kafka.extract import extract_all, portions
from ingestor.kafka.intake import TakenIn, without_events
from ingestor.kafka.native import library
from ingestor.kafka.native.library import Batch, Reading
from ingestor.kafka.native.taken import Taken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from confluent_kafka import Consumer, Message

    from ingestor.kafka.native.library import Native
    from ingestor.records import TopicPartition

# The size of a batch, which its last record may exceed. Far below the 2 GiB limit of Arrow's 32-bit offsets.
_BYTES_MAX = 16 << 20
_OTHERS_MAX = 1_000
_LEAD_SECONDS = 1.0  # forwarding a partition takes microseconds
_LEAD_SILENT_SECONDS = 0.05  # librdkafka's thread removes an old forwarding within milliseconds
_SILENT_SECONDS_MAX = 5.0  # then a silent partition is paused or empty


class NativeIntake:
    """Reads beside an open consumer."""

    def __init__(self, native: Native, consumer: Consumer, extras: Collection[str]) -> None:
        """Take the client of a consumer that this thread has just created with our plugin."""
        self._queue: int | None = None
        self._native = native
        self._consumer = consumer
        self._extras = extras
        self._wanted = (
            library.WANT_KEYS * ("key" in extras)
            | library.WANT_HEADERS * ("headers" in extras)
            | library.WANT_TIMESTAMP_TYPES * ("timestamp_type" in extras)
        )
        self._client: int | None = native.take_client()
        if self._client is None:
            msg = f"this librdkafka does not call our plugin as expected; set {library.SWITCH}=off to do without it"
            raise RuntimeError(msg)
        self._queue = native.new_queue(self._client)
        self._expected: set[TopicPartition] = set()
        self._silent: set[TopicPartition] = set()  # placed recently, and nothing has come since
        self._placed_at = self._led_at = self._all_led_at = time.monotonic()
        self._likely = (0, 0)  # estimated records and bytes of the next batch

    def expect(self, tps: Iterable[TopicPartition]) -> None:
        """Forward partitions to our queue before they are assigned; librdkafka keeps that when fetching starts."""
        self._placed_at = time.monotonic()
        expected = set(tps)
        self._expected |= expected
        self._silent |= expected
        self._lead(expected)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop forwarding partitions."""
        self._expected.difference_update(tps)
        self._silent.difference_update(tps)

    def _lead(self, tps: Iterable[TopicPartition]) -> None:
        for topic, partition in tps if self._queue is not None else ():
            queue = self._native.partition_queue(self._client, topic.encode(), partition)
            if queue is not None:  # otherwise the next round does it
                self._native.forward(queue, self._queue)
                self._native.destroy_queue(queue)

    def _lead_again(self) -> None:
        now = time.monotonic()
        if now - self._placed_at >= _SILENT_SECONDS_MAX:
            self._silent.clear()
        if now - self._all_led_at >= _LEAD_SECONDS:
            self._led_at = self._all_led_at = now
            self._lead(self._expected)
        elif self._silent and now - self._led_at >= _LEAD_SILENT_SECONDS:
            self._led_at = now
            self._lead(self._silent)

    def take(self, max_records: int, timeout: float) -> TakenIn:
        """Serve the consumer's own queue, then return what arrives from the partitions within the timeout."""
        if self._queue is None:
            msg = "this intake is closed"
            raise RuntimeError(msg)
        self._lead_again()
        taken = self._take_others()
        rest = Reading()
        self._take_batch(taken, rest, max_records, int(timeout * 1000))
        while rest.left:  # all in this call: no rebalance may come in between
            self._take_batch(taken, rest, rest.left, 0)
        if self._silent:
            self._silent -= _partitions_of(taken)
        return taken

    def _take_batch(self, taken: TakenIn, rest: Reading, max_records: int, timeout_ms: int) -> None:
        """Read one batch; records that were read and did not fit stay in `rest`."""
        batch = Batch(
            records_max=max_records,
            bytes_max=_BYTES_MAX,
            records_likely=min(max_records, self._likely[0]),
            bytes_likely=self._likely[1],
            wanted=self._wanted,
        )
        self._native.take(self._client, self._queue, timeout_ms, ctypes.addressof(rest), ctypes.addressof(batch))
        came = Taken(batch, self._native.give_back)
        if batch.out_of_memory:
            raise MemoryError
        self._likely = (batch.records, batch.payloads_data.used)
        columns = came.columns(self._extras)
        if columns is not None:
            taken.columns.append(columns)
        taken.events.extend(came.events())

    def _take_others(self) -> TakenIn:
        """Serve rebalances, and read the consumer's own queue to its end.

        It may have records, of a partition that librdkafka created anew and that is not forwarded yet. They precede
        those on our queue, so all of them are taken first.
        """
        messages: list[Message] = []
        while True:
            more = self._consumer.consume(_OTHERS_MAX, 0)
            messages += more
            if len(more) < _OTHERS_MAX:
                break
        records, events = without_events(messages)
        return TakenIn(
            [extract_all(piece, self._extras) for piece in portions(records, self._extras)] if records else [],
            events,
            mixed=bool(messages),
        )

    def close(self) -> None:
        """Destroy our queue with what is left in it; called before the consumer is closed."""
        queue, self._queue = self._queue, None
        if queue is not None:
            self._native.destroy_queue(queue)

    def __del__(self) -> None:
        """Close: librdkafka's own close waits without end while our queue exists."""
        self.close()


def _partitions_of(taken: TakenIn) -> set[TopicPartition]:
    return {event.tp for event in taken.events}.union(*(columns.tps() for columns in taken.columns))
