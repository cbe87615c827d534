"""A proxy between a client and an HTTP store that makes chosen requests fail as networks and stores do.

    with FaultProxy(store.port) as proxy:
        proxy.on("PUT", r"_delta_log/.*json", Fault(Kind.RESET_AFTER))
        table.attempt(...)  # lands, and its answer is lost
        assert proxy.hits == 1

Bytes pass unchanged, so signatures stay valid. Each request gets a connection of its own to the store, so nothing is
ever sent there twice. `seen` tells what came, what was done to it, and what was answered.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tests.support.stores.tcpproxy import TcpProxy, TcpServer, reset

_FOREVER_SECONDS = 3600.0
_CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "SlowDown",
}
_BODILESS = ("204", "304")


class Kind(StrEnum):
    """What can happen to a request."""

    DELAY = "delay"  # passed on late, by `seconds`
    RESET_BEFORE = "reset before"  # the store never sees it; the connection is reset
    RESET_AFTER = "reset after"  # the store has done it; the connection is reset instead of an answer
    HANG_BEFORE = "hang before"  # the store never sees it, nobody answers for `seconds`, then a reset
    HANG_AFTER = "hang after"  # the store has done it, nobody answers for `seconds`, then a reset
    STATUS_BEFORE = "status before"  # the store never sees it; `status` is answered
    STATUS_AFTER = "status after"  # the store has done it; `status` is answered all the same
    TRICKLE = "trickle"  # the answer comes in drops, over `seconds`
    TRUNCATE = "truncate"  # the answer ends in its middle
    HALF_OPEN = "half open"  # its body is never read, nobody answers, the connection stays open


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    seconds: float = _FOREVER_SECONDS
    status: int = 503
    code: str = ""  # S3's name of the error, by default what fits the status


@dataclass(slots=True)
class Seen:
    """One request: when it came, what it was, what was done to it, what the store and what we answered."""

    seconds: float
    method: str
    target: str
    conditional: bool
    fault: Fault | None = None
    upstream: int | None = None
    answered: int | None = None


@dataclass(slots=True)
class _Rule:
    method: str
    target: re.Pattern[str]
    faults: tuple[Fault, ...]
    times: int | None
    skip: int
    every: int
    rng: random.Random
    matched: int = 0
    hits: int = 0

    def takes(self, request: Seen) -> bool:
        """Tell whether the request gets a fault, and count it."""
        if self.method not in ("*", request.method) or not self.target.search(request.target):
            return False
        self.matched += 1
        if self.matched <= self.skip or (self.matched - self.skip - 1) % self.every:
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


class _Message(NamedTuple):
    first: list[str]  # the words of the first line
    headers: dict[str, str]
    raw: bytes


class HttpServer(TcpServer):
    """The proxy's own side."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self._seen: list[Seen] = []
        self._rules: list[_Rule] = []
        self._started = time.monotonic()

    async def on(
        self, method: str, target: str, faults: tuple[Fault, ...], times: int | None, skip: int, every: int, seed: int
    ) -> None:
        """Add a rule."""
        self._rules.append(_Rule(method, re.compile(target), faults, times, skip, every, random.Random(seed)))

    async def clear(self) -> None:
        """Forget rules and what was seen."""
        self._rules, self._seen = [], []

    async def seen(self) -> list[Seen]:
        """Return every request since the last `clear`."""
        return self._seen

    def _fault(self, request: Seen) -> Fault | None:
        return next((rule.rng.choice(rule.faults) for rule in self._rules if rule.takes(request)), None)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._clear.wait()
            head = await _read_head(reader)
            if head is None:
                return
            method, target = head.first[:2]
            request = Seen(time.monotonic() - self._started, method, target, "if-none-match" in head.headers)
            request.fault = self._fault(request)
            self._seen.append(request)
            if not await self._exchange(request, head, reader, writer):
                return

    async def _exchange(
        self, request: Seen, head: _Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Pass one request on, or not; tell whether the connection goes on."""
        fault = request.fault or Fault(Kind.DELAY, 0.0)
        if fault.kind is Kind.HALF_OPEN:
            return await self._hang(fault, writer)
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _read_body(reader, head.headers)
        if fault.kind is Kind.DELAY:
            await asyncio.sleep(fault.seconds + self._delay_seconds)
        elif fault.kind is Kind.RESET_BEFORE:
            reset(writer)
            return False
        elif fault.kind is Kind.HANG_BEFORE:
            return await self._hang(fault, writer)
        elif fault.kind is Kind.STATUS_BEFORE:
            return await _answer(request, fault, writer)
        await self._clear.wait()
        answer = await self._upstream(request, head.raw + body)
        await self._clear.wait()
        return await self._deliver(request, fault, answer, writer)

    async def _deliver(self, request: Seen, fault: Fault, answer: _Message, writer: asyncio.StreamWriter) -> bool:
        if fault.kind is Kind.RESET_AFTER:
            reset(writer)
            return False
        if fault.kind is Kind.HANG_AFTER:
            return await self._hang(fault, writer)
        if fault.kind is Kind.STATUS_AFTER:
            return await _answer(request, fault, writer)
        request.answered = request.upstream
        if fault.kind is Kind.TRUNCATE:
            writer.write(answer.raw[: -max(1, len(answer.raw) // 4)])
            await writer.drain()
            return False
        await _send(writer, answer.raw, over_seconds=fault.seconds if fault.kind is Kind.TRICKLE else 0.0)
        delimited = {"content-length", "transfer-encoding"} & answer.headers.keys() or answer.first[1] in _BODILESS
        return bool(delimited) and answer.headers.get("connection", "").lower() != "close"

    async def _upstream(self, request: Seen, raw: bytes) -> _Message:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        self._open.add(writer)
        try:
            writer.write(raw)
            await writer.drain()
            answer = await _read_answer(reader, bodiless=request.method == "HEAD")
        finally:
            self._open.discard(writer)
            writer.close()
        request.upstream = int(answer.first[1])
        return answer

    async def _hang(self, fault: Fault, writer: asyncio.StreamWriter) -> bool:
        """Hold the connection open without a word, whatever the client does, then reset it."""
        await asyncio.sleep(fault.seconds)
        reset(writer)
        return False


async def _answer(request: Seen, fault: Fault, writer: asyncio.StreamWriter) -> bool:
    """Answer as S3 does when something is wrong."""
    request.answered = fault.status
    code = fault.code or _CODES.get(fault.status, "Error")
    text = f"<Error><Code>{code}</Code><Message>{code} by the proxy</Message></Error>".encode()
    head = f"HTTP/1.1 {fault.status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + (b"" if request.method == "HEAD" else text))
    await writer.drain()
    return True


async def _send(writer: asyncio.StreamWriter, raw: bytes, *, over_seconds: float) -> None:
    step = max(1, len(raw) // 20) if over_seconds else len(raw)
    for start in range(0, len(raw), step):
        writer.write(raw[start : start + step])
        await writer.drain()
        await asyncio.sleep(over_seconds * step / len(raw))


async def _read_head(reader: asyncio.StreamReader) -> _Message | None:
    """Return the head of a message, None at the end of the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = raw.decode("latin1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return _Message(first.split(), {name.strip().lower(): value.strip() for name, value in pairs}, raw)


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if size == 0:
            return body


async def _read_answer(reader: asyncio.StreamReader, *, bodiless: bool) -> _Message:
    while True:
        head = await _read_head(reader)
        if head is None:
            raise ConnectionResetError("the store hung up without an answer")
        if not head.first[1].startswith("1"):  # 100 Continue
            break
    if bodiless or head.first[1] in _BODILESS:
        body = b""
    elif {"content-length", "transfer-encoding"} & head.headers.keys():
        body = await _read_body(reader, head.headers)
    else:
        body = await reader.read()
    return head._replace(raw=head.raw + body)


class FaultProxy(TcpProxy):
    """The test's side of it; the faults of a whole network (`outage`, `refuse`, `silence`, `cut`) it has too."""

    server = HttpServer

    @property
    def url(self) -> str:
        """The store's endpoint, as seen through the proxy."""
        return f"http://{self.address}"

    def on(
        self,
        method: str,
        target: str,
        *faults: Fault,
        times: int | None = 1,
        skip: int = 0,
        every: int = 1,
        seed: int = 0,
    ) -> None:
        """Give requests a fault: those of a method ("*": any) whose path and query match a regex.

        The first `skip` of them are spared, then each `every`th has one, until `times` had (None: for ever). Of
        several faults the seed chooses. The first rule that takes a request counts.
        """
        self._call("on", method, target, faults, times, skip, every, seed)

    def clear(self) -> None:
        """Forget all rules, and what was seen."""
        self._call("clear")

    @property
    def seen(self) -> list[Seen]:
        """Every request since the last `clear`."""
        seen: list[Seen] = self._call("seen")
        return seen

    @property
    def hits(self) -> int:
        """How many requests had a fault since the last `clear`."""
        return sum(request.fault is not None for request in self.seen)
