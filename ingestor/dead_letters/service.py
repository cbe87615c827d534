"""`ingestor dlq publish`: publishes all routes once, or repeatedly until a signal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ingestor import logs
from ingestor.dead_letters.publish import Publisher
from ingestor.errors import ConfigError, Fenced, IngestorError, OccExhaustedError, Unavailable
from ingestor.ingest.committer import system_rng
from ingestor.kafka.broker import Broker
from ingestor.observe.gauges import show_process
from ingestor.observe.http import HttpServer
from ingestor.observe.metrics import Metrics
from ingestor.signals import Stop, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from ingestor.config.settings import Settings

_TAKEOVERS_MAX = 6
_YIELD_SECONDS = 2.0
_STUCK_SECONDS = 300.0  # in addition to the pause: a portion, reading a topic and a commit take less
_ASK_SECONDS = 2.0


def parsed_routes(settings: Settings, only: str | None) -> list[str]:
    """Return the routes that have a quarantine table; ConfigError if there is none, or not for the wanted route."""
    if only is not None and only not in settings.routes:
        raise ConfigError(f"there is no route {only}", hint=f"routes: {', '.join(settings.routes)}")
    routes = [name for name in settings.routes if name in settings.parse and only in (None, name)]
    if not routes:
        what = "no route has a parse section" if only is None else f"route {only} has no parse section"
        raise ConfigError(f"{what}, so nothing is ever quarantined", hint=f"add parse: {{{only or 'ROUTE'}: {{…}}}}")
    return routes


def publish_once(
    settings: Settings,
    routes: Sequence[str],
    *,
    skip_gap: bool = False,
    resend: bool = False,
    tell: Callable[[str], None],
) -> None:
    """Publish the new letters of every route; raise the first failure after all routes."""
    failures: list[Exception] = []
    broker = Broker(settings.kafka)
    for route in routes:
        publisher = Publisher(settings, route, broker, skip_gap=skip_gap, resend=resend)
        try:
            tell(f"{route}: {_shown(_until_alone(publisher), publisher.table.uri)}")
        except (IngestorError, Unavailable) as error:
            failures.append(error)
            tell(f"{route}: FAILED: {error}")
    if failures:
        raise failures[0]


def _shown(letters: int | None, table: str) -> str:
    if letters is None:
        return f"nothing to do: there is no quarantine table at {table} yet"
    return f"{letters:,} dead {'letter' if letters == 1 else 'letters'} published"


def _until_alone(publisher: Publisher) -> int | None:
    """Publish, and try again if another publisher took over, which may have ended before all was sent."""
    for turn in range(_TAKEOVERS_MAX):
        try:
            return publisher.publish()
        except Fenced as error:
            logs.get().info("another publisher is at work", route=publisher.route, why=str(error))
            time.sleep(system_rng().uniform(0.5, 1) * _YIELD_SECONDS * (turn + 1))
    msg = f"route {publisher.route}: other publishers took over {_TAKEOVERS_MAX} times in a row"
    raise OccExhaustedError(msg, hint="let one publisher at a time serve a route; nothing was lost or sent twice")


class Service:
    """Publishes repeatedly until a signal; retriable failures are tried again at the next turn."""

    def __init__(
        self,
        settings: Settings,
        routes: Sequence[str],
        every: timedelta,
        *,
        skip_gap: bool = False,
        resend: bool = False,
    ) -> None:
        self._settings = settings
        self._every = every.total_seconds()
        self._metrics = Metrics()
        self._broker = Broker(settings.kafka)
        self._stop = Stop("ingestor: stopped at once; what was sent is found and not sent twice")
        self.status = Status(self._every)
        self._publishers = [
            Publisher(
                settings,
                route,
                self._broker,
                skip_gap=skip_gap,
                resend=resend,
                on_sent=self._metrics.dead_letters,
                on_step=self._step,
            )
            for route in routes
        ]

    def run(self) -> None:
        """Publish until SIGTERM or SIGINT; raise permanent failures."""
        self._stop.listen()
        log = logs.get()
        server = self._serve()
        url = None if server is None else server.url
        log.info("started", routes=len(self._publishers), every_seconds=self._every, http=url)
        try:
            while not self._stop.asked():
                self._turn()
                self._stop.wait(self._every)
        except Stopped:
            pass
        finally:
            if server is not None:
                server.stop()
        log.info("stopped", letters=self.status.letters)

    def _serve(self) -> HttpServer | None:
        http = self._settings.http
        if http is None:
            return None
        show_process(self._metrics.registry)
        server = HttpServer(http.host, http.port, self.status, self._metrics.registry)
        server.start()
        return server

    def _turn(self) -> None:
        failures: list[IngestorError] = []
        for publisher in self._publishers:
            if self._stop.asked():
                return
            try:
                letters = publisher.publish()
            except Fenced as error:
                logs.get().info("another publisher is at work", route=publisher.route, why=str(error))
                self.status.well(publisher.route, None)
            except Unavailable as error:
                logs.get().warning("dead letters wait", route=publisher.route, why=str(error))
                self._metrics.failure(publisher.route, "retriable")
                self.status.failed(publisher.route, str(error), kafka=self._kafka_trouble())
            except IngestorError as error:
                self._metrics.failure(publisher.route, "permanent")
                failures.append(error)
            else:
                self.status.well(publisher.route, letters)
        self.status.turned()
        if failures:
            raise failures[0]

    def _kafka_trouble(self) -> str | None:
        try:
            self._broker.topics(timeout=_ASK_SECONDS)
        except (Unavailable, IngestorError) as error:
            return str(error)
        return None

    def _step(self) -> None:
        self.status.moved()
        if self._stop.asked():
            raise Stopped  # between two portions


class Status:
    """Implements `http.State` for a publisher."""

    def __init__(self, every_seconds: float) -> None:
        self._stuck_seconds = every_seconds + _STUCK_SECONDS
        self._moved_at = time.monotonic()
        self._turns = 0
        self._turned_at: float | None = None
        self._routes: dict[str, int] = {}
        self._failures: dict[str, tuple[str, str | None]] = {}

    @property
    def letters(self) -> int:
        """How many letters were published since the start."""
        return sum(self._routes.values())

    def moved(self) -> None:
        """Note a step of the loop."""
        self._moved_at = time.monotonic()

    def turned(self) -> None:
        """Note the end of a turn of all routes."""
        self.moved()
        self._turns += 1
        self._turned_at = time.time()

    def well(self, route: str, letters: int | None) -> None:
        """Note a route's success and its number of letters."""
        self._failures.pop(route, None)
        self._routes[route] = self._routes.get(route, 0) + (letters or 0)

    def failed(self, route: str, why: str, *, kafka: str | None) -> None:
        """Note why a route's letters wait; `kafka` is Kafka's failure, if that is the reason."""
        self._failures[route] = (why, kafka)

    def live(self) -> bool:
        """Return whether the loop is not stuck."""
        return time.monotonic() - self._moved_at < self._stuck_seconds

    def readiness(self) -> list[str]:
        """Return why dead letters wait; empty if none does."""
        reasons = [f"route {route}: {why}" for route, (why, _) in sorted(self._failures.items())]
        return reasons if self._turns else [*reasons, "the first turn has not ended yet"]

    def status(self) -> Mapping[str, Any]:
        """Return the object of `/api/status`."""
        return {
            "routes": {
                route: {"published": self._routes.get(route, 0), "failure": self._failures.get(route, (None,))[0]}
                for route in sorted({*self._routes, *self._failures})
            },
            "turns": self._turns,
            "last_turn_at": self._turned_at,
            "ready": not self.readiness(),
            "reasons": self.readiness(),
        }

    def components(self) -> Mapping[str, str | None]:
        """Return each component's problem, None if it has none."""
        failures = self._failures.values()
        kafka = next((trouble for _, trouble in failures if trouble is not None), None)
        storage = next((why for why, trouble in failures if trouble is None), None)
        waiting = ", ".join(sorted(self._failures))
        return {
            "kafka": kafka,
            "storage": storage,
            "breaker": None,
            "dead_letters": f"dead letters of {waiting} wait" if waiting else None,
        }
