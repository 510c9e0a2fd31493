"""A scripted HTTP/1.1 server on loopback: each test says byte by byte what goes over the wire."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

AUTHORITY: Final = Path(__file__).parent / "tls" / "authority.pem"
"""The authority that signed the certificate of `server_tls`."""


@dataclass
class Exchange:
    """One request as it arrived, and the connection to answer it on."""

    head: bytes
    body: bytes
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @property
    def gone(self) -> bool:
        """Whether the client has closed the connection."""
        return _ended(self._reader)

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.decode("latin-1").partition(":")
            if key.lower() == name:
                return value.strip()
        return None

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, body: bytes = b"{}", head: bytes = b"") -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), head, body)
        )

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """Close with a TCP RST."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()


Script = Callable[[Exchange], Awaitable[None]]


@dataclass
class RawServer:
    """Where the server is, and what it has seen so far."""

    scheme: str
    port: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    accepted: int = 0
    readers: set[asyncio.StreamReader] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/chat/completions"

    @property
    def open(self) -> int:
        """Connections that neither side has closed."""
        return sum(not _ended(reader) for reader in self.readers)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event: the other side of a socket."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def server_tls() -> ssl.SSLContext:
    """Return a context whose certificate is good for 127.0.0.1 and localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(AUTHORITY.with_name("server.pem"))
    return context


@contextlib.asynccontextmanager
async def serve(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Serve on a free port; `script` answers each request. All connections end with the block."""
    state = RawServer("https" if tls else "http")
    connections: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            exchange = Exchange(*await _request(reader), reader, writer)
            state.exchanges.append(exchange)
            await script(exchange)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        state.accepted += 1
        state.readers.add(reader)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await converse(reader, writer)
        finally:
            state.readers.discard(reader)
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls, backlog=2048)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        running = list(connections)
        for task in running:
            task.cancel()
        await asyncio.gather(*running)


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """Yield a port whose queue of connections is full: another one is never accepted."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port() -> int:
    """Return a port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ended(reader: asyncio.StreamReader) -> bool:
    return reader.at_eof() or reader.exception() is not None


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head, await reader.readexactly(length)
