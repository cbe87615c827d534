"""Builds a pipeline that is ready to run from checked settings."""

from __future__ import annotations

import threading
import time
from concurrent import futures
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingestor.config.routing import Router, app_ids, matching, refuse_one_table_twice
from ingestor.delta.guards import Guards
from ingestor.delta.probe import Probed
from ingestor.delta.table import RawTable
from ingestor.errors import Fenced, IngestorError, RefusedError, Unavailable
from ingestor.ingest.breaker import Breaker
from ingestor.ingest.budget import Budget
from ingestor.ingest.committer import Committer, make_patience, system_rng
from ingestor.ingest.lane import Lane
from ingestor.ingest.maintenance import Maintenance
from ingestor.ingest.pipeline import Pipeline
from ingestor.ingest.placement import Placer, first_positions
from ingestor.ingest.route import Route as RouteAtWork
from ingestor.ingest.route import Times
from ingestor.ingest.stager import set_positions
from ingestor.ingest.steps import Steps, logged
from ingestor.kafka.broker import Broker
from ingestor.kafka.consumer import KafkaSource
from ingestor.ledger import START_APPLIED, AppIds
from ingestor.signals import Stopped
from ingestor.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import date

    from ingestor.config.settings import Route, Settings
    from ingestor.observe.watch import Watch
    from ingestor.signals import Stop

_WAIT_STEP_SECONDS = 0.2


@dataclass(slots=True)
class Opened:
    """A route's open table, owned by its storage thread."""

    table: RawTable
    committer: Committer
    placer: Placer
    steps: Steps


class Assembly:
    """All the parts of one process."""

    def __init__(
        self,
        settings: Settings,
        watch: Watch,
        *,
        stop: Stop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._stop = stop
        self._clock = clock
        self._rng = system_rng()
        self._breakers: dict[str, Breaker] = {}
        self._last_failures: dict[str, str] = {}  # by route, for the error when waiting ends
        self._breakers_lock = threading.Lock()  # tables are opened concurrently, each on its own thread
        self.broker = Broker(settings.kafka)
        self.router = Router(settings)
        self._queue_bytes = settings.memory // 8
        if "queued.max.messages.kbytes" in settings.kafka:
            self._queue_bytes = int(settings.kafka["queued.max.messages.kbytes"]) << 10
        # Created before anything is touched: only librdkafka can check a consumer's options.
        self._source = KafkaSource(
            settings.kafka,
            [topic for route in settings.routes.values() for topic in route.topics],
            route_of=self.router,
            extras={extra for route in settings.routes.values() for extra in route.extra_columns},
            queue_bytes=self._queue_bytes,
            flush_seconds=min(route.flush.seconds for route in settings.routes.values()),
        )
        self._maintenance = ThreadWorker("maintenance")
        self._probed = Probed(settings.storage_options)

    @property
    def intake(self) -> str:
        """Return which intake is used, for the log."""
        return self._source.intake

    def pipeline(self, *, patience_seconds: float | None) -> Pipeline:
        """Open every table and return the pipeline; `patience_seconds` limits the wait for a store (None: no limit)."""
        settings = self._settings
        # Uncommitted records exist up to three times at once: as Kafka's messages, Arrow arrays and Parquet pages.
        limit = min(settings.memory // 16, (settings.memory - self._queue_bytes) // 4)
        budget = Budget(limit, writers=len(settings.routes))
        routes = self._open_routes(budget, patience_seconds)
        return Pipeline(
            routes,
            self._source,
            route_of=self.router,
            budget=budget,
            times=times(settings.kafka),
            watcher=self._watch,
            clock=self._clock,
            poll_records=min(10_000, *(route.flush.rows for route in settings.routes.values())),
        )

    def _open_routes(self, budget: Budget, patience_seconds: float | None) -> dict[str, RouteAtWork]:
        stores = {name: ThreadWorker(f"store-{name}") for name in self._settings.routes}
        opening = {
            name: stores[name].submit(lambda route=route: self._open(route))  # type: ignore[misc]
            for name, route in self._settings.routes.items()
        }
        deadline = None if patience_seconds is None else self._clock() + patience_seconds
        for name, future in opening.items():
            while not future.done():
                futures.wait([future], timeout=_WAIT_STEP_SECONDS)
                self._watch.moved()
                if self._stop.asked():
                    raise Stopped
                if deadline is not None and self._clock() > deadline:
                    why = self._last_failures.get(name, "no answer at all")
                    msg = f"table {self._settings.routes[name].table} does not answer ({why})"
                    raise RefusedError(msg, hint="see that its store runs and is reachable from here")
        opened = {name: future.result() for name, future in opening.items()}
        refuse_one_table_twice(self._settings.txn_app_id, {name: each.table.identity for name, each in opened.items()})
        return {
            name: self._at_work(self._settings.routes[name], each, stores[name], budget)
            for name, each in opened.items()
        }

    def _open(self, route: Route) -> Opened:
        """Open a route's table and write its first positions; runs on its storage thread."""
        patience = make_patience(
            route.retry,
            breaker=self._breaker(route),
            sleep=self._stop.sleep,
            rng=self._rng,
            on_failure=lambda failure: self._failed(route, failure),
        )
        ids = app_ids(self._settings, route)
        options = self._settings.storage_options
        probing = f"probing the store of table {route.table}"
        patience.until_answered(lambda: self._probed.probe(route.table, opened=False), doing=probing)
        table = patience.until_answered(
            lambda: RawTable(route.table, route.schema, options),
            doing=f"opening table {route.table}",
        )
        patience.until_answered(lambda: self._probed.probe(route.table, opened=True), doing=probing)
        steps = logged(route.name)
        maintenance = Maintenance(self._settings, route.name, table, worker=self._maintenance, watcher=self._watch)
        committer = Committer(
            table,
            Guards(route.name, route.table, ids),
            occ=route.occ,
            patience=patience,
            clock=self._clock,
            on_outcome=lambda outcome: self._watch.committing(route.name, outcome),
            topic_ids=self.broker.topic_ids,
            maintain=maintenance.landed,
            steps=steps,
        )
        placer = Placer(
            route.name,
            route.table,
            committer,
            self.broker,
            skip_lost=route.on_data_loss == "skip",
            on_look=lambda placed: self._watch.looked(route.name, placed),
        )
        self._write_first_positions(route, ids, committer, placer)
        self._watch.store_answered(route.name)
        return Opened(table, committer, placer, steps)

    def _failed(self, route: Route, failure: IngestorError | Unavailable) -> None:
        self._last_failures[route.name] = str(failure)
        self._watch.storage_failed(route.name, failure)

    def _write_first_positions(self, route: Route, ids: AppIds, committer: Committer, placer: Placer) -> None:
        if route.start == "earliest":
            return
        while True:
            known = ids.read(committer.txns())
            first_run = not known and ids.of(START_APPLIED) not in committer.txns()
            try:
                first = first_positions(
                    matching(route, self.broker.topics()) if route.is_regex else route.topics,
                    explicit=not route.is_regex,
                    start=route.start,
                    known=known,
                    first_run=first_run,
                    cluster=self.broker,
                )
                if first:
                    placer.refuse(first)
                if route.is_regex and first_run:
                    first[START_APPLIED] = 0
                if first:
                    ids_now = self.broker.topic_ids({tp.topic for tp in first} - {START_APPLIED.topic})
                    committer.land(set_positions(first), {"operation_kind": "bootstrap", "topic_ids": ids_now})
            except Unavailable as error:
                self._watch.waiting(str(error))
                self._stop.sleep(1.0)
                continue
            except Fenced:
                continue  # another process wrote first positions: those count
            return

    def _at_work(self, route: Route, opened: Opened, store: ThreadWorker, budget: Budget) -> RouteAtWork:
        lane = Lane(
            route.name,
            schema=route.schema,
            storage=lambda: opened.table.storage,
            limits=route.flush,
            compression=route.compression,
            land=opened.committer.land,
            encoder=ThreadWorker(f"encode-{route.name}"),
            store=store,
            budget=budget,
            clock=self._clock,
            today=utc_today,
            steps=opened.steps,
        )
        return RouteAtWork(lane, opened.placer, store, self._breaker(route))

    def _breaker(self, route: Route) -> Breaker:
        """Return the breaker of a table's store; routes on one store share it."""
        store = route.table.partition("://")[0] + "://" + route.table.partition("://")[2].partition("/")[0]
        store = store if "://" in route.table else "local"
        self._watch.lies_in(route.name, store)
        with self._breakers_lock:
            if store not in self._breakers:
                settings = self._settings.breaker
                self._watch.breaker_made(store)
                self._breakers[store] = Breaker(
                    failures=settings.failures,
                    open_seconds=settings.open_seconds,
                    successes=settings.successes,
                    clock=self._clock,
                    on_change=lambda state: self._watch.breaker_changed(store, state),
                )
            return self._breakers[store]


def times(kafka: Mapping[str, str]) -> Times:
    """Derive the pipeline's times from the group's time-outs: the group waits during a flush, and must not expel us."""
    session = int(kafka.get("session.timeout.ms", "45000")) / 1000
    poll_interval = int(kafka.get("max.poll.interval.ms", "300000")) / 1000
    return Times(
        revoke_seconds=min(session, poll_interval / 2),
        place_seconds=min(10.0, session / 2, poll_interval / 4),
    )


def utc_today() -> date:
    """Return today's date, for `ingest_date`."""
    return datetime.now(UTC).date()
