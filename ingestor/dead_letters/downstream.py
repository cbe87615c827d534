"""What becomes of the rows after they have landed: read from the tables' logs once a minute, for the metrics.

Parsing runs in other processes, and not all the time. Whether it is late shows in what it has left to do: the oldest
commit of raw behind where its checkpoint stands. Every ingestor reads the same, so take the highest of them.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingestor import logs
from ingestor.dead_letters.pending import BEFORE_ALL, Names, is_new
from ingestor.delta import deltalog
from ingestor.delta.failures import classify
from ingestor.delta.open import storage_of
from ingestor.observe.gauges import After

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestor.config.settings import Settings
    from ingestor.delta.deltalog import Entry
    from ingestor.delta.storage import Storage

_EVERY_SECONDS = 60.0
_STEPS = "_spark_jobs/steps"  # of a checkpoint: where the jobs note how far they have come


@dataclass(slots=True)
class Unparsed:
    """The oldest commit of a raw table that parsing has not taken."""

    raw: Storage
    checkpoint: Storage
    _parsed_to: int | None = None
    _read_to: int = 0  # from what is parsed up to here nothing is to be parsed
    _since: float | None = None  # when the commit there was made

    def since(self) -> float | None:
        """Return when the oldest unparsed commit was made, None if all is parsed."""
        parsed = self._parsed()
        if parsed != self._parsed_to:
            self._parsed_to = self._read_to = parsed
            self._since = None
        if self._since is None:
            self._since = self._first_from_here()
        return self._since

    def _parsed(self) -> int:
        """Return the first version that parsing has not taken, or not all of it."""
        ends = [name for name in self.checkpoint.list(_STEPS) if name.endswith(".end")]
        text = self.checkpoint.read(f"{_STEPS}/{max(ends)}") if ends else None
        position = json.loads(text)["position"] if text else None
        return int(position["version"]) if position else 0

    def _first_from_here(self) -> float | None:
        entry = deltalog.read_entry(self.raw, self._read_to)
        if entry is None:
            newest = deltalog.newest_version(self.raw)
            if newest is None or newest < self._read_to:
                return None
            self._read_to = _oldest_entry(self.raw, self._read_to)  # log clean-up removed what was before
            entry = deltalog.read_entry(self.raw, self._read_to)
        while entry is not None:
            if entry.adds and all(file.data_change for file in entry.adds):
                return _made_at(entry)
            self._read_to += 1
            entry = deltalog.read_entry(self.raw, self._read_to)
        return None


@dataclass(slots=True)
class Quarantined:
    """The rows that came into a quarantine table, and those of them that no publisher has sent yet."""

    storage: Storage
    position_name: str  # of the publisher's txn
    rows: int = 0  # that came since the first look
    position: int | None = None  # None: nobody ever published
    _version: int | None = None  # that was taken in last
    _waiting: list[tuple[int, float]] = field(default_factory=list)

    def look(self) -> None:
        """Take in what has been committed since."""
        taken = self._begin() if self._version is None else self._version
        while (entry := deltalog.read_entry(self.storage, taken + 1)) is not None:
            taken = entry.version
            self._take(entry)
        self._version = taken

    def _begin(self) -> int:
        """Begin behind the newest entry; what is to be sent may stand before it."""
        newest = deltalog.newest_version(self.storage)
        if newest is not None:
            self.position = deltalog.txns_at(self.storage, newest).get(self.position_name)
            if self.position is not None:
                for version in range(self.position + 1, newest + 1):
                    entry = deltalog.read_entry(self.storage, version)
                    if entry is not None:
                        self._take(entry)
        self.rows = 0
        return BEFORE_ALL if newest is None else newest

    def _take(self, entry: Entry) -> None:
        if is_new(entry):
            self.rows += sum(file.rows or 0 for file in entry.adds)
            self._waiting.append((entry.version, _made_at(entry)))
        self.position = sent = entry.txns.get(self.position_name, self.position)
        self._waiting = [] if sent is None else [waits for waits in self._waiting if waits[0] > sent]

    @property
    def unsent_since(self) -> float | None:
        """Return when the oldest rows came that are to be sent, None if there are none."""
        return self._waiting[0][1] if self._waiting else None


def _oldest_entry(storage: Storage, least: int) -> int:
    names = storage.list(deltalog.LOG_DIR)
    versions = [int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdecimal()]
    return min((version for version in versions if version >= least), default=least)


def _made_at(entry: Entry) -> float:
    stamp = entry.commit_info.get("timestamp")
    return stamp / 1000 if isinstance(stamp, int | float) else time.time()


class Downstream:
    """A thread that looks; what it saw last stays while a store does not answer."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._routes: dict[str, tuple[Unparsed, Quarantined]] = {}
        self._seen: dict[str, tuple[float | None, int, float | None]] = {}
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to look, if there is a route that is parsed."""
        if self._settings.parse:
            threading.Thread(target=self._follow, name="downstream", daemon=True).start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def after(self) -> dict[str, After]:
        """Return how things stood at the last look, by route; nothing before the first."""
        now = self._clock()
        return {
            route: After(_age(unparsed, now), rows, _age(unsent, now))
            for route, (unparsed, rows, unsent) in dict(self._seen).items()
        }

    def _follow(self) -> None:
        while True:
            for route in self._settings.parse:
                if self._ended.is_set():
                    return
                self.look(route)
            if self._ended.wait(_EVERY_SECONDS):
                return

    def look(self, route: str) -> None:
        """See how far one route's rows have come."""
        try:
            unparsed, quarantined = self._open(route)
            since = unparsed.since()
            quarantined.look()
        except Exception as error:  # noqa: BLE001 - what is looked at here must never cost ingestion
            doing = f"looking how far route {route} is parsed"
            logs.get().debug("downstream not seen", why=str(classify(error, doing=doing)))
            return
        self._seen[route] = since, quarantined.rows, quarantined.unsent_since

    def _open(self, route: str) -> tuple[Unparsed, Quarantined]:
        if route not in self._routes:
            parse, options = self._settings.parse[route], self._settings.storage_options
            raw = storage_of(self._settings.routes[route].table, options)
            position = Names.of(self._settings.app_id).position
            self._routes[route] = (
                Unparsed(raw, storage_of(parse.checkpoint, options)),
                Quarantined(storage_of(parse.quarantine, options), position),
            )
        return self._routes[route]


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)
