"""The read-only HTTP server for probes, Prometheus and people: a daemon thread beside the pipeline.

It only asks: `State` answers from what the pipeline keeps anyway. Whatever fails in here ends in a 500 for the one who
asked, never in the process. How connections are dealt with: `http_server`.
"""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

from ingestor import logs
from ingestor.errors import ConfigError
from ingestor.observe.http_server import Answer, Server
from ingestor.observe.metrics import exposition
from ingestor.observe.page import page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

_STOP_POLL_SECONDS = 0.1
_REPEAT_SECONDS = 60.0
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


class State(Protocol):
    """What the server asks the process. Called from the server's threads: quick, and without side effects."""

    def live(self) -> bool:
        """Tell whether the loop moves."""

    def readiness(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""

    def status(self) -> Mapping[str, Any]:
        """Return what `/api/status` shows, as plain values."""

    def components(self) -> Mapping[str, str | None]:
        """Return what is wrong with each part (kafka, storage, breaker, dead_letters); None if nothing is."""


class HttpServer:
    """Listens from its making on, so that a port in use is found before anything else starts; answers once started."""

    def __init__(self, host: str, port: int, state: State, registry: CollectorRegistry) -> None:
        self._pages = _Pages(state, registry)
        self._server = _listen(host, port, self._pages)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _STOP_POLL_SECONDS},
            name="http",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """The port that it listens on, also where the settings left the choice open."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        host = str(self._server.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        logs.get().info("http server listens", url=self.url)

    def stop(self) -> None:
        """Close the port; answers under way may be cut off."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def require_port(host: str, port: int) -> None:
    """Refuse an address that can't be listened on, and leave it free."""
    _listen(host, port, cast("_Pages", None)).server_close()  # nobody is answered


def _listen(host: str, port: int, pages: _Pages) -> Server:
    try:
        return Server(host, port, pages)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"http: can't listen on {host}:{port}: {reason}"
        raise ConfigError(message, hint="choose another http.port (0: any free one), or http: null") from None


class _Pages:
    """What stands under each path."""

    def __init__(self, state: State, registry: CollectorRegistry) -> None:
        self._state = state
        self._registry = registry
        self._throttle = logs.Throttle(_REPEAT_SECONDS)
        self._by_path: dict[str, Callable[[str], Answer]] = {
            "/": self._index,
            "/livez": self._live,
            "/readyz": self._ready,
            "/metrics": self._prometheus,
            "/api/status": self._status,
            "/actuator/health": self._health,
            "/actuator/metrics": self._metrics,
            "/actuator/prometheus": self._prometheus,
        }

    def answer(self, path: str, accept: str) -> Answer:
        """Return the answer to a GET; an error in it becomes a 500."""
        answer = self._by_path.get(path.rstrip("/") or "/")
        if answer is None:
            return _text(HTTPStatus.NOT_FOUND, "not found; / lists what is here")
        try:
            return answer(accept)
        except Exception as error:  # noqa: BLE001 - one question must not harm the process
            if self._throttle.allow(type(error).__name__) is not None:
                logs.get().warning("http answer failed", path=path, exc_info=error)
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; the log says why")

    def _index(self, _accept: str) -> Answer:
        return Answer(HTTPStatus.OK, "text/html; charset=utf-8", page().body, page().policy)

    def _live(self, _accept: str) -> Answer:
        if self._state.live():
            return _text(HTTPStatus.OK, "live")
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, "the loop does not move")

    def _ready(self, _accept: str) -> Answer:
        reasons = self._state.readiness()
        if not reasons:
            return _text(HTTPStatus.OK, "ready")
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(["not ready", *reasons]))

    def _status(self, _accept: str) -> Answer:
        return _json(HTTPStatus.OK, self._state.status())

    def _health(self, _accept: str) -> Answer:
        parts = self._state.components()
        up = not any(parts.values())
        components = {
            name: {"status": "DOWN", "details": {"reason": wrong}} if wrong else {"status": "UP"}
            for name, wrong in parts.items()
        }
        status = HTTPStatus.OK if up else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(status, {"status": "UP" if up else "DOWN", "components": components})

    def _prometheus(self, accept: str) -> Answer:
        body, content_type = exposition(self._registry, accept)
        return Answer(HTTPStatus.OK, content_type, body)

    def _metrics(self, _accept: str) -> Answer:
        """Show the samples of `/metrics` as JSON, by name."""
        metrics: dict[str, list[dict[str, Any]]] = {}
        for family in self._registry.collect():
            for sample in family.samples:
                metrics.setdefault(sample.name, []).append({"tags": sample.labels, "value": sample.value})
        return _json(HTTPStatus.OK, {"names": sorted(metrics), "metrics": metrics})


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, _TEXT, f"{text}\n".encode())


def _json(status: HTTPStatus, value: object) -> Answer:
    return Answer(status, _JSON, json.dumps(value, default=str).encode())
