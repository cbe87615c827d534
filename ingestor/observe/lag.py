"""Asks Kafka now and then how far the table is behind, so that the lag is right without traffic too."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.errors import Unavailable
from ingestor.observe.recent import SAMPLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ingestor.ingest.placement import Cluster
    from ingestor.kafka.broker import Watermarks
    from ingestor.observe.recent import Recent
    from ingestor.records import TopicPartition

_PIECEMEAL_SECONDS = 5.0  # a Kafka that is away altogether is not asked for each topic
_STUCK_TRANSACTION_SECONDS = 120.0  # brokers end a transaction after 60 s by default, 15 minutes at most


@dataclass(frozen=True, slots=True)
class Ends:
    """What Kafka said last: the ends for readers of committed records, and where open transactions hide more."""

    stable: Mapping[TopicPartition, int]
    held: Mapping[TopicPartition, int]


class Lag:
    """One thread that asks. It may be answered late, or not at all: nothing waits for it."""

    def __init__(
        self,
        cluster: Cluster,
        recent: Recent,
        *,
        partitions: Callable[[], Mapping[TopicPartition, int]],
        on_stuck: Callable[[str], None],
    ) -> None:
        """Follow these `partitions`, each with the next offset that the table lacks."""
        self.ends = Ends({}, {})
        self.trouble: str | None = None  # why Kafka did not answer, None if it did
        self._cluster = cluster
        self._recent = recent
        self._partitions = partitions
        self._on_stuck = on_stuck
        self._held: dict[TopicPartition, tuple[int, float]] = {}
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._follow, name="lag", daemon=True)
        self._thread.start()

    def ask_soon(self) -> None:
        """Ask again without waiting for the next turn: there are new partitions."""
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
            asked_early = self._wanted.wait(max(0.0, sample_at - time.monotonic()))
            self._wanted.clear()
            if self._ended:
                return
            behind = self._ask()
            if not asked_early:
                self._recent.sample(behind)
                sample_at = time.monotonic() + SAMPLE_SECONDS

    def _ask(self) -> int | None:
        """Take in what Kafka says; return the lag of all partitions together, None if it is not known."""
        positions = self._partitions()
        try:
            marks = self._marks(positions.keys()) if positions else {}
        except Exception as error:  # noqa: BLE001 - what the lag costs must never be ingestion
            self.trouble = str(error) if isinstance(error, Unavailable) else type(error).__name__
            return None
        self.trouble = None
        self._watch_transactions(marks)
        self.ends = Ends(
            {tp: found.stable for tp, found in marks.items()}, {tp: at for tp, (at, _) in self._held.items()}
        )
        return sum(max(0, marks[tp].stable - at) for tp, at in positions.items() if tp in marks)

    def _marks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Ask for all at once; if that fails, topic by topic: one that was deleted must not hide the others."""
        try:
            return self._cluster.watermarks(list(tps))
        except Unavailable:
            found: dict[TopicPartition, Watermarks] = {}
            deadline = time.monotonic() + _PIECEMEAL_SECONDS
            for topic in sorted({tp.topic for tp in tps}):
                with contextlib.suppress(Unavailable):
                    found |= self._cluster.watermarks([tp for tp in tps if tp.topic == topic])
                if time.monotonic() > deadline:
                    break
            if not found:
                raise
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
