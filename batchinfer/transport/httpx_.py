"""The portable transport: httpx, one small transport for each request in flight.

Owns: the one place that knows httpx: its transports, reading a body within the cap, telling its
exceptions apart. Refuses to know: everything wire.py settles for both adapters.

No AsyncClient and no shared pool: a pool hands connections out under a lock, slows down with
their number and loses a slot for each connect that is cancelled (encode/httpcore #1093). A
transport of its own for each request in flight, replaced after any trouble, is faster and
cannot run dry.
"""

import asyncio
import errno
import logging
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

import httpx
from msgspec import Struct

from batchinfer.errors import ConfigError
from batchinfer.model import Fault, FaultKind, Reply
from batchinfer.transport.base import IDLE, TransportSettings, read_ca_file
from batchinfer.transport.proxies import Proxy
from batchinfer.transport.wire import (
    TOO_MANY_FILES,
    announced_size,
    complete_headers,
    fault,
    route_to,
    whole_reply,
)

# httpcore looks for the optional sniffio anew in every request, and an import that fails searches
# the whole path: 0.25 ms, over 40 % of a request. Python remembers an absence by None.
if find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment] # documented: such an import fails

# At DEBUG httpcore logs response headers, cookies included.
logging.getLogger("httpcore").setLevel(logging.WARNING)

_LIMITS: Final = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE)

_BY_TYPE: Final[tuple[tuple[type[httpx.TransportError], FaultKind], ...]] = (
    (httpx.ConnectTimeout, FaultKind.CONNECT_TIMEOUT),
    (httpx.ConnectError, FaultKind.CONNECT),
    (httpx.ProxyError, FaultKind.CONNECT),
    (httpx.TimeoutException, FaultKind.READ_TIMEOUT),
    (httpx.ProtocolError, FaultKind.PROTOCOL),
)
"""The first that matches; any other TransportError is a RESET."""

_WHY_NOT_CONNECTED: Final[tuple[tuple[type[Exception], FaultKind, str], ...]] = (
    (ssl.SSLCertVerificationError, FaultKind.TLS, "its certificate is not trusted"),
    (ssl.SSLError, FaultKind.TLS, ""),
    (socket.gaierror, FaultKind.CONNECT, "the host name is not known"),
    (ConnectionRefusedError, FaultKind.CONNECT, "connection refused"),
    (httpx.ProxyError, FaultKind.CONNECT, "the proxy refused to connect"),
)
"""The first that is among the causes of a failed connect."""

# Both come as RemoteProtocolError, beside those of a malformed reply; recognition only.
_CUT_SHORT: Final = (
    "Server disconnected without sending a response",
    "peer closed connection without sending complete message body",
)


class _Lane(Struct):
    """The way to one address, and its idle transports, the last used one on top."""

    url: httpx.URL
    where: str
    proxy: httpx.Proxy | None
    trust: ssl.SSLContext | bool
    idle: list[httpx.AsyncHTTPTransport] = []

    def open(self) -> httpx.AsyncHTTPTransport:
        """Return an idle transport or a new one; each opens one connection when it is used."""
        if self.idle:
            return self.idle.pop()
        return httpx.AsyncHTTPTransport(
            verify=self.trust, trust_env=False, limits=_LIMITS, proxy=self.proxy
        )


class HttpxTransport:
    """Transport over httpx (see Transport for what is promised)."""

    name: Final = "httpx"
    version: Final = httpx.__version__

    def __init__(self, settings: TransportSettings) -> None:
        self._limits = settings
        self._lanes: dict[str, _Lane] = {}
        self._trust: ssl.SSLContext | None = None
        self._closed = False
        self._headers: tuple[Mapping[str, str], httpx.Headers] | None = None
        self._extensions: dict[str, object] = {
            "timeout": {
                "connect": settings.connect,
                "read": settings.read,
                "write": settings.read,
                "pool": None,
            }
        }

    def prepare(self, url: str) -> None:
        """Work out the way to `url` (see Transport)."""
        if url in self._lanes:
            return
        route = route_to(url, self._limits.proxies)
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise ConfigError(
                f"the endpoint's address ({route.where}) is not a valid URL"
            ) from None
        proxy = self._proxy(route.proxy)
        trust = self._shared_trust() if route.scheme == "https" else False
        self._lanes[url] = _Lane(parsed, route.where, proxy, trust)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply | Fault:
        """Send one POST (see Transport)."""
        lane = self._lanes.get(url)
        if lane is None:
            self.prepare(url)
            lane = self._lanes[url]
        request = httpx.Request(
            "POST",
            lane.url,
            headers=self._sendable(headers),
            content=body,
            extensions=self._extensions,
        )
        transport = lane.open()
        outcome: Reply | Fault | None = None
        try:
            async with asyncio.timeout(self._limits.total):
                outcome = await self._exchange(transport, request, lane.where)
        except TimeoutError:
            outcome = fault(FaultKind.TOTAL_TIMEOUT, lane.where, self._limits)
        finally:
            if isinstance(outcome, Reply) and not self._closed:
                lane.idle.append(transport)
            else:
                await transport.aclose()
        return outcome

    async def aclose(self) -> None:
        """Close every idle connection; those in use close with their request."""
        self._closed = True
        for lane in self._lanes.values():
            while lane.idle:
                await lane.idle.pop().aclose()

    def _sendable(self, headers: Mapping[str, str]) -> httpx.Headers:
        """Judge and convert each headers object once, not once a row."""
        if self._headers is None or self._headers[0] is not headers:
            self._headers = (headers, httpx.Headers(complete_headers(headers)))
        return self._headers[1]

    async def _exchange(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, where: str
    ) -> Reply | Fault:
        try:
            response = await transport.handle_async_request(request)
            try:
                return await self._read(response, where)
            finally:
                await response.aclose()
        except (httpx.TransportError, OSError) as error:
            # OSError: a broken TLS record reaches us as ssl.SSLError.
            kind, why = _kind(error)
            return fault(kind, where, self._limits, why)

    async def _read(self, response: httpx.Response, where: str) -> Reply | Fault:
        headers = _readable(response.headers)
        chunks: list[bytes] = []
        left = self._limits.max_body
        if (announced_size(headers) or 0) > left:
            return fault(FaultKind.TOO_LARGE, where, self._limits)
        async for chunk in response.aiter_raw():
            left -= len(chunk)
            if left < 0:
                return fault(FaultKind.TOO_LARGE, where, self._limits)
            chunks.append(chunk)
        reply = Reply(response.status_code, headers, b"".join(chunks))
        return whole_reply(reply, where, self._limits)

    def _proxy(self, proxy: Proxy | None) -> httpx.Proxy | None:
        if proxy is None:
            return None
        tls = proxy.url.lower().startswith("https:")
        return httpx.Proxy(proxy.url, ssl_context=self._shared_trust() if tls else None)

    def _shared_trust(self) -> ssl.SSLContext:
        """Return one context for all transports: reading the authorities takes some 20 ms.

        Trusted are certifi's, the system's and those of the CA file.
        """
        if self._trust is None:
            self._trust = httpx.create_ssl_context(trust_env=False)
            self._trust.load_default_certs()
            if self._limits.ca_file is not None:
                pem = read_ca_file(self._limits.ca_file)
                self._trust.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
        return self._trust


def _readable(headers: httpx.Headers) -> dict[str, str]:
    """Return the headers that are ASCII text, repeated ones joined as RFC 9110 allows."""
    readable: dict[str, str] = {}
    for raw_name, raw_value in headers.raw:
        if raw_value.isascii():
            name, value = raw_name.decode("ascii").lower(), raw_value.decode("ascii")
            readable[name] = f"{readable[name]}, {value}" if name in readable else value
    return readable


def _kind(error: Exception) -> tuple[FaultKind, str]:
    """Return where an exchange broke, and why in our own words."""
    kind = next((kind for known, kind in _BY_TYPE if isinstance(error, known)), FaultKind.RESET)
    if kind is FaultKind.PROTOCOL and str(error).startswith(_CUT_SHORT):
        return FaultKind.RESET, ""
    if kind is FaultKind.CONNECT:
        return _connect_kind(list(_causes(error)))
    return kind, ""


def _connect_kind(chain: list[BaseException]) -> tuple[FaultKind, str]:
    for cause, kind, why in _WHY_NOT_CONNECTED:
        if any(isinstance(error, cause) for error in chain):
            return kind, why
    if any(isinstance(error, OSError) and error.errno == errno.EMFILE for error in chain):
        return FaultKind.CONNECT, TOO_MANY_FILES
    return FaultKind.CONNECT, ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
