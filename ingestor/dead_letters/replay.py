"""Sends chosen dead letters of one route back to their source topics, each once.

    take over the transactional id ─▶ an intent is open? ─ yes ─▶ take it over, finish it
              │ no
              ▼
    commit an intent: which letters, a secret, and the topics with their ids and ends      (txn odd: open)
              ▼
    send them, each portion in one Kafka transaction
              ▼
    mark them as replayed in the table, and close the intent in the same commit            (txn even)

A killed replay leaves an open intent. The next replay first fences it in Kafka, reads the topics from the noted ends to
see which letters are there (by their marks, see `attempt`), sends the others, and marks all. So none is sent twice,
except with `--force`. If retention has removed what has to be read, or the topic was recreated, this is unknown, and
the replay is refused. Letters that `reparse` has moved to silver meanwhile are not in the table and are not sent.

The rows show what was replayed (`replayed_at`). It is also in txns of the table, which RESTORE does not change.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ingestor import logs
from ingestor.dead_letters.attempt import Attempt, marks_on, since
from ingestor.dead_letters.letters import by_partition, coordinates, index, ranges
from ingestor.dead_letters.message import replayed
from ingestor.dead_letters.quarantine import Quarantine
from ingestor.dead_letters.replayed import Replayed
from ingestor.errors import ConfigError, DataLossError, Fenced, OccExhaustedError
from ingestor.kafka.sender import Sender, TooLargeError
from ingestor.records import COORDINATES, Coordinate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingestor.config.settings import Settings
    from ingestor.dead_letters.attempt import Since
    from ingestor.dead_letters.quarantine import Version
    from ingestor.dead_letters.selection import Selection
    from ingestor.kafka.broker import Broker

_INTENT = "dlq_replay"
_INTENT_LETTERS_MAX = 50_000  # letters that one commit notes and one rewrite of files marks


@dataclass(frozen=True, slots=True)
class Intent:
    """A replay that has begun: its letters and its attempt, noted before the first letter is sent."""

    txn: int
    letters: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]
    attempt: Attempt

    @classmethod
    def of(cls, txn: int, origins: Sequence[Coordinate], attempt: Attempt) -> Intent:
        """Return the intent to send these letters."""
        letters: dict[str, dict[str, list[list[int]]]] = {}
        for tp, offsets in by_partition(origins).items():
            letters.setdefault(tp.topic, {})[str(tp.partition)] = ranges(offsets)
        return cls(txn, letters, attempt)

    def as_noted(self) -> dict[str, Any]:
        """Return the intent for commitInfo."""
        return {"letters": self.letters, "attempt": self.attempt.as_noted()}

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
        """Return the selected letters of the newest version."""
        version = self.table.look()
        if version is None:
            return []
        with self.table.reading():
            found = index(self.table.storage, version.paths(), selection.columns)
        chosen = coordinates(selection.of(found))
        return chosen if selection.replayed else self._replayed(version).without(chosen)

    def _replayed(self, version: Version) -> Replayed:
        return Replayed.of(self._settings.app_id, version.txns)

    def unfinished(self) -> bool:
        """Return whether a replay was begun and not finished."""
        version = self.table.look()
        return version is not None and _is_open(version.txns.get(self._app_id))

    def replay(self, origins: Sequence[Coordinate]) -> int:
        """Finish an open intent, then send these letters; return how many were sent in all."""
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
        """Finish an open intent; return its letters, and how many of them were sent now."""
        version = self.table.look_again()
        txn = version.txns.get(self._app_id)
        if not _is_open(txn):
            return set(), 0
        intent = self._read_intent(version, txn or 0)
        if intent is None:
            return set(), 0
        self._log.warning("a replay was not finished", letters=len(intent.origins()), next="looks what was sent")
        found = self._since(intent)
        attempt = intent.attempt.without(found.other).over(self._broker, found.other)
        ours = self.table.compare_and_swap(lambda newest: self._take_over(newest, intent, attempt))
        marks = marks_on(self._settings.kafka, found.spans)
        there = {origin for origin in ours.origins() if ours.attempt.mark(origin) in marks}
        return ours.origins(), self._finish(sender, ours, there)

    def _take_over(self, version: Version, intent: Intent, attempt: Attempt) -> Intent:
        """Commit the same letters again, so that the replay that had begun can't close its intent any more."""
        self._require(version, intent.txn)
        ours = Intent(intent.txn + 2, intent.letters, attempt)
        said = {"operation_kind": "dlq_replay_begun", _INTENT: ours.as_noted()}
        version.put_txn({self._app_id: ours.txn}, said)
        return ours

    def _read_intent(self, version: Version, txn: int) -> Intent | None:
        """Return the open intent; None if it is given up."""
        for number in range(version.number, -1, -1):
            entry = self.table.entry(number)
            if entry is None:
                break
            if entry.txns.get(self._app_id) == txn:
                said = entry.commit_info.get(_INTENT, {})
                attempt = Attempt.read(said.get("attempt"))
                if attempt is None:  # begun by an older version, which had no marks: handled as removed
                    break
                return Intent(txn, said["letters"], attempt)
        if self._force:
            self.table.compare_and_swap(lambda newest: self._give_up(newest, txn))
            return None
        msg = f"quarantine table {self.table.uri}: a replay was begun, and log clean-up removed what it was to send"
        raise DataLossError(msg, hint="look at the topic; --force replays what you choose, whether it was sent or not")

    def _give_up(self, version: Version, txn: int) -> None:
        """Close an open intent whose letters are unknown."""
        self._require(version, txn)
        version.put_txn({self._app_id: txn + 1}, {"operation_kind": "dlq_replay_given_up"})

    def _require(self, version: Version, txn: int) -> None:
        """Refuse to close an intent that is no longer the open one."""
        if version.txns.get(self._app_id) != txn:
            raise Fenced("it has finished what was begun here")

    def _since(self, intent: Intent) -> Since:
        """Return what was written to an intent's topics; refuse if it does not show what was sent, unless forced."""
        tps = {origin.tp for origin in intent.origins()}
        found = since(self._broker, intent.attempt)
        lost = [str(tp) for tp in sorted(tps.intersection(found.lost))]
        if lost and not self._force:
            shown = ", ".join(lost)
            msg = f"a replay was not finished, and retention removed records of {shown} that show how far it got"
            raise DataLossError(msg, hint="--force sends its letters again, whether they were sent or not")
        if found.other and not self._force:
            msg = f"a replay was not finished, and topic {', '.join(found.other)} was deleted since, which it sent to"
            raise DataLossError(msg, hint="--force sends its letters again, to the topic as it is now")
        return dataclasses.replace(found, spans={tp: span for tp, span in found.spans.items() if tp in tps})

    def _replay(self, sender: Sender, origins: Sequence[Coordinate]) -> int:
        """Send letters that were not replayed or moved meanwhile; return their number."""
        intent = self.table.compare_and_swap(lambda version: self._begin(version, origins))
        return 0 if intent is None else self._finish(sender, intent, set())

    def _begin(self, version: Version, origins: Sequence[Coordinate]) -> Intent | None:
        """Commit the intent to send the letters that are still to be sent; None if there is none."""
        present = self._choose_again(version, origins)
        if not present:
            return None
        txn = version.txns.get(self._app_id) or 0
        if _is_open(txn):
            raise Fenced("it has begun meanwhile")
        self._refuse_missing(present)
        intent = Intent.of(txn + 1, present, Attempt().over(self._broker, {origin.topic for origin in present}))
        said = {"operation_kind": "dlq_replay_begun", _INTENT: intent.as_noted()}
        version.put_txn({self._app_id: intent.txn}, said)
        return intent

    def _choose_again(self, version: Version, origins: Sequence[Coordinate]) -> list[Coordinate]:
        with self.table.reading():
            found = index(self.table.storage, version.paths(), ("replayed_at",))
        those = _those(found, origins)
        if self._force:
            return coordinates(those)
        return self._replayed(version).without(coordinates(those.filter(pc.is_null(those.column("replayed_at")))))

    def _refuse_missing(self, origins: Sequence[Coordinate]) -> None:
        """Refuse a letter whose partition does not exist."""
        existing = self._broker.topics()
        for tp in by_partition(origins):
            if tp.partition >= existing.get(tp.topic, 0):
                has = f"has only {existing[tp.topic]} partitions" if tp.topic in existing else "does not exist"
                msg = f"dead letters of {tp} can't go back: topic {tp.topic} {has}"
                raise ConfigError(msg, hint="create it or give it more partitions, or choose others with --topic")

    def _finish(self, sender: Sender, intent: Intent, there: set[Coordinate]) -> int:
        """Send an intent's letters that are not there yet, mark all, close the intent; return how many were sent."""
        paths = self.table.look_again().paths()
        left = sorted(intent.origins() - there)
        with self.table.reading():
            found = _those(index(self.table.storage, paths), left)
        done = set(there)
        try:
            for letters in self.table.letters(paths, found):
                sender.send([replayed(letter, intent.attempt.mark(letter.origin)) for letter in letters])
                done.update(letter.origin for letter in letters)
        except TooLargeError:
            self._close(intent, done)  # the refused letters were not sent and can be chosen again
            raise
        self._close(intent, done)
        self._log.info("dead letters replayed", letters=len(done) - len(there), already_there=len(there))
        return len(done) - len(there)

    def _close(self, intent: Intent, done: set[Coordinate]) -> None:
        """Mark letters as replayed and close their intent, in one commit."""
        moment_us = time.time_ns() // 1000
        said = {"operation_kind": "dlq_replay_done", "letters": len(done)}

        def close(version: Version) -> None:
            self._require(version, intent.txn)
            closed = {self._app_id: intent.txn + 1}
            if done:
                txns = self._replayed(version).txns_with(done) | closed
                version.put_replayed(sorted(done), moment_us, txns, said)
            else:
                version.put_txn(closed, said)

        self.table.compare_and_swap(close)


def _is_open(txn: int | None) -> bool:
    return txn is not None and txn % 2 == 1


def _those(found: pa.Table, origins: Sequence[Coordinate]) -> pa.Table:
    """Return the rows of an index that have one of these coordinates, in the index's order."""
    wanted = set(origins)
    return found.filter(pa.array([origin in wanted for origin in coordinates(found.select(COORDINATES))], pa.bool_()))
