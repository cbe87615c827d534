"""Connections of the HTTP server: a bounded number of threads, whatever clients do, and room for the next probe.

A client that sends a byte now and then must not take `/livez` away, for a healthy process would be killed. So a request
has one deadline as a whole, and where all places are taken the connection that has waited longest makes room.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import threading
import time
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS_MAX = 32
_CLIENT_SECONDS = 10.0  # for a whole request and its answer
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_BREATH_SECONDS = 0.05


class Answer(NamedTuple):
    """A whole response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    policy: str = "default-src 'none'"


class Pages(Protocol):
    """What is asked for answers, from the server's threads."""

    def answer(self, path: str, accept: str) -> Answer:
        """Return the answer to a GET."""


class Server(ThreadingHTTPServer):
    """Listens from its making on."""

    daemon_threads = True
    request_queue_size = CLIENTS_MAX

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}  # by descriptor, the one that has waited longest first
        self._spare: int | None = None  # a descriptor to give up when there are no others
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), partial(_Handler, pages))
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which can take half a minute."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def server_close(self) -> None:
        """Close the port."""
        super().server_close()
        self._give_spare()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection; out of descriptors, make one free for it instead of asking again and again."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            if not self._give_spare() and not self._turn_oldest_away():
                time.sleep(_BREATH_SECONDS)  # nothing of ours is left to give
            return super().get_request()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Answer on a thread of its own, in the place of the longest waiting one if all are taken."""
        with self._lock:
            full = len(self._open) >= CLIENTS_MAX
        if full:
            self._turn_oldest_away()
        with self._lock:
            self._open[request.fileno()] = request
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started; the next client may have more luck
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - same
        """Close a connection and forget it."""
        with self._lock:
            self._open.pop(request.fileno(), None)
        super().shutdown_request(request)
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - same
        """Say nothing: a client that hangs up is no event."""

    def _turn_oldest_away(self) -> bool:
        """Shut down the connection that has been there longest; its thread then ends by itself and closes it."""
        with self._lock:
            oldest = next(iter(self._open), None)
            request = None if oldest is None else self._open.pop(oldest)
        if request is None:
            return False
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
        return True

    def _give_spare(self) -> bool:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        return spare is not None


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server_version = "ingestor"
    sys_version = ""

    def __init__(self, pages: Pages, *args: Any) -> None:  # noqa: ANN401 - as in socketserver
        self._pages = pages
        super().__init__(*args)

    def setup(self) -> None:
        """Let all that is read and written share one deadline."""
        super().setup()
        self.rfile = io.BufferedReader(_Limited(self.connection, time.monotonic() + _CLIENT_SECONDS))

    def do_GET(self) -> None:
        try:
            path = urlsplit(self.path).path
        except ValueError:
            self._send(Answer(HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", b"this is no URL\n"))
            return
        self._send(self._pages.answer(path, self.headers.get("Accept", "")))

    def do_HEAD(self) -> None:
        self.do_GET()

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Refuse every other method: nothing can be changed through here."""
        if name.startswith("do_"):
            refusal = b"only GET and HEAD\n"
            return partial(self._send, Answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", refusal))
        raise AttributeError(name)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("Referrer-Policy", "no-referrer")
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as in http.server
        """Say nothing: probes come every few seconds."""


class _Limited(io.RawIOBase):
    """Reads from a connection up to a deadline, however slowly bytes come."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Read what is there, waiting no longer than to the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)  # the answer has what is left then
        return self._connection.recv_into(buffer)
