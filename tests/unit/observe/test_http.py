from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.errors import ConfigError
from ingestor.observe import http_server
from ingestor.observe.http import HttpServer
from ingestor.observe.http_server import CLIENTS_MAX
from ingestor.observe.metrics import Level, Levels, Metrics
from ingestor.records import TopicPartition
from tests.support.fakes.state import FakeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@pytest.fixture
def state() -> FakeState:
    return FakeState()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def server(state: FakeState, metrics: Metrics) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, state, metrics.registry)
    server.start()
    yield server
    server.stop()


def ask(
    server: HttpServer, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def test_livez_tells_whether_the_loop_moves(server: HttpServer, state: FakeState) -> None:
    assert ask(server, "/livez")[0].status == 200

    state.is_live = False

    assert ask(server, "/livez")[0].status == 503


def test_readyz_names_every_reason_against(server: HttpServer, state: FakeState) -> None:
    assert ask(server, "/readyz")[0].status == 200

    state.reasons = ["no partition assigned", "breaker open"]
    response, body = ask(server, "/readyz")

    assert response.status == 503
    assert body == "not ready\nno partition assigned\nbreaker open\n"


def test_status_is_json(server: HttpServer) -> None:
    response, body = ask(server, "/api/status")

    assert response.getheader("Content-Type") == "application/json"
    assert json.loads(body) == {"routes": {"events": {"lag": 5}}}


@pytest.mark.parametrize("path", ["/metrics", "/actuator/prometheus"])
def test_metrics_are_there_for_prometheus(server: HttpServer, metrics: Metrics, path: str) -> None:
    metrics.duplicates("events", 5)

    response, body = ask(server, path)

    assert (response.getheader("Content-Type") or "").startswith("text/plain; version=")
    assert 'ingestor_duplicates_skipped_total{route="events"} 5.0' in body


def test_metrics_are_there_as_openmetrics_for_who_asks(server: HttpServer) -> None:
    response, body = ask(server, "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    assert (response.getheader("Content-Type") or "").startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


def test_metrics_are_there_as_json(server: HttpServer, metrics: Metrics) -> None:
    metrics.show_levels(lambda: Levels(partitions=[Level("events", TopicPartition("a", 1), None, 7)]))

    found = json.loads(ask(server, "/actuator/metrics")[1])

    assert "ingestor_lag_records" in found["names"]
    assert found["metrics"]["ingestor_lag_records"] == [
        {"tags": {"route": "events", "topic": "a", "partition": "1"}, "value": 7.0}
    ]


def test_health_is_up_while_nothing_is_wrong(server: HttpServer) -> None:
    response, body = ask(server, "/actuator/health")

    assert response.status == 200
    assert json.loads(body) == {
        "status": "UP",
        "components": {part: {"status": "UP"} for part in ("kafka", "storage", "breaker", "dead_letters")},
    }


def test_health_is_down_with_the_reason_of_the_part_that_is(server: HttpServer, state: FakeState) -> None:
    state.wrong["storage"] = "no answer since 5 s"

    response, body = ask(server, "/actuator/health")

    assert response.status == 503
    found = json.loads(body)
    assert found["status"] == "DOWN"
    assert found["components"]["storage"] == {
        "status": "DOWN",
        "details": {"reason": "no answer since 5 s"},
    }
    assert found["components"]["kafka"] == {"status": "UP"}


def test_the_root_is_a_page_that_links_to_all_that_is_there(server: HttpServer) -> None:
    response, body = ask(server, "/")

    assert response.status == 200
    assert response.getheader("Content-Type") == "text/html; charset=utf-8"
    assert "script-src 'sha256-" in (response.getheader("Content-Security-Policy") or "")
    for path in ("/livez", "/readyz", "/metrics", "/api/status", "/actuator/health"):
        assert path in body


@pytest.mark.parametrize("path", ["/nothing", "/api", "/..%2f..", "//livez/x"])
def test_any_other_path_is_not_found(server: HttpServer, path: str) -> None:
    assert ask(server, path)[0].status == 404


@pytest.mark.parametrize("path", ["/livez/", "/livez?verbose=1"])
def test_a_slash_or_a_query_make_no_difference(server: HttpServer, path: str) -> None:
    assert ask(server, path)[0].status == 200


def test_head_answers_like_get_without_a_body(server: HttpServer) -> None:
    response, body = ask(server, "/livez", method="HEAD")

    assert response.status == 200
    assert response.getheader("Content-Length") == "5"
    assert body == ""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_nothing_can_be_changed(server: HttpServer, method: str) -> None:
    response, _ = ask(server, "/livez", method=method)

    assert response.status == 405
    assert response.getheader("Allow") == "GET, HEAD"


def test_an_error_in_an_answer_is_told_to_the_one_who_asked_and_harms_no_one(
    server: HttpServer, state: FakeState
) -> None:
    def broken() -> Mapping[str, Any]:
        raise RuntimeError("secret detail")

    state.shown = broken

    response, body = ask(server, "/api/status")

    assert response.status == 500
    assert "secret" not in body
    assert ask(server, "/livez")[0].status == 200


def test_a_status_that_is_no_json_is_shown_as_text(server: HttpServer, state: FakeState) -> None:
    state.shown = lambda: {"tp": {1}}

    assert json.loads(ask(server, "/api/status")[1]) == {"tp": "{1}"}


def test_a_client_that_talks_nonsense_or_hangs_up_harms_no_one(server: HttpServer) -> None:
    for sent in (b"", b"\x00\xff\r\n\r\n", b"GET /livez HTTP/1.1\r\n", b"GET " + b"x" * 100_000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(sent)

    assert ask(server, "/livez")[0].status == 200


def test_of_too_many_clients_the_oldest_makes_room(server: HttpServer) -> None:
    """A probe gets through although every place is taken by somebody who says nothing."""
    clients = [connect(server) for _ in range(CLIENTS_MAX)]
    for _ in range(3):
        assert ask(server, "/livez")[0].status == 200
    assert clients[0].recv(1) == b""
    for client in clients:
        client.close()


def test_clients_that_send_a_byte_now_and_then_take_nothing_away(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is for the whole request, not for each read."""
    monkeypatch.setattr(http_server, "_CLIENT_SECONDS", 1.0)
    clients = [connect(server) for _ in range(CLIENTS_MAX)]
    cut_off: set[socket.socket] = set()
    while len(cut_off) < len(clients):
        for client in set(clients) - cut_off:
            try:
                client.sendall(b"G")
            except OSError:
                cut_off.add(client)
        assert ask(server, "/livez")[0].status == 200
    for client in clients:
        client.close()


def test_a_thread_that_can_not_be_started_costs_one_answer_only(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is free again: else a healthy process would be deaf after 32 of them."""
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        for _ in range(CLIENTS_MAX + 1):
            with connect(server) as client:
                assert client.recv(1) == b""
    assert ask(server, "/livez")[0].status == 200


def no_thread(_self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain; version=banana",
        "application/openmetrics-text; version=1.0.0.0.x",
        "text/plain; version=1.0.0; escaping=banana",
        "application/vnd.google.protobuf; encoding=delimited",
        ";=,;;",
    ],
)
def test_metrics_come_whatever_is_asked_for(server: HttpServer, accept: str) -> None:
    """A scraper that asks for an odd version gets the plain form."""
    assert ask(server, "/metrics", headers={"Accept": accept})[0].status == 200


def test_a_target_that_is_no_url_is_answered(server: HttpServer) -> None:
    """Silence looks like a dead process."""
    with connect(server) as client:
        client.sendall(b"GET http://[::1/livez HTTP/1.0\r\n\r\n")
        assert b" 400 " in client.makefile("rb").readline()


def test_out_of_descriptors_livez_still_answers() -> None:
    """In a process of its own, whose files are used up; the loop that takes connections must not spin either."""
    program = """
import os, resource, sys, time
from tests.unit.observe.test_http import probe_without_descriptors
probe_without_descriptors()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "answered 200 200 200" in done.stdout
    assert float(done.stdout.split("cpu ")[1]) < 0.5


def probe_without_descriptors() -> None:
    """Ask from another process while this one has no descriptor left; print the answers, and the CPU of a second."""
    server = HttpServer("127.0.0.1", 0, FakeState(), Metrics().registry)
    server.start()
    asker = subprocess.Popen(
        [sys.executable, "-c", _ASKER, str(server.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert asker.stdin is not None
    assert asker.stdout is not None
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)
    asker.stdin.write("go\n")
    asker.stdin.flush()
    answers = asker.stdout.readline().strip()
    before = time.process_time()
    time.sleep(1)
    sys.stdout.write(f"answered {answers} cpu {time.process_time() - before}")


_ASKER = """
import sys, http.client
sys.stdin.readline()
found = []
for _ in range(3):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=10)
    connection.request("GET", "/livez")
    found.append(str(connection.getresponse().status))
    connection.close()
print(*found, flush=True)
"""


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def test_a_port_in_use_is_a_configuration_error(server: HttpServer, state: FakeState, metrics: Metrics) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}: Address already in use"):
        HttpServer("127.0.0.1", server.port, state, metrics.registry)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "::zz", "x" * 300])
def test_a_host_that_is_not_ours_is_a_configuration_error(host: str, state: FakeState, metrics: Metrics) -> None:
    with pytest.raises(ConfigError, match="can't listen"):
        HttpServer(host, 0, state, metrics.registry)


def test_ipv6_works_where_the_machine_has_it(state: FakeState, metrics: Metrics) -> None:
    try:
        server = HttpServer("::1", 0, state, metrics.registry)
    except ConfigError:
        pytest.skip("no IPv6 here")
    assert server.url == f"http://[::1]:{server.port}"
    server.stop()


def test_a_stopped_server_frees_its_port(state: FakeState, metrics: Metrics) -> None:
    first = HttpServer("127.0.0.1", 0, state, metrics.registry)
    first.start()
    first.stop()

    second = HttpServer("127.0.0.1", first.port, state, metrics.registry)

    assert second.port == first.port
    second.stop()
