"""A group member over `FakeKafka`: implements `source.Source` with librdkafka's habits.

It fetches ahead into a queue, as librdkafka does. Pausing or placing a partition empties its queue; that is why places
are given with the assignment. `seek` is here only for the mutant that uses it: what was fetched before comes out after.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from ingestor.kafka.source import Polled
from ingestor.records import Columns, TopicPartition
from tests.support.fakes.kafka import FakeKafka, FakeRecord, OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ingestor.kafka.source import Listener
    from tests.support.fakes.group import FakeGroup

_FETCH_AHEAD = 8


class _Fetch:
    """One partition's place: the next offset to fetch, and what is fetched but not handed out."""

    def __init__(self, position: int) -> None:
        self.position: int | None = position  # None: stopped, the position is out of range
        self.handed_out = position
        self.queue: deque[FakeRecord] = deque()
        self.told_end = -1

    def empty(self) -> list[FakeRecord]:
        """Throw away what was fetched ahead; return it."""
        thrown = list(self.queue)
        self.queue.clear()
        if self.position is not None:
            self.position = self.handed_out
        return thrown


class FakeSource:
    """One member of a group."""

    def __init__(self, kafka: FakeKafka, group: FakeGroup, name: str, *, route_of: Callable[[str], str]) -> None:
        self.name = name
        self.held: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.acknowledged: dict[TopicPartition, int] = {}
        self.strangers = False  # let records of revoked partitions come out of the same poll
        self.raises: deque[Exception] = deque()
        self.closed = False
        self.waits: set[float] = set()  # how long polls would have waited
        self._kafka = kafka
        self._group = group
        self._route_of = route_of
        self._listener: Listener | None = None
        self._fetches: dict[TopicPartition, _Fetch] = {}
        self._on_the_way: dict[TopicPartition, list[FakeRecord]] = {}  # what a seek would not hold back
        self._left_over: dict[TopicPartition, list[FakeRecord]] = {}

    def subscribe(self, listener: Listener) -> None:
        """Join the group."""
        self._listener = listener
        self._group.join(self.name)

    def poll(self, max_records: int, timeout: float) -> Polled:
        """Serve rebalances, then hand out records from where the partitions stand; nothing is waited for here."""
        self.waits.add(timeout)
        if self.raises:
            raise self.raises.popleft()
        self._left_over.clear()
        self._group.serve(self)
        polled = Polled()
        rows: list[tuple[TopicPartition, FakeRecord]] = []
        for tp in sorted(self.held - self.paused):
            self._fetch_ahead(tp, polled)
        left = max_records
        while left > 0 and (ready := [tp for tp in sorted(self.held - self.paused) if self._fetches[tp].queue]):
            for tp in ready[:left]:  # taking turns, so that each partition comes back within one batch
                fetch = self._fetches[tp]
                record = fetch.queue.popleft()
                fetch.handed_out = max(fetch.handed_out, record.offset + 1)
                rows.append((tp, record))
            left -= len(ready)
        self._tell_ends(polled)
        if self.strangers:
            rows += [(tp, r) for tp, found in self._left_over.items() if tp not in self.held for r in found]
        polled.records = len(rows)
        polled.columns = self._columns(rows)
        return polled

    def reposition(self, moved: Mapping[TopicPartition, int], kept: Mapping[TopicPartition, int]) -> None:
        """Assign again from other positions; an eager member can only assign the whole."""
        ours = {tp: position for tp, position in moved.items() if tp in self.held}
        if not ours:
            return
        self.paused -= ours.keys()
        if self._group.eager:
            for tp in self.held - ours.keys():
                self._put(tp, kept.get(tp))
        for tp, position in ours.items():
            self._put(tp, position)

    def seek(self, starts: Mapping[TopicPartition, int], _kept: object = None) -> None:
        """Do what races in librdkafka: what was fetched before still comes out after."""
        self.paused -= starts.keys()
        for tp in starts.keys() & self.held:
            late = [*self._on_the_way.get(tp, ()), *self._fetches[tp].queue]
            self._put(tp, starts[tp])
            self._fetches[tp].queue.extend(late)

    def pause(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch no more from these partitions, and forget what was fetched ahead."""
        for tp in self.held & set(tps) - self.paused:
            self._on_the_way[tp] = self._fetches[tp].empty()
            self.paused.add(tp)

    def resume(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch again from where they stand."""
        self.paused -= set(tps)

    def acknowledge(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit positions to the group, which takes them only from the partitions' member."""
        for tp, position in positions.items():
            assert tp in self.held, f"{tp} is not assigned: its position is not ours to commit"
            self.acknowledged[tp] = position

    def close(self) -> None:
        """Give everything back and leave the group."""
        if not self.closed:
            self.closed = True
            self.yield_up(set(self.held))
            self._group.leave(self.name)

    def redeliver(self, tp: TopicPartition, offsets: int) -> None:
        """Hand out records once more that were handed out before."""
        low = self._kafka.partitions[tp].low
        if tp in self.held and (fetch := self._fetches[tp]).position is not None and fetch.handed_out >= low:
            fetch.empty()
            fetch.position = max(low, fetch.handed_out - offsets)

    # --- group.Member -----------------------------------------------------------------------------------------------

    def gain(self, tps: Collection[TopicPartition]) -> None:
        """Ask the listener from where to fetch; what it leaves out stays paused at the end."""
        starts = self._asked.on_assigned(tps)
        self.held.update(tps)
        self.paused -= set(tps)
        self.paused |= set(tps) - starts.keys()
        for tp in tps:
            self._put(tp, starts.get(tp))

    def yield_up(self, tps: Collection[TopicPartition]) -> None:
        """Let the listener land what it has, then let the partitions go."""
        self._asked.on_revoked(tps)
        self._let_go(tps)

    def lose(self, tps: Collection[TopicPartition]) -> None:
        """Tell the listener that partitions are gone."""
        self._asked.on_lost(tps)
        self._let_go(tps)

    @property
    def _asked(self) -> Listener:
        assert self._listener is not None, "subscribe first"
        return self._listener

    def _let_go(self, tps: Collection[TopicPartition]) -> None:
        self.held -= set(tps)
        self.paused -= set(tps)
        for tp in tps:
            fetch = self._fetches.pop(tp, None)
            self._left_over[tp] = [] if fetch is None else list(fetch.queue)
            self._on_the_way.pop(tp, None)

    def _put(self, tp: TopicPartition, position: int | None) -> None:
        self._on_the_way.pop(tp, None)
        self._fetches[tp] = _Fetch(self._kafka.partitions[tp].stable if position is None else position)

    def _fetch_ahead(self, tp: TopicPartition, polled: Polled) -> None:
        fetch = self._fetches[tp]
        if fetch.position is None:
            return
        try:
            if len(fetch.queue) >= _FETCH_AHEAD:
                return
            found, fetch.position = self._kafka.partitions[tp].fetch(fetch.position, _FETCH_AHEAD)
            fetch.queue.extend(found)
        except OffsetOutOfRange:
            if not fetch.queue:
                fetch.position = None
                polled.lost_positions.add(tp)

    def _tell_ends(self, polled: Polled) -> None:
        for tp in self.held - self.paused:
            fetch = self._fetches[tp]
            if fetch.queue or fetch.position is None:
                continue
            fetch.handed_out = max(fetch.handed_out, fetch.position)
            if fetch.position == self._kafka.partitions[tp].stable and fetch.told_end != fetch.position:
                fetch.told_end = polled.ends[tp] = fetch.position

    def _columns(self, rows: list[tuple[TopicPartition, FakeRecord]]) -> list[tuple[str, Columns]]:
        by_route: dict[str, list[tuple[TopicPartition, FakeRecord]]] = {}
        for tp, record in rows:
            by_route.setdefault(self._route_of(tp.topic), []).append((tp, record))
        return [(route, columns_of(found)) for route, found in by_route.items()]


def columns_of(rows: list[tuple[TopicPartition, FakeRecord]]) -> Columns:
    """Return records as the columns that a poll brings."""
    topics = tuple(dict.fromkeys(tp.topic for tp, _ in rows))
    return Columns(
        topics=topics,
        topic_codes=np.array([topics.index(tp.topic) for tp, _ in rows], np.int32),
        partitions=np.array([tp.partition for tp, _ in rows], np.int32),
        offsets=np.array([record.offset for _, record in rows], np.int64),
        timestamps_ms=np.array([record.timestamp_ms for _, record in rows], np.int64),
        values=[record.value for _, record in rows],
    )
