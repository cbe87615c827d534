"""How long each fault holds one call with the time-outs of production: below every deadline that waits for it.

Time-outs are of requests. A store that answers each of them just in time still makes a call of five requests slow; that
is a slow store, not one that is gone, and the breaker leaves it alone.
"""

from __future__ import annotations

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from ingestor.delta.storage import with_defaults
from ingestor.delta.table import RawTable
from ingestor.records import RawSchema
from tests.support.process.server import free_ports
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.stores.stores import Store

pytestmark = pytest.mark.faults

# A call that can't be answered comes back at the latest after this: the least of session time-out (45 s by default),
# half the poll interval (150 s) and the time that a breaker stays open (60 s).
DEADLINE_SECONDS = 45.0
SLACK_SECONDS = 5.0


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose queue of connections is full: who connects gets no answer at all, as behind a dead router."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)  # noqa: FBT003 - its only argument
            with contextlib.suppress(BlockingIOError):
                client.connect(listening.getsockname())
        yield listening.getsockname()[1]


# What happens to every request, and within how many seconds the call comes back.
HOLDS = {
    "500": (Fault(Kind.STATUS_BEFORE, status=500), 10),
    "503": (Fault(Kind.STATUS_BEFORE, status=503), 10),
    "429": (Fault(Kind.STATUS_BEFORE, status=429), 10),
    "reset": (Fault(Kind.RESET_BEFORE), 10),
    "truncated": (Fault(Kind.TRUNCATE), 10),
    "silent": (Fault(Kind.HANG_BEFORE), 15),
    "in drops": (Fault(Kind.TRICKLE, seconds=60), 15),
}


def test_no_fault_holds_a_call_beyond_the_deadlines(any_store: Store) -> None:
    """All at once, for they mostly wait."""
    bucket = any_store.make_bucket()
    url = any_store.url(bucket)
    RawTable(url, RawSchema(), any_store.storage_options)

    def opening(endpoint: str) -> float:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            DeltaTable(url, storage_options=with_defaults(any_store.options(endpoint)))
        return time.monotonic() - started

    with contextlib.ExitStack() as stack:
        endpoints = {"refused": f"http://127.0.0.1:{free_ports(1)[0]}"}
        endpoints["deaf"] = f"http://127.0.0.1:{stack.enter_context(deaf_port())}"
        endpoints["unknown host"] = "http://no-such-host.invalid"
        for name, (fault, _) in HOLDS.items():
            proxy = stack.enter_context(FaultProxy(any_store.port))
            proxy.on("*", "", fault, times=None)
            endpoints[name] = proxy.url
        pool = stack.enter_context(ThreadPoolExecutor(len(endpoints)))
        seconds = dict(zip(endpoints, pool.map(opening, endpoints.values()), strict=True))
    most = {name: limit for name, (_, limit) in HOLDS.items()} | {"refused": 10, "deaf": 20, "unknown host": 20}
    print({name: round(took, 1) for name, took in sorted(seconds.items(), key=lambda item: item[1])})  # noqa: T201
    assert max(most.values()) + SLACK_SECONDS < DEADLINE_SECONDS
    late = {name: round(took, 1) for name, took in seconds.items() if took > most[name] + SLACK_SECONDS}
    assert not late
