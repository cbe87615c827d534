"""Why the consumer group gives this process nothing to read: asked of Kafka beside the loop, and told while it lasts.

A group may have good reason. Under the classic protocol all members wait for one that died until its session is out.
Under KIP-848 a member that gets no partition is never told so: it looks like one that was not let in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.errors import RefusedError, Unavailable
from ingestor.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from ingestor.kafka.broker import Broker
    from ingestor.kafka.groups import Group
    from ingestor.observe.watch import Watch
    from ingestor.worker import Worker

_TELL_AFTER_SECONDS = 10.0
_ASK_AFTER_SECONDS = 5.0  # most starts have an assignment by then; to ask takes a process
_ASK_EVERY_SECONDS = 15.0
_ASK_SECONDS = 4.0
_SESSION_MS = "45000"  # librdkafka's default, and under KIP-848 the broker's


class Membership:
    """This process in its consumer group, as far as partitions are lacking. Used on the thread that polls."""

    def __init__(
        self,
        broker: Broker,
        kafka: Mapping[str, str],
        watch: Watch,
        *,
        clock: Callable[[], float] = time.monotonic,
        worker: Worker | None = None,
    ) -> None:
        self.session_seconds = int(kafka.get("session.timeout.ms", _SESSION_MS)) / 1000
        self._group_id = kafka["group.id"]
        self._by_broker = kafka.get("group.protocol") == "consumer"
        self._broker = broker
        self._watch = watch
        self._clock = clock
        self._worker = worker
        self._lacking_since: float | None = None
        self._asked_at = clock() - _ASK_EVERY_SECONDS
        self._answer: Future[Group | None] | None = None
        self._group: Group | None = None
        self._error = ""
        self._nobody_tells = False
        self._stands_by = False

    def look(self, *, lacking: bool) -> None:
        """Note whether partitions are lacking; while they are, ask for the reason."""
        now = self._clock()
        if not lacking:
            self._lacking_since = None
            self._stands_by = False
            return
        if self._lacking_since is None:
            self._lacking_since = now
        self._take_answer()
        waited = now - self._lacking_since >= _ASK_AFTER_SECONDS
        if waited and self._answer is None and now - self._asked_at >= _ASK_EVERY_SECONDS:
            self._asked_at = now
            self._worker = self._worker or ThreadWorker("membership")
            self._answer = self._worker.submit(lambda: self._broker.group(self._group_id, timeout=_ASK_SECONDS))

    def tell(self) -> None:
        """Warn if partitions have been lacking for a while; one who stands by for others has nothing to warn of."""
        if self._lacking_since is None or self._clock() - self._lacking_since < _TELL_AFTER_SECONDS:
            return
        if not self._by_broker or not self.others or (self._group is not None and self._group.rebalancing):
            self._watch.waiting(f"no assignment from the consumer group: {self.why}")
        elif not self._stands_by:
            self._stands_by = True
            logs.get().info("standing by", why=self.why)

    @property
    def others(self) -> bool:
        """Tell whether somebody else may be in the group, be it a dead member whose session is not out."""
        if self._group is None:
            return self._nobody_tells
        return len(self._group.members) > 1 or self._group.rebalancing

    @property
    def why(self) -> str:
        """Return the reason, as far as Kafka tells it."""
        if self._group is None:
            return self._error or f"Kafka has not answered yet who is in group {self._group_id}"
        shown = self._group.shown
        if self._group.rebalancing:
            return f"group {self._group_id} rebalances and waits for its members, dead ones too ({shown})"
        if self.others:
            return f"the members of group {self._group_id} share the partitions out without this process ({shown})"
        if self._by_broker and not self._group.members:
            return f"group {self._group_id} has no members: does the broker know group.protocol: consumer?"
        return f"Kafka has not let this process into group {self._group_id}"

    def _take_answer(self) -> None:
        if self._answer is None or not self._answer.done():
            return
        answer, self._answer = self._answer, None
        try:
            self._group = answer.result()
            self._nobody_tells = self._group is None
            self._error = f"this cluster does not tell who is in group {self._group_id}" if self._nobody_tells else ""
        except RefusedError as error:
            self._group, self._error = None, error.message
        except Unavailable as error:
            self._group, self._error = None, str(error)
