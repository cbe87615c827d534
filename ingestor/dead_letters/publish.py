"""Publishes the new rows of one route's quarantine table, each dead letter once.

    look ─▶ anything new since our position? ─ no ─▶ done
              │ yes
              ▼
    take over the transactional id      (earlier senders are fenced, and what they sent is settled)
    look again ─▶ an attempt is open? ─ yes ─▶ take it over, and read which of its letters are on the topics
              │ no, or done
              ▼
    note an attempt: a secret, and the topics with their ids and ends            (nothing is sent before that)
    send what is not there yet, batch by batch, each portion in one Kafka transaction
              ▼
    move the position by compare-and-swap, and close the attempt in the same commit

After a kill either nothing of a portion is on its topic or all of it, and the topics show which: every letter carries a
mark of its attempt (see `attempt`). Of two publishers at once, the later one fences the earlier one in Kafka, then
takes over the attempt in the table, so that the earlier one can't commit there either. If a dead letter topic was
deleted during an open attempt, it is unknown what had been sent to it: a person answers (`--resend`). `pending` decides
which letters are new.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.dead_letters import pending as log
from ingestor.dead_letters.attempt import Attempt, marks_on, since
from ingestor.dead_letters.letters import by_partition, coordinates
from ingestor.dead_letters.message import dead_letter
from ingestor.dead_letters.quarantine import Quarantine
from ingestor.dead_letters.topics import DeadLetterTopics
from ingestor.errors import ConfigError, DataLossError, Fenced
from ingestor.kafka.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ingestor.config.settings import Settings
    from ingestor.dead_letters.letters import DeadLetter
    from ingestor.dead_letters.pending import Batch, Pending
    from ingestor.dead_letters.quarantine import Version
    from ingestor.kafka.broker import Broker

_NOTE_EVERY = 10_000  # letters per commit of the position; more would mean more to read after a kill
_OWNERS = 1 << 62


class Publisher:
    """Publishes one route's dead letters. `skip_gap` and `resend` are a person's answers to refusals."""

    def __init__(
        self,
        settings: Settings,
        route: str,
        broker: Broker,
        *,
        skip_gap: bool = False,
        resend: bool = False,
        on_sent: Callable[[str, str, int], None] = lambda _route, _topic, _letters: None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.route = route
        self.table = Quarantine(settings, route)
        self._settings = settings
        self._broker = broker
        self._topics = DeadLetterTopics(settings, broker)
        self._topics_checked = False
        self._skip_gap = skip_gap
        self._resend = resend
        self._on_sent = on_sent
        self._on_step = on_step
        self._names = log.Names.of(settings.app_id)
        self._log = logs.get(route=route)

    def accept(self, number: int) -> None:
        """Record a person's answer that the rows that a RESTORE or overwrite put back count as sent."""
        entry = self.table.entry(number)
        if entry is None or not log.puts_back(entry):
            msg = f"--accept {number}: no RESTORE or overwrite of {self.table.uri} is at that version"
            raise ConfigError(msg, hint="give the version that the refusal names")
        self.table.prepare_to_write()
        info = self.table.info("dlq_accept") | {"accepted": number}
        name = self._names.accepted
        self.table.compare_and_swap(
            lambda version: version.put_txn({name: max(number, version.txns.get(name, number))}, info)
        )

    def publish(self) -> int | None:
        """Send new letters; return their number, None if there is no table. Raise Fenced if another took over."""
        version = self.table.look()
        if version is None:
            return None
        if not self._topics_checked:
            self._topics.check(self._settings.routes[self.route])
            self._topics_checked = True
        pending = self._pending(version)
        if pending.worth_noting:
            self.table.prepare_to_write()
            self._note(pending, version.number, None)
        if not pending.appends:
            return 0
        self.table.prepare_to_write()
        sender = Sender(self._settings.kafka, f"ingestor-dlq/{self._settings.app_id}/{self.route}")
        sender.start()
        return self._publish(sender)

    def _pending(self, version: Version) -> Pending:
        return log.read(self.table, version, self._names, skip_gap=self._skip_gap)

    def _publish(self, sender: Sender) -> int:
        """Read the table again, now that no other publisher sends, and send the new letters."""
        version = self.table.look_again()
        pending = self._pending(version)
        batches = log.batches(self.table, version, pending, self._names, skip_gap=self._skip_gap)
        there = self._take_over(pending)
        letters = unnoted = 0
        for batch in batches:
            number = self._send_entry(sender, batch, pending, there)
            letters += number
            unnoted += number
            if batch is batches[-1]:
                self._note(pending, batch.until, None)
            elif unnoted >= _NOTE_EVERY:
                attempt = pending.attempt or Attempt()
                self._note(pending, batch.until, attempt.over(self._broker, attempt.topics))
                unnoted = 0
        return letters

    def _take_over(self, pending: Pending) -> set[bytes]:
        """Take over an open attempt; return the marks of its letters that are on their topics."""
        if pending.attempt is None:
            return set()
        attempt = pending.attempt
        found = since(self._broker, attempt)
        if found.other and not self._resend:
            raise self._unsettled(found.other)
        if found.lost:
            shown = ", ".join(map(str, found.lost))
            self._log.warning("retention was quicker: a dead letter may be sent twice", partitions=shown)
        self._note(pending, pending.done, attempt.without(found.other))
        self._log.warning("an attempt was not finished", next="looks which letters are there", resent=found.other)
        return marks_on(self._settings.kafka, found.spans)

    def _unsettled(self, topics: Collection[str]) -> DataLossError:
        shown = ", ".join(topics)
        msg = f"route {self.route}: publishing was not finished, and topic {shown} was deleted since, which it sent to"
        command = f"ingestor dlq publish CONFIG --route {self.route} --resend"
        return DataLossError(
            msg, hint=f"`{command}` sends those letters again, to the topic as it is now, whether they were sent or not"
        )

    def _send_entry(self, sender: Sender, batch: Batch, pending: Pending, there: set[bytes]) -> int:
        """Send the letters of a batch; return their number."""
        found = batch.index(self.table)
        offsets = by_partition(coordinates(found))
        needed: dict[str, int] = {}
        for tp in offsets:
            needed[tp.topic] = max(needed.get(tp.topic, 0), tp.partition + 1)
        self._topics.ensure(needed)
        attempt = self._attempt_over({self._topics.name_for(topic) for topic in needed}, pending)
        count = 0
        for letters in self.table.letters(batch.paths, found):
            left = [letter for letter in letters if attempt.mark(letter.origin) not in there]
            count += self._send_letters(sender, left, attempt)
            self._on_step()
        for tp, partition_offsets in offsets.items():
            pending.highest[tp] = max(partition_offsets[-1], pending.highest.get(tp, log.BEFORE_ALL))
        self._log.info("dead letters published", entry=batch.until, letters=count, already_there=len(found) - count)
        return count

    def _attempt_over(self, topics: Collection[str], pending: Pending) -> Attempt:
        """Return an attempt that is noted in the table with all these topics."""
        attempt = pending.attempt or Attempt()
        missing = [topic for topic in topics if topic not in attempt.topics]
        if missing or pending.attempt is None:
            attempt = attempt.over(self._broker, missing)
            self._note(pending, pending.done, attempt)
        return attempt

    def _send_letters(self, sender: Sender, letters: Sequence[DeadLetter], attempt: Attempt) -> int:
        style, now_ms = self._settings.dead_letters.format, time.time_ns() // 1_000_000
        messages = []
        for letter in letters:
            topic = self._topics.name_for(letter.origin.topic)
            messages.append(dead_letter(letter, topic, style, now_ms, attempt.mark(letter.origin)))
        sender.send(messages)
        for topic, number in Counter(letter.origin.topic for letter in letters).items():
            self._on_sent(self.route, topic, number)
        return len(letters)

    def _note(self, pending: Pending, done: int, attempt: Attempt | None) -> None:
        """Commit the position and the open attempt; raise Fenced if another publisher has committed."""
        owner = 0 if attempt is None else secrets.randbelow(_OWNERS) + 1
        info = self.table.info("dlq_publish") | ({} if attempt is None else {log.ATTEMPT: attempt.as_noted()})
        names = self._names

        def put(version: Version) -> int:
            newest = (version.txns.get(names.position), version.txns.get(names.attempt, 0))
            if newest != (pending.position, pending.owner):
                raise Fenced("another publisher has noted its progress")
            quiet = attempt is None and all(log.is_quiet(entry) for entry in version.entries(done + 1))
            value = version.number + 1 if quiet else done
            offsets = {names.highest(tp): offset for tp, offset in pending.highest.items()}
            raised = {name: max(offset, version.txns.get(name, offset)) for name, offset in offsets.items()}
            version.put_txn({names.position: value, names.attempt: owner, **raised}, info)
            return value

        pending.position = self.table.compare_and_swap(put)
        pending.owner, pending.attempt = owner, attempt
