"""Sends chosen dead letters of one route back to the topics that they came from, each once.

    take over the transactional id ─▶ an intent is open? ─ yes ─▶ finish it
              │ no
              ▼
    commit an intent: which letters, and where their topics end now      (txn odd: open)
              ▼
    send them, each portion in one Kafka transaction
              ▼
    mark them as replayed in the table, and close the intent by the same commit     (txn even)

A replay that was killed leaves an open intent. Whoever comes next first shuts it out of Kafka, reads the topics from
the noted ends to see which letters are there (`dlq.replayed.from`), sends the others, marks all. So none is sent twice,
unless a person says `--force`. Where Kafka's retention has removed what would have to be read, nobody can tell any
more, and that is said instead of guessed. Letters that `reparse` has moved to silver meanwhile are gone from the table
and are not sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ingestor import logs
from ingestor.dead_letters.letters import (
    COORDINATES,
    Coordinate,
    by_partition,
    coordinates,
    fetch,
    index,
    portions,
    ranges,
)
from ingestor.dead_letters.message import replay_of, replayed
from ingestor.dead_letters.quarantine import Quarantine
from ingestor.dead_letters.scan import committed
from ingestor.dead_letters.sender import Sender, TooLargeError
from ingestor.dead_letters.topics import unread
from ingestor.errors import ConfigError, DataLossError, Fenced, OccExhaustedError
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingestor.broker import Broker
    from ingestor.dead_letters.quarantine import Version
    from ingestor.dead_letters.selection import Selection
    from ingestor.settings import Settings

_INTENT = "dlq_replay"
_INTENT_LETTERS_MAX = 50_000  # what one commit notes and one rewrite of files marks


@dataclass(frozen=True, slots=True)
class Intent:
    """A replay that was begun: its letters, and where their topics ended before."""

    txn: int
    letters: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
    ends: Mapping[str, list[int]]

    def origins(self) -> set[Coordinate]:
        """Return the letters."""
        return {
            Coordinate(topic, int(partition), offset)
            for topic, partitions in self.letters.items()
            for partition, runs in partitions.items()
            for first, last in runs
            for offset in range(first, last + 1)
        }


class Replayer:
    """Replays one route's dead letters."""

    def __init__(self, settings: Settings, route: str, broker: Broker, *, force: bool = False) -> None:
        self.route = route
        self._settings = settings
        self._broker = broker
        self._force = force
        self._app_id = f"{settings.app_id}/dlq-replay"
        self._log = logs.get(route=route)
        self.table = Quarantine(settings, route)

    def chosen(self, selection: Selection) -> list[Coordinate]:
        """Return the letters that a selection means, as the table is now."""
        version = self.table.look()
        if version is None:
            return []
        with self.table.reading():
            found = index(self.table.storage, version.paths(), selection.columns)
        return coordinates(selection.of(found))

    def unfinished(self) -> bool:
        """Tell whether a replay was begun and not ended."""
        version = self.table.look()
        return version is not None and _is_open(version.txns.get(self._app_id))

    def replay(self, origins: Sequence[Coordinate]) -> int:
        """Finish what was begun, then send these letters; return how many were sent in all."""
        self.table.prepare_to_write()
        sender = Sender(self._settings.kafka, f"ingestor-dlq-replay/{self._settings.app_id}/{self.route}")
        sender.start()
        try:
            finished, count = self._finish_open(sender)
            left = sorted(set(origins) - finished)
            for first in range(0, len(left), _INTENT_LETTERS_MAX):
                count += self._replay(sender, left[first : first + _INTENT_LETTERS_MAX])
        except Fenced as error:
            msg = f"another replay of route {self.route} took over ({error})"
            raise OccExhaustedError(
                msg, hint="let it end, then start again: what was sent is marked and not sent twice"
            ) from error
        return count

    def _finish_open(self, sender: Sender) -> tuple[set[Coordinate], int]:
        """Finish an intent that was left open; return its letters, and how many had still to be sent."""
        version = self.table.look_again()
        txn = version.txns.get(self._app_id)
        if not _is_open(txn):
            return set(), 0
        intent = self._read_intent(version, txn or 0)
        if intent is None:
            return set(), 0
        self._log.warning("a replay was not finished", letters=len(intent.origins()), next="looks what was sent")
        there = self._there_already(intent)
        return intent.origins(), self._finish(sender, intent, there)

    def _read_intent(self, version: Version, txn: int) -> Intent | None:
        """Return what the open intent says; None if it is given up."""
        for number in range(version.number, -1, -1):
            entry = self.table.entry(number)
            if entry is None:
                break
            if entry.txns.get(self._app_id) == txn:
                said = entry.commit_info.get(_INTENT, {})
                return Intent(txn, said.get("letters", {}), said.get("ends", {}))
        if self._force:
            self.table.compare_and_swap(lambda newest: self._give_up(newest, txn))
            return None
        msg = f"quarantine table {self.table.uri}: a replay was begun, and log clean-up removed what it was to send"
        raise DataLossError(msg, hint="look at the topic; --force replays what you choose, whether it was sent or not")

    def _give_up(self, version: Version, txn: int) -> None:
        """Close an open intent of which nobody can tell any more what it meant."""
        self._require(version, txn)
        version.put_txn(self._app_id, txn + 1, self.table.info("dlq_replay_given_up"))

    def _require(self, version: Version, txn: int) -> None:
        """Refuse to close an intent that is no longer the open one."""
        if version.txns.get(self._app_id) != txn:
            raise Fenced("it has finished what was begun here")

    def _there_already(self, intent: Intent) -> set[Coordinate]:
        """Return which of an intent's letters have got to their topics."""
        origins = intent.origins()
        tps = {origin.tp for origin in origins}
        since = unread(self._broker, intent.ends, {tp.topic for tp in tps})
        lost = sorted(tps.intersection(since.lost))
        if lost and not self._force:
            shown = ", ".join(map(str, lost))
            msg = f"a replay was not finished, and retention removed from {shown} what would tell how far it got"
            raise DataLossError(msg, hint="--force sends its letters again, whether they were sent or not")
        spans = {tp: span for tp, span in since.spans.items() if tp in tps}
        found = {replay_of(message) for message in committed(self._settings.kafka, spans)}
        return {origin for origin in found if origin is not None} & origins

    def _replay(self, sender: Sender, origins: Sequence[Coordinate]) -> int:
        """Send some letters, unless they were replayed or moved meanwhile; return how many."""
        intent = self.table.compare_and_swap(lambda version: self._begin(version, origins))
        return 0 if intent is None else self._finish(sender, intent, set())

    def _begin(self, version: Version, origins: Sequence[Coordinate]) -> Intent | None:
        """Commit the intent to send those letters that still wait for it; None if none does."""
        present = self._choose_again(version, origins)
        if not present:
            return None
        txn = version.txns.get(self._app_id) or 0
        if _is_open(txn):
            raise Fenced("it has begun meanwhile")
        ends = self._ends(present)
        letters: dict[str, dict[str, list[list[int]]]] = {}
        for tp, offsets in by_partition(present).items():
            letters.setdefault(tp.topic, {})[str(tp.partition)] = ranges(offsets)
        info = self.table.info("dlq_replay_begun") | {_INTENT: {"letters": letters, "ends": ends}}
        version.put_txn(self._app_id, txn + 1, info)
        return Intent(txn + 1, letters, ends)

    def _choose_again(self, version: Version, origins: Sequence[Coordinate]) -> list[Coordinate]:
        with self.table.reading():
            found = index(self.table.storage, version.paths(), ("replayed_at",))
        those = _those(found, origins)
        return coordinates(those if self._force else those.filter(pc.is_null(those.column("replayed_at"))))

    def _ends(self, origins: Sequence[Coordinate]) -> dict[str, list[int]]:
        """Return where the topics of some letters end; refuse a letter whose partition is not there."""
        existing = self._broker.topics()
        for tp in by_partition(origins):
            if tp.partition >= existing.get(tp.topic, 0):
                has = f"has only {existing[tp.topic]} partitions" if tp.topic in existing else "does not exist"
                msg = f"dead letters of {tp} can't go back: topic {tp.topic} {has}"
                raise ConfigError(msg, hint="create it or give it more partitions, or choose others with --topic")
        tps = [TopicPartition(topic, n) for topic in sorted({o.topic for o in origins}) for n in range(existing[topic])]
        marks = self._broker.watermarks(tps)
        ends: dict[str, list[int]] = {}
        for tp in tps:
            ends.setdefault(tp.topic, []).append(marks[tp].high)
        return ends

    def _finish(self, sender: Sender, intent: Intent, there: set[Coordinate]) -> int:
        """Send what of an intent is not there yet, mark all that is, close the intent; return how many were sent."""
        paths = self.table.look_again().paths()
        left = sorted(intent.origins() - there)
        with self.table.reading():
            found = index(self.table.storage, paths)
            parts = portions(self.table.storage, paths, _those(found, left))
        done = set(there)
        try:
            for portion in parts:
                with self.table.reading():
                    letters = fetch(self.table.storage, paths, portion)
                sender.send([replayed(letter) for letter in letters])
                done.update(letter.origin for letter in letters)
        except TooLargeError:
            self._close(intent, done)  # what was refused is nowhere: it can be chosen again
            raise
        self._close(intent, done)
        self._log.info("dead letters replayed", letters=len(done) - len(there), already_there=len(there))
        return len(done) - len(there)

    def _close(self, intent: Intent, done: set[Coordinate]) -> None:
        """Mark letters as replayed and close their intent, by one commit."""
        moment_us = time.time_ns() // 1000
        info = self.table.info("dlq_replay_done") | {"letters": len(done)}

        def close(version: Version) -> None:
            self._require(version, intent.txn)
            if done:
                version.put_replayed(sorted(done), moment_us, self._app_id, intent.txn + 1, info)
            else:
                version.put_txn(self._app_id, intent.txn + 1, info)

        self.table.compare_and_swap(close)


def _is_open(txn: int | None) -> bool:
    return txn is not None and txn % 2 == 1


def _those(found: pa.Table, origins: Sequence[Coordinate]) -> pa.Table:
    """Return the rows of an index that have one of these coordinates, in the index's order."""
    wanted = set(origins)
    return found.filter(pa.array([origin in wanted for origin in coordinates(found.select(COORDINATES))], pa.bool_()))
