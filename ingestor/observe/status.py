"""What the process shows of itself: the loop writes it down now and then, the HTTP server's threads read it."""

from __future__ import annotations

import threading
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ingestor import DISTRIBUTION, logs
from ingestor.delta.failures import plain
from ingestor.observe.ages import Ages
from ingestor.observe.gauges import Gauges, RouteGauges, Standing
from ingestor.observe.health import Said, judge
from ingestor.observe.lag import Lag
from ingestor.observe.metrics import Level, Levels
from ingestor.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ingestor.config.settings import Settings
    from ingestor.ingest.pipeline import Pipeline
    from ingestor.observe.gauges import After
    from ingestor.observe.health import Health
    from ingestor.observe.lag import Cluster, Ends
    from ingestor.observe.snapshot import Row
    from ingestor.observe.watch import Watch
    from ingestor.records import TopicPartition

    Spans = Mapping[TopicPartition, tuple[int, int]]

_SNAPSHOT_SECONDS = 1.0
_LOST_SECONDS = 60.0  # so long what was known of lost partitions is shown, to see whether it is Kafka that is away


class Status:
    """Implements `http.State`. `moved` and `tick` are for the thread that polls, everything else for any thread."""

    def __init__(
        self,
        settings: Settings,
        watch: Watch,
        cluster: Cluster,
        *,
        stuck_seconds: float,
        first_written: Callable[[Spans], Mapping[TopicPartition, int | None]],
        after: Callable[[], Mapping[str, After]] = dict,
    ) -> None:
        """Take how to look up when the first record of each span was written, and what becomes of rows `after`."""
        self._settings = settings
        self._watch = watch
        self._first_written = first_written
        self._after = after
        self._stuck_seconds = stuck_seconds
        self._started_at = time.time()
        self._moved_at = time.monotonic()
        self._shown_at = 0.0
        self._snapshot: Snapshot | None = None
        self._last: tuple[Snapshot, float] | None = None  # the last one with an assignment, and until when it counts
        self._made: tuple[Snapshot, Ends, dict[str, list[Row]]] | None = None
        self._polled_at: dict[str, float] = {}
        self._ages = Ages()
        self._told: tuple[bool, ...] = ()
        self._been_ready = False
        self._telling = threading.Lock()
        self.why_no_assignment: Callable[[], str] = lambda: ""
        self._lag = Lag(cluster, partitions=self._partitions, on_stuck=watch.waiting, on_asked=self._asked)
        watch.waited = self._lag.ask_soon
        watch.metrics.show_levels(self._levels)
        Gauges(watch.metrics.registry, self._standing)
        for name in settings.routes:
            watch.metrics.known(name)
        self._lag.start()

    def end(self) -> None:
        """Ask Kafka for no more lag; what was known last is still shown."""
        self._lag.end()

    # --- written by the loop ----------------------------------------------------------------------------------------

    def moved(self) -> None:
        """Note that the start gets on, though it waits."""
        self._moved_at = time.monotonic()

    def tick(self, pipeline: Pipeline) -> None:
        """Note that the loop moves, and now and then how its routes are."""
        now = self._moved_at = time.monotonic()
        if now - self._shown_at < _SNAPSHOT_SECONDS:
            return
        self._shown_at = now
        before = self._snapshot
        self._snapshot = shown = Snapshot(
            joined=pipeline.joined,
            routes=pipeline.view(),
            committed=self._watch.stand(),
            memory=pipeline.memory,
        )
        if shown.joined:
            self._last = (shown, now + _LOST_SECONDS)
            reading = [name for name, view in shown.routes.items() if view.failure is None and not view.paused]
            self._polled_at.update(dict.fromkeys(reading, time.time()))
        if before is None or before.reading != shown.reading:
            self._lag.ask_soon()
        self._tell()

    # --- asked by the server ----------------------------------------------------------------------------------------

    def live(self) -> bool:
        """Tell whether the loop moves."""
        return time.monotonic() - self._moved_at < self._stuck_seconds

    def health(self) -> Health:
        """Return what is wrong: the one verdict that all others are taken from."""
        said = Said(self._lag.trouble, self._lag.answered, dict(self._watch.stores), self.why_no_assignment())
        return judge(self._settings.routes, self._snapshot, said)

    def readiness(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""
        return self.health().reasons

    def components(self) -> Mapping[str, str | None]:
        """Return what is wrong with each part; None if nothing is."""
        return self.health().components

    def status(self) -> Mapping[str, Any]:
        """Return what `/api/status` shows."""
        health = self.health()
        shown, rows, stale = self._known()
        used, limit = self._memory()
        return {
            "app_id": self._settings.app_id,
            "version": version(DISTRIBUTION),
            "now": time.time(),
            "started_at": self._started_at,
            "live": self.live(),
            "ready": not health.reasons,
            "reasons": health.reasons,
            "kafka_up": self._lag.trouble is None and self._lag.answered,
            "lag": _total(rows),
            "stale": stale,
            "memory": {"used_bytes": used, "limit_bytes": limit},
            "routes": {name: self._route(name, health, shown, rows.get(name, [])) for name in self._settings.routes},
            **self._watch.recent.shown(),
        }

    def _route(self, name: str, health: Health, shown: Snapshot, rows: list[Row]) -> dict[str, Any]:
        settings = self._settings.routes[name]
        found: dict[str, Any] = {"table": plain(settings.table), "topics": list(settings.topics)}
        found |= {"state": health.routes[name].state.value, "why": health.routes[name].why}
        view = shown.routes.get(name)
        if view is None:
            return {**found, "partitions": []}
        return {
            **found,
            "failure": None if view.failure is None else str(view.failure),
            "breaker": view.breaker.value,
            "pending": view.pending,
            "buffer_bytes": view.draft_bytes,
            "flush_bytes": settings.flush.bytes,
            "behind_seconds": round(self._ages.behind(rows), 1),
            "partitions": [_partition(row) for row in rows],
        }

    # --- what is known of partitions --------------------------------------------------------------------------------

    def _known(self) -> tuple[Snapshot, dict[str, list[Row]], bool]:
        """Return the newest snapshot that knows of partitions, these by route, and whether that is of old.

        A session that ends because Kafka is away takes the partitions with it, and how they stood is still true.
        """
        shown = self._snapshot or Snapshot()
        away = self._lag.trouble is not None
        if not shown.joined and self._last is not None and (away or time.monotonic() < self._last[1]):
            return shown, self._rows(self._last[0]), True
        return shown, self._rows(shown), away

    def _rows(self, shown: Snapshot) -> dict[str, list[Row]]:
        """Return a snapshot's rows: the same ones until there is a newer one, or Kafka says something newer."""
        ends, known = self._lag.ends, self._made
        if known is None or known[0] is not shown or known[1] is not ends:
            known = self._made = shown, ends, shown.rows(ends)
        return known[2]

    def _partitions(self) -> list[TopicPartition]:
        return [row.tp for rows in self._known()[1].values() for row in rows]

    def _memory(self) -> tuple[int, int]:
        """Return how much of `memory` is taken: what may be held of it at the same time counts as all of it."""
        used, limit = (self._snapshot or Snapshot()).memory
        allowed = self._settings.memory
        return (used * allowed // limit if limit else 0), allowed

    def _levels(self) -> Levels:
        """Return what the metrics show of each partition."""
        shown, rows, _ = self._known()
        return Levels(
            {name: view.draft_bytes for name, view in shown.routes.items()},
            [Level(name, row.tp, row.committed, row.lag) for name, found in rows.items() for row in found],
        )

    def _standing(self) -> Standing:
        """Return what the gauges show."""
        health = self.health()
        shown, rows, _ = self._known()
        routes = {}
        for name in self._settings.routes:
            view, found = shown.routes.get(name), rows.get(name, [])
            routes[name] = RouteGauges(
                state=health.routes[name].state,
                store=self._watch.store_of.get(name, ""),
                assigned=0 if view is None else view.assigned,
                committed_at=self._watch.landed_at.get(name, 0.0),
                polled_at=self._polled_at.get(name, 0.0),
                behind_seconds=self._ages.behind(found),
                headroom=[(row.tp, row.lacks - row.low) for row in found if row.low is not None],
            )
        return Standing(self._lag.trouble is None and self._lag.answered, *self._memory(), routes, self._after())

    # --- on the thread that asks Kafka ------------------------------------------------------------------------------

    def _asked(self, regular: bool) -> None:  # noqa: FBT001 - what `Lag` says
        _, rows, _ = self._known()
        if regular:
            self._watch.recent.sample(None if self._lag.trouble is not None else _total(rows))
        self._tell()
        if self._lag.trouble is None:
            self._look_up([row for found in rows.values() for row in found])

    def _look_up(self, rows: list[Row]) -> None:
        """Find out how old those records are that were not read though the table lacks them."""
        self._ages.forget_all_but([row.tp for row in rows])
        spans = self._ages.unknown(rows)
        if spans:
            try:
                self._ages.found(spans, self._first_written(spans))
            except Exception as error:  # noqa: BLE001 - what ages cost must never be the lag
                logs.get().debug("ages are not known", why=str(error))

    def _tell(self) -> None:
        """Log when something becomes wrong, and when all is well again: the reasons that `/readyz` gives."""
        health = self.health()
        parts = tuple(wrong is not None for wrong in health.components.values())
        with self._telling:
            if parts == self._told:
                return
            before, self._told = self._told, parts
        if not any(parts):
            self._been_ready = True
            if any(before):
                logs.get().info("ready")
        elif self._been_ready:
            logs.get().warning("not ready", reasons=health.reasons)
        else:  # every start passes through this
            logs.get().info("not ready", reasons=health.reasons)


def _partition(row: Row) -> dict[str, Any]:
    return {
        "topic": row.tp.topic,
        "partition": row.tp.partition,
        "position": row.position,
        "committed_offset": row.committed,
        "record_at": None if row.record_ms < 0 else row.record_ms / 1000,
        "lag": row.lag,
        "open_transaction_at": row.open_at,
    }


def _total(rows: Mapping[str, Iterable[Row]]) -> int | None:
    """Return the lag of all partitions together, None if there are some and it is not known of any."""
    found = [row.lag for each in rows.values() for row in each]
    known = [lag for lag in found if lag is not None]
    return sum(known) if known or not found else None
