"""HTTP/1.1 on one connection.

Owns: parsing, the order of answers, keep-alive, the cap on a request's body, back-pressure.
Refuses to know: what an answer is and when it is due; that is its host's.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol, cast

import httptools
from msgspec import Struct

from batchinfer.simulate.service import Response, failure

MAX_BODY: Final = 32 * 1024 * 1024
_MAX_BACKLOG: Final = 16
_LINGER: Final = 2.0
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"


class Request(Struct, frozen=True):
    """A whole request. `target` as in the request line."""

    method: bytes
    target: bytes
    body: bytes
    keep_alive: bool


Deliver = Callable[[Response], None]
Abandon = Callable[[], None]


class Host(Protocol):
    """What a connection needs of those who answer."""

    def joined(self, connection: "Connection") -> None:
        """Note a connection that was opened."""

    def left(self, connection: "Connection") -> None:
        """Forget a connection that is closed."""

    def next_id(self) -> int:
        """Return the number of the next response."""

    def submit(self, request: Request, deliver: Deliver) -> Abandon:
        """Have the request answered by `deliver`, unless what is returned is called before."""


def _nothing() -> None:
    """Abandon what needs no abandoning."""


class Connection(asyncio.Protocol):
    """One client's connection: requests are answered one after the other, in order."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parser = httptools.HttpRequestParser(self)
        self._backlog: deque[Request] = deque()
        self._abandon: Abandon = _nothing
        self._busy = self._blocked = self._closing = False
        self._stalled = self._oversize = False
        self._on_message()

    # ── called by the event loop ─────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up a new connection."""
        self._transport = cast("asyncio.Transport", transport)
        peer: socket.socket = transport.get_extra_info("socket")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Give up what the client no longer waits for."""
        self._give_up()
        self._host.left(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came; requests are answered once they are whole."""
        if self._closing:
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400, "This is not HTTP/1.1, or asks for another protocol.")
            return
        if self._oversize:
            self._refuse(413, f"The body is larger than {MAX_BODY} bytes.")
        elif self._backlog:
            self._advance()

    def pause_writing(self) -> None:
        """Stop answering a client that does not read."""
        self._blocked = True

    def resume_writing(self) -> None:
        """Go on answering."""
        self._blocked = False
        self._advance()

    # ── called by the parser ─────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """Start with an empty request."""
        self._on_message()

    def on_url(self, url: bytes) -> None:
        """Collect the target, which may come in pieces."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take note of the headers that matter before the body is there."""
        lowered = name.lower()
        if lowered == b"content-length":
            self._oversize = self._oversize or int(value) > MAX_BODY
        elif lowered == b"expect":
            self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """Ask for the body where the client waits to be asked."""
        if self._expects and not self._oversize:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Collect the body, up to the cap."""
        self._size += len(body)
        if self._size > MAX_BODY:
            self._oversize = True
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Queue the request. It is not answered here: the parser would hide an error of ours."""
        parser = self._parser
        body = b"".join(self._body)
        self._backlog.append(
            Request(parser.get_method(), self._target, body, parser.should_keep_alive())
        )

    # ── own steps ────────────────────────────────────────────────────────────────────────────

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def _on_message(self) -> None:
        self._target = b""
        self._body: list[bytes] = []
        self._size = 0
        self._expects = False

    def _advance(self) -> None:
        while self._backlog and not (self._busy or self._blocked or self._closing):
            request = self._backlog.popleft()
            self._busy = True
            self._keep_alive = request.keep_alive
            self._abandon = self._host.submit(request, self._deliver)
        stalled = len(self._backlog) > _MAX_BACKLOG
        if stalled != self._stalled:
            self._stalled = stalled
            (self._transport.pause_reading if stalled else self._transport.resume_reading)()

    def _deliver(self, response: Response) -> None:
        self._transport.write(self._render(response, b"" if self._keep_alive else _CLOSE))
        self._busy = False
        if not self._keep_alive:
            self._closing = True
            self._transport.close()
        elif self._backlog:
            asyncio.get_running_loop().call_soon(self._advance)

    def _refuse(self, status: int, message: str) -> None:
        # What still comes is read and dropped for a while: closing at once would reset the
        # connection, and the client could lose the answer.
        self._closing = True
        self._give_up()
        self._transport.write(self._render(failure(status, message), _CLOSE))
        asyncio.get_running_loop().call_later(_LINGER, self._transport.close)

    def _give_up(self) -> None:
        self._backlog.clear()
        abandon, self._abandon = self._abandon, _nothing
        abandon()

    def _render(self, response: Response, headers: bytes) -> bytes:
        return (
            b"%bserver: batchinfer-simulator\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
            b"x-request-id: sim-%d\r\n%b%b\r\n%b"
        ) % (
            _STATUS_LINES[response.status],
            response.content_type,
            len(response.body),
            self._host.next_id(),
            response.headers,
            headers,
            response.body,
        )
