"""The fault proxies: what a test believes to have happened to a request has happened to it."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.tcpproxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = bytes(range(256)) * 400


class Echo(ThreadingHTTPServer):
    """Answers each PUT with its own body, and remembers it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, bytes]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        assert isinstance(self.server, Echo)
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.got.append((f"{self.command} {self.path}", body))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Signed", self.headers.get("X-Signed", ""))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = _do  # noqa: N815 - the names that the server looks for

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def one_proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(one_proxy: FaultProxy, echo: Echo) -> FaultProxy:
    one_proxy.heal()
    one_proxy.clear()
    echo.got.clear()
    return one_proxy


def put(proxy: FaultProxy, target: str = "/a", body: bytes = BODY, *, timeout: float = 5) -> tuple[int, bytes]:
    """Send one request on a connection of its own; return status and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=timeout)) as connection:
        connection.request("PUT", target, body, {"X-Signed": "yes"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_bytes_pass_unchanged(proxy: FaultProxy, echo: Echo) -> None:
    """Target, headers and body, in both directions: a signature over them stays valid."""
    target = "/b%2Fc/d?x=1&y=%20&uploads="
    assert put(proxy, target) == (200, BODY)
    assert echo.got == [(f"PUT {target}", BODY)]
    assert [(seen.method, seen.target, seen.upstream, seen.answered) for seen in proxy.seen] == [
        ("PUT", target, 200, 200)
    ]


def test_a_connection_serves_many_requests(proxy: FaultProxy, echo: Echo) -> None:
    """With bodies in chunks and none at all, and HEAD, whose answer has a length but no body."""
    with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)) as connection:
        connection.request("PUT", "/chunked", iter([b"one", b"two"]))
        assert connection.getresponse().read() == b"onetwo"
        sock = connection.sock
        connection.request("HEAD", "/head")
        assert connection.getresponse().read() == b""
        connection.request("GET", "/get")
        assert connection.getresponse().read() == b""
        assert connection.sock is sock
    assert [line for line, _ in echo.got] == ["PUT /chunked", "HEAD /head", "GET /get"]


@pytest.mark.parametrize("kind", [Kind.RESET_BEFORE, Kind.RESET_AFTER])
def test_a_reset_is_one(kind: Kind, proxy: FaultProxy, echo: Echo) -> None:
    """The connection is reset; only afterwards has the store seen the request."""
    proxy.on("PUT", "/a", Fault(kind))
    with pytest.raises(ConnectionResetError):
        put(proxy)
    assert len(echo.got) == (kind is Kind.RESET_AFTER)
    assert proxy.hits == 1
    assert put(proxy)[0] == 200


@pytest.mark.parametrize("kind", [Kind.HANG_BEFORE, Kind.HANG_AFTER, Kind.HALF_OPEN])
def test_a_hang_lasts(kind: Kind, proxy: FaultProxy, echo: Echo) -> None:
    """Nobody answers, and nobody ends the connection."""
    proxy.on("PUT", "/a", Fault(kind))
    with pytest.raises(TimeoutError):
        put(proxy, timeout=0.3)
    assert len(echo.got) == (kind is Kind.HANG_AFTER)


def test_a_half_open_connection_takes_no_more_than_its_buffers_hold(proxy: FaultProxy) -> None:
    """A sender of much gets stuck in sending, as before a peer that is gone."""
    proxy.on("PUT", "/a", Fault(Kind.HALF_OPEN))
    with pytest.raises(TimeoutError):
        put(proxy, body=bytes(32 << 20), timeout=0.3)


def test_a_hang_ends_with_a_reset(proxy: FaultProxy) -> None:
    """After the time that was named."""
    proxy.on("PUT", "/a", Fault(Kind.HANG_BEFORE, seconds=0.2))
    with pytest.raises(ConnectionResetError):
        put(proxy)


@pytest.mark.parametrize("status", [403, 409, 412, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("kind", [Kind.STATUS_BEFORE, Kind.STATUS_AFTER])
def test_a_status_is_answered(kind: Kind, status: int, proxy: FaultProxy, echo: Echo) -> None:
    """Before or after the store has done it, in the form in which S3 tells errors; the connection goes on."""
    proxy.on("PUT", "/a", Fault(kind, status=status))
    got, body = put(proxy)
    assert got == status
    assert body.startswith(b"<Error><Code>")
    assert len(echo.got) == (kind is Kind.STATUS_AFTER)
    assert proxy.seen[0].answered == status


def test_a_delay_is_one(proxy: FaultProxy) -> None:
    """The request passes, later."""
    proxy.on("PUT", "/a", Fault(Kind.DELAY, seconds=0.3))
    started = time.monotonic()
    assert put(proxy) == (200, BODY)
    assert time.monotonic() - started >= 0.3


def test_a_delayed_request_passes_though_its_sender_has_gone(proxy: FaultProxy, echo: Echo) -> None:
    """As in a network that holds on to what it has: who gave up must not believe that nothing happens any more."""
    proxy.on("PUT", "/a", Fault(Kind.DELAY, seconds=0.5))
    with pytest.raises(TimeoutError):
        put(proxy, timeout=0.1)
    deadline = time.monotonic() + 5
    while not echo.got:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_answer_comes_in_drops(proxy: FaultProxy) -> None:
    """All of it, in its own time."""
    proxy.on("PUT", "/a", Fault(Kind.TRICKLE, seconds=0.4))
    started = time.monotonic()
    assert put(proxy) == (200, BODY)
    assert time.monotonic() - started >= 0.3


def test_an_answer_is_cut_off(proxy: FaultProxy) -> None:
    """Its head promises more than comes."""
    proxy.on("PUT", "/a", Fault(Kind.TRUNCATE))
    with pytest.raises(http.client.IncompleteRead):
        put(proxy)


def test_rules_choose(proxy: FaultProxy) -> None:
    """By method and target, after some, some times, each so many."""
    proxy.on("GET", "", Fault(Kind.STATUS_BEFORE, status=500), times=None)
    proxy.on("PUT", r"^/b\?", Fault(Kind.STATUS_BEFORE, status=502), times=None)
    proxy.on("PUT", "^/c$", Fault(Kind.STATUS_BEFORE, status=503), skip=1, times=2, every=2)
    assert [put(proxy, "/c")[0] for _ in range(6)] == [200, 503, 200, 503, 200, 200]
    assert put(proxy, "/b?x")[0] == 502
    assert put(proxy, "/a")[0] == 200
    proxy.clear()
    assert put(proxy, "/b?x")[0] == 200


def test_a_seed_repeats_itself(proxy: FaultProxy) -> None:
    """What random faults did once they do again."""
    runs = []
    for _ in range(2):
        proxy.clear()
        faults = [Fault(Kind.STATUS_BEFORE, status=status) for status in (500, 502, 503, 504)]
        proxy.on("*", "", *faults, times=None, seed=7)
        runs.append([put(proxy)[0] for _ in range(12)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


def test_an_outage_ends_by_itself(proxy: FaultProxy) -> None:
    """Connections are refused, then no longer, on the same port."""
    proxy.outage(0.5)
    with pytest.raises(ConnectionRefusedError):
        put(proxy)
    deadline = time.monotonic() + 5
    while True:
        try:
            assert put(proxy)[0] == 200
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_silence_is_an_outage_too(proxy: FaultProxy) -> None:
    """Connections are taken, and nothing comes of them."""
    proxy.silence()
    with pytest.raises(TimeoutError):
        put(proxy, timeout=0.2)
    proxy.heal()
    assert put(proxy)[0] == 200


@pytest.fixture
def lines() -> Iterator[int]:
    """A server of lines: it answers each with itself; its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    connection.sendall(data)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(5)


def test_any_protocol_passes(lines: int) -> None:
    """And is cut, delayed, silenced and refused."""
    with TcpProxy(lines) as proxy:

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", proxy.port), timeout=2)

        with connect() as first:
            first.sendall(b"hello")
            assert first.recv(100) == b"hello"
            proxy.delay(0.2)
            started = time.monotonic()
            first.sendall(b"slow")
            assert first.recv(100) == b"slow"
            assert time.monotonic() - started >= 0.4
            proxy.heal()
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                first.recv(100)
        with connect() as second:
            second.sendall(b"again")
            assert second.recv(100) == b"again"
            proxy.silence()
            second.sendall(b"lost")
            second.settimeout(0.2)
            with pytest.raises(TimeoutError):
                second.recv(100)
            proxy.heal()
            second.settimeout(2)
            with pytest.raises(ConnectionResetError):
                second.recv(100)
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect()
        proxy.heal()
        with connect() as third:
            third.sendall(b"back")
            assert third.recv(100) == b"back"
        assert proxy.connections == 3
