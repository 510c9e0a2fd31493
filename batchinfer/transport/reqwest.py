"""The fast transport: pyreqwest, whose I/O runs in a thread of its own outside the GIL.

Owns: the one place that knows pyreqwest: building its client, reading a body within the cap,
telling its exceptions apart. Refuses to know: everything wire.py settles for both adapters.

A request that is cancelled runs on unseen, for pyreqwest cannot abort it: `total` ends it at the
latest.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pyreqwest
from msgspec import Struct
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    BuilderError,
    DecodeError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.http import HeaderMap, Url
from pyreqwest.proxy import ProxyBuilder
from pyreqwest.response import Response

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

_UNLIMITED: Final = 1_000_000

# pyreqwest's types do not tell the phases apart: a reply that never begins is a
# ConnectTimeoutError, a reset after the request was sent a ConnectError. Only this entry in the
# chain of causes proves that no connection stood; without it an exchange counts as sent.
_NEVER_CONNECTED: Final = "client error (Connect)"
_REASONS: Final = (
    ("dns error", "the host name is not known"),
    ("connection refused", "connection refused"),
    ("too many open files", TOO_MANY_FILES),
    ("tunnel error", "the proxy refused to connect"),
    ("invalid peer certificate", "its certificate is not trusted"),
)
_BEFORE_TLS: Final = ("dns error", "tcp connect error", "tunnel error", "os error", "handshake eof")
_CUT_SHORT: Final = "end of file before message length reached"


class _Way(Struct, frozen=True):
    """A client and a parsed URL, kept for each address; `where` names it in messages."""

    client: Client
    url: Url
    where: str
    tls: bool


class ReqwestTransport:
    """Transport over one pyreqwest client a proxy (see Transport for what is promised)."""

    name: Final = "pyreqwest"
    version: Final[str] = pyreqwest.__version__

    def __init__(self, settings: TransportSettings) -> None:
        self._limits = settings
        self._clients: dict[Proxy | None, Client] = {}
        self._ways: dict[str, _Way] = {}
        self._headers: tuple[Mapping[str, str], HeaderMap] | None = None

    def prepare(self, url: str) -> None:
        """Work out the way to `url` (see Transport)."""
        if url in self._ways:
            return
        route = route_to(url, self._limits.proxies)
        client = self._clients.get(route.proxy)
        if client is None:
            client = self._clients[route.proxy] = _client(self._limits, route.proxy)
        try:
            parsed = Url(url)
        except ValueError:
            raise ConfigError(
                f"the endpoint's address ({route.where}) is not a valid URL"
            ) from None
        self._ways[url] = _Way(client, parsed, route.where, route.scheme == "https")

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply | Fault:
        """Send one POST (see Transport)."""
        way = self._ways.get(url)
        if way is None:
            self.prepare(url)
            way = self._ways[url]
        request = way.client.post(way.url).headers(self._sendable(headers)).body_bytes(body)
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with request.build_streamed() as response:
                return await self._read(response, way.where)
        except BuilderError:
            # Its text holds the whole URL.
            raise ConfigError(f"no request can be built for {way.where}") from None
        except PyreqwestError as error:
            return self._fault(error, way, clock() - begun)

    async def aclose(self) -> None:
        """Close every connection."""
        clients = list(self._clients.values())
        self._clients.clear()
        self._ways.clear()
        for client in clients:
            await client.close()

    def _sendable(self, headers: Mapping[str, str]) -> HeaderMap:
        """Judge and convert each headers object once, not once a row."""
        if self._headers is None or self._headers[0] is not headers:
            self._headers = (headers, HeaderMap(complete_headers(headers)))
        return self._headers[1]

    async def _read(self, response: Response, where: str) -> Reply | Fault:
        headers = _readable(response.headers)
        announced = announced_size(headers)
        if announced is None:
            body = await self._counted(response)
        elif announced > self._limits.max_body:
            body = None
        else:
            body = (await response.bytes()).to_bytes()
        if body is None:
            return fault(FaultKind.TOO_LARGE, where, self._limits)
        return whole_reply(Reply(response.status, headers, body), where, self._limits)

    async def _counted(self, response: Response) -> bytes | None:
        chunks: list[bytes] = []
        left = self._limits.max_body
        reader = response.body_reader
        while (chunk := await reader.read_chunk()) is not None:
            left -= len(chunk)
            if left < 0:
                return None
            chunks.append(chunk.to_bytes())
        return b"".join(chunks)

    def _fault(self, error: PyreqwestError, way: _Way, lasted: float) -> Fault:
        causes = _causes(error)
        kind = _kind(error, causes, tls=way.tls)
        if kind is FaultKind.READ_TIMEOUT and lasted >= self._limits.total:
            kind = FaultKind.TOTAL_TIMEOUT
        why = next((reason for mark, reason in _REASONS if mark in causes), "")
        return fault(kind, way.where, self._limits, why)


def _client(limits: TransportSettings, proxy: Proxy | None) -> Client:
    builder = (
        ClientBuilder()
        .http1_only()
        .error_for_status(enable=False)
        .follow_redirects(enable=False)
        .referer(enable=False)
        .gzip(enable=False)
        .brotli(enable=False)
        .zstd(enable=False)
        .deflate(enable=False)
        .connect_timeout(timedelta(seconds=limits.connect))
        .read_timeout(timedelta(seconds=limits.read))
        .timeout(timedelta(seconds=limits.total))
        .pool_idle_timeout(timedelta(seconds=IDLE))
        .pool_max_idle_per_host(_UNLIMITED)
        .no_proxy()
    )
    if proxy is not None:
        builder = builder.proxy(ProxyBuilder.all(proxy.url))
    if limits.ca_file is not None:
        builder = builder.add_root_certificate_pem(read_ca_file(limits.ca_file))
    return builder.build()


def _readable(headers: HeaderMap) -> dict[str, str]:
    """Return the headers that are ASCII text, repeated ones joined as RFC 9110 allows."""
    if headers.keys_len() == len(headers):
        try:
            return dict(headers.items())
        except ValueError:  # one of them is not text
            pass
    return {
        name: value
        for name in dict.fromkeys(headers)
        if (value := _joined(headers, name)) is not None
    }


def _joined(headers: HeaderMap, name: str) -> str | None:
    try:
        return ", ".join(headers.getall(name))
    except ValueError:
        return None


def _causes(error: PyreqwestError) -> str:
    """Return the chain of causes in lower case, for recognition only: it may hold the URL."""
    causes = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    # The first entry is the one with the URL in it.
    return "\n".join(cause["message"].lower() for cause in (causes or ())[1:])


def _kind(error: PyreqwestError, causes: str, *, tls: bool) -> FaultKind:
    if _NEVER_CONNECTED.lower() in causes:
        if isinstance(error, RequestTimeoutError):
            return FaultKind.CONNECT_TIMEOUT
        before_tls = not tls or any(mark in causes for mark in _BEFORE_TLS)
        return FaultKind.CONNECT if before_tls else FaultKind.TLS
    if isinstance(error, RequestTimeoutError):
        return FaultKind.READ_TIMEOUT
    if isinstance(error, DecodeError) and _CUT_SHORT not in causes:
        return FaultKind.PROTOCOL
    return FaultKind.RESET
