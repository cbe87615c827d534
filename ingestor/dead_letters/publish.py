"""Publishes what is new in one route's quarantine table, each dead letter once.

    look ─▶ anything new since our txn? ─ no ─▶ done
              │ yes
              ▼
    take over the transactional id      (whoever sent before us has ended, and what it sent is settled)
    look again ─▶ read the dead letter topics from the ends that were noted with our txn: what is there already?
              ▼
    send the rest, entry by entry, each portion in one Kafka transaction
              ▼
    move our txn, by compare-and-swap, and note the topics' ends beside it

A kill at any point leaves either nothing of a portion or all of it, and whether it is all is read from the topic
itself before anything is sent again. Two publishers at once: the later one shuts the earlier one out of Kafka, and of
two moves of one txn only one lands; the loser looks again. Noted ends are never behind a letter that the txn does not
count yet, because the next entry is only sent by who has seen that txn.

New are the rows of log entries that only add files. An entry that removes some too has rewritten them: compaction,
`reparse`, or a replay's mark. The txn's version is the last log entry that is dealt with, its own one included where
nothing new came in between, so that clean-up of an idle table's log is no loss.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ingestor import deltalog, logs
from ingestor.dead_letters.letters import Coordinate, by_partition, coordinates, fetch, index, portions
from ingestor.dead_letters.message import dead_letter, origins_of
from ingestor.dead_letters.quarantine import Quarantine, Version, is_new
from ingestor.dead_letters.scan import committed
from ingestor.dead_letters.sender import Sender
from ingestor.dead_letters.topics import DeadLetterTopics, unread
from ingestor.errors import DataLossError, Fenced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ingestor.broker import Broker
    from ingestor.dead_letters.letters import DeadLetter
    from ingestor.settings import Settings

_ENDS = "dlq_ends"
_NOTE_EVERY = 10_000  # letters; fewer commits on the table, at the price of a longer look after a kill
_QUIET_ENTRIES_MAX = 20  # so many entries without anything may pass before the txn moves over them
_BEFORE_ALL = -1


@dataclass(slots=True)
class Pending:
    """What the log holds after a txn: new entries, and whether there is anything else worth moving over."""

    txn: int | None
    ends: Mapping[str, list[int]] = field(default_factory=dict)
    entries: list[deltalog.Entry] = field(default_factory=list)
    passed: int = 0
    rewritten: bool = False

    @property
    def worth_noting(self) -> bool:
        """Tell whether the txn should move although nothing is new, lest log clean-up looks like a loss."""
        return not self.entries and (self.rewritten or self.passed > _QUIET_ENTRIES_MAX)


class Publisher:
    """One route's dead letters."""

    def __init__(
        self,
        settings: Settings,
        route: str,
        broker: Broker,
        *,
        skip_gap: bool = False,
        on_sent: Callable[[str, str, int], None] = lambda _route, _topic, _letters: None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.route = route
        self._settings = settings
        self._broker = broker
        self._topics = DeadLetterTopics(settings, broker)
        self._skip_gap = skip_gap
        self._on_sent = on_sent
        self._on_step = on_step
        self._app_id = f"{settings.app_id}/dlq"
        self._log = logs.get(route=route)
        self.table = Quarantine(settings, route)

    def publish(self) -> int | None:
        """Send what is new; return how many letters, None if there is no table. Raise Fenced if another took over."""
        version = self.table.look()
        if version is None:
            return None
        pending = self._pending(version)
        if pending.worth_noting:
            self.table.prepare_to_write()
            self._note(pending, version.number, pending.ends)
        if not pending.entries:
            return 0
        self.table.prepare_to_write()
        sender = Sender(self._settings.kafka, f"ingestor-dlq/{self._settings.app_id}/{self.route}")
        sender.start()
        return self._publish(sender)

    def _publish(self, sender: Sender) -> int:
        """Send what is new, as the table is now that nobody else sends."""
        pending = self._pending(self.table.look_again())
        if pending.txn is None:
            self._note(pending, _BEFORE_ALL, self._topics.ends(self._sources(())), final=False)
            pending = self._pending(self.table.look_again())
        letters = unnoted = 0
        seen: set[str] = set()
        sent = _SentBefore(self._settings, self._broker, pending.ends)
        for entry in pending.entries:
            number, sources = self._send_entry(sender, entry, sent)
            seen |= sources
            letters += number
            unnoted += number
            if unnoted >= _NOTE_EVERY or entry is pending.entries[-1]:
                ends = self._topics.ends(self._sources(seen))
                pending.txn = self._note(pending, entry.version, ends)
                unnoted = 0
        return letters

    def _send_entry(self, sender: Sender, entry: deltalog.Entry, sent: _SentBefore) -> tuple[int, set[str]]:
        """Send the letters of one log entry; return how many, and the topics that they came from."""
        paths = self._paths(entry)
        with self.table.reading():
            found = index(self.table.storage, paths)
            parts = portions(self.table.storage, paths, found)
        needed: dict[str, int] = {}
        for tp in by_partition(coordinates(found)):
            needed[tp.topic] = max(needed.get(tp.topic, 0), tp.partition + 1)
        self._topics.ensure(needed)
        count = 0
        for portion in parts:
            with self.table.reading():
                letters = fetch(self.table.storage, paths, portion)
            count += self._send_letters(sender, letters, sent)
            self._on_step()
        self._log.info("dead letters published", entry=entry.version, letters=count, already_there=len(found) - count)
        return count, set(needed)

    def _send_letters(self, sender: Sender, letters: Sequence[DeadLetter], sent: _SentBefore) -> int:
        style, now_ms = self._settings.dead_letters.format, time.time_ns() // 1_000_000
        messages = []
        for letter in letters:
            topic = self._settings.dead_letters.topic_for(letter.origin.topic)
            if letter.origin not in sent.on(topic):
                messages.append(dead_letter(letter, topic, style, now_ms))
        sender.send(messages)
        for topic, number in Counter(message.origin.topic for message in messages).items():
            self._on_sent(self.route, topic, number)
        return len(messages)

    def _paths(self, entry: deltalog.Entry) -> list[str]:
        """Return the files of an entry; refuse to pass over one that VACUUM has removed, unless told to."""
        paths = [unquote(file.path) for file in entry.adds]
        with self.table.reading():
            gone = [path for path in paths if not self.table.storage.exists(path)]
        if gone and not self._skip_gap:
            msg = f"quarantine table {self.table.uri}: VACUUM removed {gone[0]} of log entry {entry.version}"
            raise self._gap(f"{msg} before its dead letters were published")
        if gone:
            self._log.error("dead letters skipped", entry=entry.version, files=len(gone), why="VACUUM removed them")
        return [path for path in paths if path not in gone]

    def _sources(self, seen: Collection[str]) -> set[str]:
        """Return the topics whose letters may come: those of the route, and those that had letters."""
        route = self._settings.routes[self.route]
        return {topic for topic in self._broker.topics() if route.matches(topic)} | set(seen)

    def _pending(self, version: Version) -> Pending:
        """Read the log after our txn."""
        pending = Pending(version.txns.get(self._app_id))
        done = _BEFORE_ALL if pending.txn is None else pending.txn
        if done >= 0:
            self._take(pending, self.table.entry(done), done)
        first = done + 1
        try:
            for entry in version.entries(first):
                self._take(pending, entry, done)
        except LookupError as gone:
            if not self._skip_gap:
                msg = f"quarantine table {self.table.uri}: log clean-up removed {gone.args[0]}"
                raise self._gap(f"{msg} before its dead letters were published") from gone
            return self._pending_after_gap(version, pending, done)
        return pending

    def _pending_after_gap(self, version: Version, pending: Pending, done: int) -> Pending:
        first = self.table.oldest_entry(version.number)
        pending.rewritten = True  # be it only to note that the gap is behind us
        self._log.error("dead letters skipped", entries=f"{done + 1} to {first - 1}", why="log clean-up removed them")
        for entry in version.entries(first):
            self._take(pending, entry, done)
        return pending

    def _take(self, pending: Pending, entry: deltalog.Entry | None, done: int) -> None:
        if entry is None:
            return
        if self._app_id in entry.txns and entry.txns[self._app_id] == pending.txn:
            pending.ends = entry.commit_info.get(_ENDS, {})
        if entry.version > done:
            pending.passed += 1
            pending.rewritten |= bool(entry.removes or entry.adds)
            if is_new(entry):
                pending.entries.append(entry)

    def _gap(self, what: str) -> DataLossError:
        return DataLossError(
            what,
            hint=f"see what is in quarantine (`ingestor dlq list CONFIG --route {self.route}`), then go on behind the "
            "gap with `ingestor dlq publish CONFIG --skip-gap`",
        )

    def _note(self, pending: Pending, done: int, ends: Mapping[str, list[int]], *, final: bool = True) -> int:
        """Move our txn to the last entry that is dealt with; raise Fenced if another has moved it."""
        info = self.table.info("dlq_publish") | {_ENDS: dict(ends)}

        def move(version: Version) -> int:
            if version.txns.get(self._app_id) != pending.txn:
                raise Fenced("another publisher has noted its progress")
            quiet = final and not any(is_new(entry) for entry in version.entries(done + 1))
            value = version.number + 1 if quiet else done
            version.put_txn(self._app_id, value, info)
            return value

        return self.table.compare_and_swap(move)


class _SentBefore:
    """What had got to each dead letter topic since its ends were noted, and is not counted by our txn."""

    def __init__(self, settings: Settings, broker: Broker, ends: Mapping[str, list[int]]) -> None:
        self._settings = settings
        self._broker = broker
        self._ends = ends
        self._known: dict[str, set[Coordinate]] = {}

    def on(self, topic: str) -> set[Coordinate]:
        """Return the records whose letters are on a topic; read before we send the first one there."""
        if topic not in self._known:
            since = unread(self._broker, self._ends, [topic])
            if since.lost:
                shown = ", ".join(map(str, since.lost))
                logs.get().warning("retention was quicker: a dead letter may be sent twice", partitions=shown)
            messages = committed(self._settings.kafka, since.spans)
            self._known[topic] = {origin for message in messages for origin in origins_of(message)}
        return self._known[topic]
