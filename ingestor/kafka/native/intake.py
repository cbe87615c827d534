"""Takes in what lies on the partitions' queues, as columns.

Each partition's own queue is led to one of ours (`rd_kafka_queue_forward`), and what that holds goes straight into
columns. All else, rebalances above all, stays on the consumer's queue, which confluent_kafka serves: a rebalance and
records of ours never come out of the same call. Of what confluent_kafka keeps to itself only the error callback is
touched: errors come as events, of no partition.

When a partition is taken away, librdkafka's own thread lets go of its queue, which may be after we have led it to ours
again because it has come back. What it holds then waits there, with nobody to read it. So partitions are led again and
again, soon if nothing has come of them since they were placed: what waits comes over in its order.
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

# Of a batch; the last record may go beyond. So its columns stay far below the 2 GiB that Arrow's 32-bit offsets reach.
_BYTES_MAX = 16 << 20
_OTHERS_MAX = 1_000
_LEAD_SECONDS = 1.0  # microseconds each
_LEAD_SILENT_SECONDS = 0.05  # what librdkafka's thread still has to do takes milliseconds
_SILENT_SECONDS_MAX = 5.0  # nothing comes of partitions that are paused


class NativeIntake:
    """Stands beside a consumer for as long as that is open."""

    def __init__(self, native: Native, consumer: Consumer, extras: Collection[str]) -> None:
        """Stand beside a consumer that this thread has just made with our plugin."""
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
            msg = f"librdkafka does not work with our plugin as it should; set {library.SWITCH}=off to do without"
            raise RuntimeError(msg)
        self._queue = native.new_queue(self._client)
        self._expected: set[TopicPartition] = set()
        self._silent: set[TopicPartition] = set()  # placed a short time ago, and nothing has come since
        self._placed_at = self._led_at = self._all_led_at = time.monotonic()
        self._likely = (0, 0)  # records and bytes of the next batch

    def expect(self, tps: Iterable[TopicPartition]) -> None:
        """Lead partitions to our queue before they are fetched; librdkafka keeps to it when it starts."""
        self._placed_at = time.monotonic()
        expected = set(tps)
        self._expected |= expected
        self._silent |= expected
        self._lead(expected)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Lead partitions no more."""
        self._expected.difference_update(tps)
        self._silent.difference_update(tps)

    def _lead(self, tps: Iterable[TopicPartition]) -> None:
        for topic, partition in tps if self._queue is not None else ():
            queue = self._native.partition_queue(self._client, topic.encode(), partition)
            if queue is not None:  # else next time
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
        """Serve the consumer's own queue, then return what came of the partitions within the timeout."""
        if self._queue is None:
            msg = "this intake is closed"
            raise RuntimeError(msg)
        self._lead_again()
        taken = self._take_others()
        rest = Reading()
        self._take_batch(taken, rest, max_records, int(timeout * 1000))
        while rest.left:  # all in this call: a rebalance must not come in between
            self._take_batch(taken, rest, rest.left, 0)
        if self._silent:
            self._silent -= _partitions_of(taken)
        return taken

    def _take_batch(self, taken: TakenIn, rest: Reading, max_records: int, timeout_ms: int) -> None:
        """Take one batch in; what was read and did not fit stays in the rest."""
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
        """Serve rebalances, and take in what is of no partition's queue.

        That may be records: those of a partition which librdkafka made anew. They come before those that are on our
        queue, to which theirs may just have been led: so all of them are taken.
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
        """Give the queue back, and what is left in it: told before the consumer is closed."""
        queue, self._queue = self._queue, None
        if queue is not None:
            self._native.destroy_queue(queue)

    def __del__(self) -> None:
        """Close: librdkafka would wait for ever for what lies in a queue that nobody gave back."""
        self.close()


def _partitions_of(taken: TakenIn) -> set[TopicPartition]:
    return {event.tp for event in taken.events}.union(*(columns.tps() for columns in taken.columns))
