"""A proxy for any protocol over TCP that cuts, delays, falls silent or is not there: a bad network.

    with TcpProxy(broker_port) as proxy:
        proxy.outage(5)

For Kafka the broker has to advertise the proxy's address, else clients go on past it.

It is a process of its own: a client that waits inside of a library without giving Python's lock away would hold up a
thread, and with it the very answer that it waits for. The process ends with its parent, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import struct
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from multiprocessing.connection import Connection

_CALL_SECONDS_MAX = 30.0
_CHUNK_BYTES = 64 << 10
_LINE_BYTES_MAX = 1 << 20


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by RST instead of in order."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class TcpServer:
    """The proxy's own side: passes bytes on, and has faults for all connections at once."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._delay_seconds = 0.0
        self._connections = 0
        # Bound but never listening: it keeps the port ours while connections are refused.
        self._claim = _bound(0)
        self._port: int = self._claim.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clear = asyncio.Event()  # set while bytes may pass
        self._healing: asyncio.TimerHandle | None = None

    async def serve(self, control: Connection) -> None:
        """Do what the other side asks for, until it is gone."""
        asked = asyncio.Event()
        asyncio.get_running_loop().add_reader(control.fileno(), asked.set)
        await self.heal()
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                await asked.wait()
                while control.poll():
                    name, arguments = control.recv()
                    control.send(await getattr(self, name)(*arguments))
                asked.clear()

    async def port(self) -> int:
        """Return where clients connect to."""
        return self._port

    async def aim(self, upstream_port: int) -> None:
        """Pass what comes from now on to another port."""
        self._upstream_port = upstream_port

    async def connections(self) -> int:
        """Return how many connections were ever taken."""
        return self._connections

    async def delay(self, seconds: float) -> None:
        """Wait before each chunk, in both directions."""
        self._delay_seconds = seconds

    async def cut(self) -> None:
        """Reset every connection."""
        for writer in self._open:
            reset(writer)

    async def refuse(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def silence(self) -> None:
        """Pass nothing on."""
        self._clear.clear()

    async def outage(self, seconds: float, silent: bool) -> None:  # noqa: FBT001 - called by name and position
        """Refuse connections, or be silent, for a time."""
        await (self.silence() if silent else self.refuse())
        if self._healing is not None:
            self._healing.cancel()
        self._healing = asyncio.get_running_loop().call_later(seconds, lambda: self._keep(self.heal()))

    async def heal(self) -> None:
        """End every fault of the whole network."""
        if self._healing is not None:
            self._healing.cancel()
            self._healing = None
        self._delay_seconds = 0.0
        if not self._clear.is_set():
            await self.cut()
            self._clear.set()
        if self._server is None:
            sock = _bound(self._port)
            self._server = await asyncio.start_server(self._connected, sock=sock, limit=_LINE_BYTES_MAX, backlog=512)

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self._open.add(writer)
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            reset(writer)
        except asyncio.CancelledError:
            reset(writer)  # the proxy ends; asyncio would report a cancelled connection as an error
        finally:
            self._open.discard(writer)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        await self._clear.wait()
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        self._open.add(up_writer)
        try:
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
        finally:
            self._open.discard(up_writer)
            up_writer.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK_BYTES):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            await self._clear.wait()
            sink.write(data)
            await sink.drain()
        with contextlib.suppress(OSError):
            sink.write_eof()


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def _run(kind: type[TcpServer], upstream_port: int, control: Connection) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(kind, upstream_port, control))


async def _serve(kind: type[TcpServer], upstream_port: int, control: Connection) -> None:
    await kind(upstream_port).serve(control)


class TcpProxy:
    """The test's side of the proxy. Its verbs return when they are done."""

    server: ClassVar[type[TcpServer]] = TcpServer

    def __init__(self, upstream_port: int) -> None:
        spawning = multiprocessing.get_context("spawn")  # a fork would inherit whatever threads hold just now
        self._control, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_run, args=(self.server, upstream_port, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.port: int = self._call("port")

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections were ever taken."""
        count: int = self._call("connections")
        return count

    def aim(self, upstream_port: int) -> None:
        """Pass what comes from now on to another port: for a server that must know the proxy's port to start."""
        self._call("aim", upstream_port)

    def delay(self, seconds: float) -> None:
        """Wait before each chunk, in both directions, until healed."""
        self._call("delay", seconds)

    def cut(self) -> None:
        """Reset every connection; new ones are taken."""
        self._call("cut")

    def refuse(self) -> None:
        """Reset every connection and refuse new ones, until healed."""
        self._call("refuse")

    def silence(self) -> None:
        """Pass nothing on, in neither direction, yet leave connections open (half-open), until healed."""
        self._call("silence")

    def outage(self, seconds: float, *, silent: bool = False) -> None:
        """Refuse connections, or be silent, for a time; return at once."""
        self._call("outage", seconds, silent)

    def heal(self) -> None:
        """End every fault; connections that were silent are reset, for nobody knows what they have missed."""
        self._call("heal")

    def close(self) -> None:
        """End the process and with it every connection."""
        self._control.close()
        self._process.kill()
        self._process.join(_CALL_SECONDS_MAX)
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, *arguments: object) -> Any:
        self._control.send((name, arguments))
        if not self._control.poll(_CALL_SECONDS_MAX):
            raise TimeoutError(f"the proxy does not answer to {name}")
        return self._control.recv()
