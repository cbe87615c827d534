"""The member of the consumer group: polls large batches, returns columns, starts partitions where the ledger says.

librdkafka serves rebalance callbacks inside `poll`. One poll may return records from before such a callback together
with later ones. If a partition was placed during a poll, records of it from that poll may belong to its earlier
assignment and lie beyond records that were dropped with it. They are discarded, and the partition is placed again
outside any callback, where librdkafka's versioning keeps old records out. Positions are set by assignment only, since
`seek` races with fetches under way.

librdkafka gives each start, pause and resume of a partition a version when it is requested, and keeps the version that
arrives last. If our resume crosses a start by librdkafka's own thread, the partition may keep the older version. Then
all its records count as outdated and it is silently never read again. So partitions are resumed before they get
positions, and not while a start may be under way.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor.errors import IngestorError
from ingestor.kafka.broker import asking, bad_client_config, kafka_failure
from ingestor.kafka.intake import MessageIntake
from ingestor.kafka.native.intake import NativeIntake
from ingestor.kafka.native.library import load, with_plugin
from ingestor.kafka.options import consumer_options, subscription
from ingestor.kafka.source import Polled
from ingestor.logs import librdkafka_logger
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ingestor.kafka.intake import Event, Intake
    from ingestor.kafka.source import Listener
    from ingestor.records import Columns

_CLOSE_SECONDS = 5.0
_STARTING_SECONDS = 0.2  # a start takes a few milliseconds, more on an overloaded machine
_POSITION_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class KafkaSource:
    """One consumer for all routes of the process."""

    def __init__(
        self,
        config: Mapping[str, str],
        topics: Sequence[str],
        *,
        route_of: Callable[[str], str],
        extras: Collection[str] = (),
        queue_bytes: int,
        flush_seconds: float,
    ) -> None:
        self._route_of = route_of
        self._topics = subscription(config, topics)
        self._eager = config.get("group.protocol", "classic") != "consumer" and "cooperative" not in config.get(
            "partition.assignment.strategy", ""
        )
        self._errors: list[KafkaError] = []
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._placed_in_poll: dict[TopicPartition, int] = {}
        self._damaged: dict[TopicPartition, int] = {}  # the offset of a damaged batch, until placed again
        self._routes: dict[str, str] = {}
        self._given_at = -_STARTING_SECONDS  # when librdkafka last got positions
        wanted: dict[str, Any] = consumer_options(config, queue_bytes, flush_seconds)
        wanted["error_cb"] = self._errors.append  # the native intake replaces it
        wanted["logger"] = librdkafka_logger()
        only_topic = topics[0] if len(topics) == 1 and not topics[0].startswith("^") else None
        native, why_not = load()
        self.intake = "native" if native else f"messages: {why_not}"  # for the log
        try:
            self._consumer = Consumer(with_plugin(wanted) if native else wanted)
        except KafkaException as error:
            raise bad_client_config(error) from error
        self._intake: Intake = (
            NativeIntake(native, self._consumer, frozenset(extras))
            if native
            else MessageIntake(self._consumer, frozenset(extras), only_topic)
        )

    def subscribe(self, listener: Listener) -> None:
        """Join the group; the listener decides on every change of the assignment."""
        with asking("subscribing"):
            self._consumer.subscribe(
                self._topics,
                on_assign=lambda _consumer, tps: self._on_assign(listener, _ours(tps)),
                on_revoke=lambda _consumer, tps: self._on_gone(listener.on_revoked, _ours(tps)),
                on_lost=lambda _consumer, tps: self._on_gone(listener.on_lost, _ours(tps)),
            )

    def _on_assign(self, listener: Listener, tps: list[TopicPartition]) -> None:
        starts = listener.on_assigned(tps)
        waiting = {tp for tp in tps if tp not in starts}
        self._assigned.update(tps)
        self._paused = (self._paused - set(tps)) | waiting
        self._placed_in_poll.update(starts)
        self._forget_damage(starts)
        # A partition that was paused when it was revoked is still paused.
        self._consumer.resume(_theirs(starts))
        self._give([KafkaTopicPartition(*tp, starts.get(tp, OFFSET_END)) for tp in tps])
        if waiting:
            self._consumer.pause(_theirs(waiting))

    def _give(self, positions: list[KafkaTopicPartition]) -> None:
        self._intake.expect(_ours(positions))
        if self._eager:
            self._consumer.assign(positions)
        else:
            self._consumer.incremental_assign(positions)
        self._given_at = time.monotonic()

    def _on_gone(self, tell: Callable[[Collection[TopicPartition]], None], tps: list[TopicPartition]) -> None:
        tell(tps)
        gone = set(tps)
        known = self._assigned & gone
        self._assigned -= gone
        self._paused -= gone
        self._forget_damage(gone)
        self._intake.forget(gone)
        for tp in gone:
            self._placed_in_poll.pop(tp, None)
        if self._eager:
            self._consumer.unassign()
        else:
            self._consumer.incremental_unassign(_theirs(known))

    def poll(self, max_records: int, timeout: float) -> Polled:
        """Return what arrives within the timeout, at most `max_records`; serve rebalances."""
        self._placed_in_poll.clear()
        with asking("polling Kafka"):
            taken = self._intake.take(max_records, timeout)
        polled = Polled()
        self._take_events(taken.events, polled)
        while self._errors:
            _note(self._errors.pop(), polled)
        came = taken.columns
        if self._damaged:
            came = self._stop_at_damage(came, polled)
        if self._placed_in_poll and taken.mixed:
            came = self._discard_ambiguous(came, polled)
        for columns in came:
            polled.records += len(columns)
            polled.columns += self._by_route(columns)
        return polled

    def _take_events(self, events: Iterable[Event], polled: Polled) -> None:
        """Sort events into the result; raise permanent failures."""
        for tp, offset, error in events:
            if not tp.topic:
                _note(error, polled)
            elif error.code() == KafkaError._PARTITION_EOF:
                polled.ends[tp] = offset
            elif error.code() in _POSITION_LOST:
                polled.lost_positions.add(tp)
            elif error.code() == KafkaError._BAD_MSG:
                polled.damaged[tp] = self._damaged.setdefault(tp, offset)
            else:
                _note(error, polled)

    def _stop_at_damage(self, came: Iterable[Columns], polled: Polled) -> list[Columns]:
        """Remove a partition's records and events from a damaged batch on, so that none is committed past the gap.

        librdkafka may misread the bytes behind such a batch and report, for example, a wrong position.
        """
        for tp in self._damaged:
            polled.ends.pop(tp, None)
            polled.lost_positions.discard(tp)
        return [_without(columns, self._damaged) for columns in came]

    def _forget_damage(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._damaged.pop(tp, None)

    def _discard_ambiguous(self, came: list[Columns], polled: Polled) -> list[Columns]:
        placed = {tp: offset for tp, offset in self._placed_in_poll.items() if tp in self._assigned}
        self._placed_in_poll.clear()
        seen = {tp for tp in placed if any(columns.of(tp).any() for columns in came)}
        seen |= (polled.ends.keys() | polled.lost_positions) & placed.keys()
        for tp in seen:  # reported again if still true after the partition is placed again
            polled.ends.pop(tp, None)
            polled.lost_positions.discard(tp)
        if not seen:
            return came
        if self._eager:  # it can only assign all partitions, and all were placed in this poll
            seen = set(placed)
        self._assign_again({tp: placed[tp] for tp in seen}, kept={})
        return [_without(columns, dict.fromkeys(seen, 0)) for columns in came]

    def reposition(self, moved: Mapping[TopicPartition, int], kept: Mapping[TopicPartition, int]) -> None:
        """Fetch `moved` from other positions; `kept` are the positions of all others that are being read."""
        ours = {tp: position for tp, position in moved.items() if tp in self._assigned}
        if ours:
            self._assign_again(ours, kept=kept)

    def _assign_again(self, moved: Mapping[TopicPartition, int], kept: Mapping[TopicPartition, int]) -> None:
        self._paused.difference_update(moved)
        self._forget_damage(moved)
        again = [KafkaTopicPartition(*tp, offset) for tp, offset in moved.items()]
        with asking("placing partitions"):
            # Resume only these. Resuming a partition that is not paused makes librdkafka fetch again from where it
            # was assigned or paused.
            self._consumer.resume(_theirs(moved))
            if self._eager:
                others = self._assigned.difference(moved)
                again += [KafkaTopicPartition(*tp, kept.get(tp, OFFSET_END)) for tp in others]
            else:
                self._consumer.incremental_unassign(_theirs(moved))
            self._give(again)
            if self._eager and self._paused:
                self._consumer.pause(_theirs(self._paused))

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching from these partitions for now; heartbeats go on."""
        new = self._assigned.intersection(tps) - self._paused
        if new:
            self._paused |= new
            with asking("pausing"):
                self._consumer.pause(_theirs(new))

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch from these partitions again."""
        again = self._paused.intersection(tps) if self._paused else None
        if again:
            self._paused -= again
            time.sleep(max(0.0, self._given_at + _STARTING_SECONDS - time.monotonic()))
            with asking("resuming"):
                self._consumer.resume(_theirs(again))

    def acknowledge(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit group offsets, for lag tools only. They are never read back, so a failure is only logged."""
        ours = [KafkaTopicPartition(*tp, position) for tp, position in positions.items() if tp in self._assigned]
        if ours:
            try:
                self._consumer.commit(offsets=ours, asynchronous=True)
            except KafkaException as error:
                librdkafka_logger().debug("offset commit failed: %s", error)

    def close(self) -> None:
        """Leave the group; if Kafka does not answer within a few seconds, leave it to the session time-out.

        librdkafka waits without end for a broker that is gone, so it closes on a thread that may be left behind.
        """
        self._intake.close()
        closing = threading.Thread(target=self._consumer.close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
        if closing.is_alive():
            librdkafka_logger().warning("Kafka did not answer: closed without leaving the group")

    def _by_route(self, columns: Columns) -> Iterator[tuple[str, Columns]]:
        codes_of: dict[str, list[int]] = {}
        for code, topic in enumerate(columns.topics):
            codes_of.setdefault(self._route(topic), []).append(code)
        for route, codes in codes_of.items():
            own = columns if len(codes_of) == 1 else columns.where(np.isin(columns.topic_codes, codes))
            if len(own):
                yield route, own

    def _route(self, topic: str) -> str:
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = self._route_of(topic)
        return route


def _without(columns: Columns, ends: Mapping[TopicPartition, int]) -> Columns:
    """Return the columns without each partition's records at or above its end here."""
    keep = np.ones(len(columns), dtype=bool)
    for tp, end in ends.items():
        keep &= ~columns.of(tp) | (columns.offsets < end)
    return columns.where(keep)


def _note(error: KafkaError, polled: Polled) -> None:
    failure = kafka_failure(error, doing="reading from Kafka")
    if isinstance(failure, IngestorError):
        raise failure
    polled.waits.append(str(failure))


def _ours(tps: Iterable[KafkaTopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.partition) for tp in tps]


def _theirs(tps: Iterable[TopicPartition]) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(*tp) for tp in tps]
