"""Asks Kafka now and then: whether it is there, and where partitions end, with and without traffic."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ingestor.errors import IngestorError, Unavailable
from ingestor.observe.recent import SAMPLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ingestor.kafka.broker import Watermarks
    from ingestor.records import TopicPartition

_AWAY_SECONDS = 2.0  # a Kafka that is away is asked so often whether it is back
_THERE_SECONDS = 3.0  # to tell whether it is Kafka that does not answer, or only a topic
_PIECEMEAL_SECONDS = 5.0
_STUCK_TRANSACTION_SECONDS = 120.0  # brokers end a transaction after 60 s by default, 15 minutes at most


class Cluster(Protocol):
    """What is asked of Kafka."""

    def topics(self, *, timeout: float | None = None) -> dict[str, int]:
        """Return every topic and its number of partitions."""

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return the partitions' watermarks."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What Kafka said last: ends for readers of committed records, first offsets, and where transactions are open."""

    stable: Mapping[TopicPartition, int] = field(default_factory=dict)
    low: Mapping[TopicPartition, int] = field(default_factory=dict)
    held: Mapping[TopicPartition, int] = field(default_factory=dict)


class Lag:
    """One thread that asks. It may be answered late, or not at all: nothing waits for it."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        partitions: Callable[[], Collection[TopicPartition]],
        on_stuck: Callable[[str], None],
        on_asked: Callable[[bool], None] = lambda _regular: None,
    ) -> None:
        """Follow these `partitions`; tell after every question whether it was one that comes every `SAMPLE_SECONDS`."""
        self.ends = Ends()
        self.trouble: str | None = None  # why Kafka did not answer, None if it did
        self.answered = False  # ever
        self._cluster = cluster
        self._partitions = partitions
        self._on_stuck = on_stuck
        self._on_asked = on_asked
        self._held: dict[TopicPartition, tuple[int, float]] = {}
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._follow, name="lag", daemon=True)

    def start(self) -> None:
        """Begin to ask, at once."""
        self._wanted.set()
        self._thread.start()

    def ask_soon(self) -> None:
        """Ask again without waiting for the next turn: there are new partitions, or Kafka may be away."""
        self._wanted.set()

    @property
    def asks(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Ask no more."""
        self._ended = True
        self._wanted.set()

    def _follow(self) -> None:
        sample_at = time.monotonic() + SAMPLE_SECONDS
        while True:
            left = max(0.0, sample_at - time.monotonic())
            self._wanted.wait(left if self.trouble is None else min(left, _AWAY_SECONDS))
            self._wanted.clear()
            if self._ended:
                return
            self._ask()
            regular = time.monotonic() >= sample_at
            self._on_asked(regular)
            if regular:
                sample_at = time.monotonic() + SAMPLE_SECONDS

    def _ask(self) -> None:
        """Take in what Kafka says; what it said last stays if it says nothing."""
        tps = self._partitions()
        try:
            marks = self._marks(tps)
        except Exception as error:  # noqa: BLE001 - what the lag costs must never be ingestion
            known = isinstance(error, Unavailable | IngestorError)
            self.trouble = str(error) if known else type(error).__name__
            return
        self.trouble, self.answered = None, True
        self._watch_transactions(marks)
        before = self.ends  # of which stays what was asked in vain
        self.ends = Ends(
            stable={tp: at for tp, at in before.stable.items() if tp in tps}
            | {tp: found.stable for tp, found in marks.items()},
            low={tp: at for tp, at in before.low.items() if tp in tps} | {tp: found.low for tp, found in marks.items()},
            held={tp: at for tp, (at, _) in self._held.items()},
        )

    def _marks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Ask for all at once; if that fails, topic by topic: one that was deleted must not hide the others."""
        if not tps:
            self._cluster.topics(timeout=_THERE_SECONDS)  # be it only to hear that Kafka is there
            return {}
        try:
            return self._cluster.watermarks(list(tps))
        except Unavailable:
            self._cluster.topics(timeout=_THERE_SECONDS)
            found: dict[TopicPartition, Watermarks] = {}
            deadline = time.monotonic() + _PIECEMEAL_SECONDS
            for topic in sorted({tp.topic for tp in tps}):
                with contextlib.suppress(Unavailable):
                    found |= self._cluster.watermarks([tp for tp in tps if tp.topic == topic])
                if time.monotonic() > deadline:
                    break
            return found

    def _watch_transactions(self, marks: Mapping[TopicPartition, Watermarks]) -> None:
        """Warn of a transaction that stays open: it hides everything behind it, and no lag shows it."""
        now = time.monotonic()
        held = {tp: found.stable for tp, found in marks.items() if found.stable < found.high}
        self._held = {
            tp: self._held[tp] if self._held.get(tp, (-1, 0))[0] == at else (at, now) for tp, at in held.items()
        }
        for tp, (at, since) in self._held.items():
            if now - since > _STUCK_TRANSACTION_SECONDS:
                self._on_stuck(
                    f"{tp}: a transaction is open at offset {at} since {now - since:.0f} s; what follows waits"
                )
