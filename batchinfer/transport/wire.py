"""The rules of an exchange that both adapters share, so that they differ in nothing but speed.

Owns: judging addresses and header values, the words of a Fault, decoding a reply's body within
bounds. Refuses to know: HTTP clients. Nothing here puts a URL's query, a user name or a header's
value into a text.
"""

import re
import zlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from batchinfer import __version__
from batchinfer.errors import ConfigError
from batchinfer.model import Fault, FaultKind, Reply
from batchinfer.transport.base import TransportSettings
from batchinfer.transport.proxies import Proxy, ProxyRules

DEFAULT_HEADERS: Final = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "user-agent": f"batchinfer/{__version__}",
}
"""Sent unless the caller's own headers name them. `identity`: a body of LLM answers is small, and
an encoded one could be a bomb."""

TOO_MANY_FILES: Final = "too many open files; raise `ulimit -n` or lower the concurrency"

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?|")
_OWN_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection", "host"})
_MAX_DIGITS: Final = 20
_ZLIB_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}

_WORDS: Final[dict[FaultKind, str]] = {
    FaultKind.CONNECT: "cannot connect to {where}",
    FaultKind.TLS: "no trusted TLS connection to {where}",
    FaultKind.CONNECT_TIMEOUT: "no connection to {where} within {connect:g} s",
    FaultKind.READ_TIMEOUT: "{where} was silent for {read:g} s",
    FaultKind.TOTAL_TIMEOUT: "{where} did not finish its reply within {total:g} s",
    FaultKind.RESET: "{where} closed the connection before its reply was complete",
    FaultKind.PROTOCOL: "{where} sent a reply that is not valid HTTP",
    FaultKind.TOO_LARGE: "{where} sent a reply of more than {max_body} bytes",
}


class Route(Struct, frozen=True):
    """The way to an address. `where` names it in messages: host and port, and the proxy's."""

    scheme: str
    where: str
    proxy: Proxy | None


def route_to(url: str, rules: ProxyRules) -> Route:
    """Return the way to `url`; an address that cannot be used is a ConfigError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # what the resolver will do: it refuses labels over 63 bytes
    except ValueError:
        raise ConfigError("the endpoint's address has an invalid host or port") from None
    if parts.scheme not in _PORTS or not host:
        raise ConfigError("the endpoint's address must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise ConfigError(f"the endpoint's address ({host}) must not hold a user name or password")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("the endpoint's address holds a character that must be percent-encoded")
    port = _PORTS[parts.scheme] if port is None else port
    proxy = rules.proxy_for(parts.scheme, host, port)
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Route(parts.scheme, f"{where} (by proxy {proxy.label})" if proxy else where, proxy)


def complete_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to send, the defaults included; one that cannot be sent: ConfigError."""
    complete = dict(DEFAULT_HEADERS)
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OWN_FRAMING:
            # Only the part that looks like a name: someone may have put the key into it.
            shown = _TOKEN.match(name)
            raise ConfigError(f"a header named {shown[0] if shown else ''!r} cannot be set")
        if not _VALUE.fullmatch(value):
            raise ConfigError(
                f"the value of header {name!r} holds a character that cannot be sent: only "
                "printable ASCII is allowed, with no line break and no space around it"
            )
        complete[name.lower()] = value
    return complete


def fault(kind: FaultKind, where: str, limits: TransportSettings, why: str = "") -> Fault:
    """Return a Fault in our own words; `why` must be our own, too."""
    words = _WORDS[kind].format(
        where=where,
        connect=limits.connect,
        read=limits.read,
        total=limits.total,
        max_body=limits.max_body,
    )
    return Fault(kind, f"{words} ({why})" if why else words)


def announced_size(headers: Mapping[str, str]) -> int | None:
    """Return the body's announced length in bytes; None where there is none to be trusted."""
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) <= _MAX_DIGITS else None


def whole_reply(reply: Reply, where: str, limits: TransportSettings) -> Reply | Fault:
    """Return the reply with a plain body.

    gzip and deflate are decoded, though nobody asked for them, because the answer is paid for;
    never beyond `max_body`. Any other encoding is a Fault, and so is a switch of protocols.
    """
    if reply.status < 200:  # noqa: PLR2004 - the class of interim responses
        return fault(FaultKind.PROTOCOL, where, limits, "it wants to switch protocols")
    encoding = reply.headers.get("content-encoding")
    if encoding is None:
        return reply
    return _decoded(reply, encoding.strip().lower(), where, limits)


def _decoded(reply: Reply, encoding: str, where: str, limits: TransportSettings) -> Reply | Fault:
    if encoding in {"", "identity"} or not reply.body:
        return reply
    window = _ZLIB_WINDOWS.get(encoding)
    if window is None:
        return fault(FaultKind.PROTOCOL, where, limits, "its content-encoding is unknown")
    decoder = zlib.decompressobj(wbits=window)
    try:
        body = decoder.decompress(reply.body, limits.max_body + 1)
    except zlib.error:
        return fault(FaultKind.PROTOCOL, where, limits, "its compressed body is damaged")
    if len(body) > limits.max_body:
        return fault(FaultKind.TOO_LARGE, where, limits)
    if not decoder.eof:
        return fault(FaultKind.RESET, where, limits, "its compressed body is cut short")
    return Reply(reply.status, reply.headers, body)
