"""The seam to the network: what a transport is, and the settings every adapter obeys.

Owns: the Transport protocol and its promises (one contract suite proves them for each adapter).
Refuses to know: which HTTP client does the work, rows, retries.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from batchinfer.config.schema import Timeouts
from batchinfer.errors import ConfigError
from batchinfer.model import Fault, Reply
from batchinfer.transport.proxies import NO_PROXIES, ProxyRules, rules_from

MAX_BODY: Final = 16 * 1024 * 1024
"""Bytes of a reply's body, decoded, above which it is a fault and no longer an answer."""

LONGEST: Final = 86_400.0 * 30
"""Seconds that stand for any longer timeout: what the clients can count."""

IDLE: Final = 4.0
"""Seconds an unused connection is kept: below the 5 s after which uvicorn and Node close theirs,
so that a request seldom meets a connection that is just being closed."""


class TransportSettings(Struct, frozen=True):
    """What bounds an exchange. Seconds and bytes; `ca_file`: PEM of the authorities to trust."""

    connect: float
    read: float
    total: float
    max_body: int = MAX_BODY
    ca_file: str | None = None
    proxies: ProxyRules = NO_PROXIES


class Transport(Protocol):
    """One way to send requests. Belongs to the event loop it is first used in."""

    @property
    def name(self) -> str:
        """The adapter's name, as in the config."""
        ...

    @property
    def version(self) -> str:
        """The version of the library behind it."""
        ...

    def prepare(self, url: str) -> None:
        """Work out the way to `url`; one that can never be taken is a ConfigError.

        Meant for each address before the first row: an invalid address, an unusable proxy,
        an unreadable CA file.
        """
        ...

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply | Fault:
        """Send one POST and return the whole reply, or what broke.

        Any HTTP status is a Reply: redirects are not followed. Any network trouble is a Fault,
        and its kind is in NEVER_SENT only where no byte of the request left. Lasts at most
        `total` seconds, however the server drips. Never waits for a free connection.
        `headers` must not change between calls that pass the same object. Raises ConfigError for
        a header value that cannot be sent, and lets a cancellation pass: its connection is closed
        at once or, where the library cannot, when the exchange ends or `total` is over.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


def settings_from(timeouts: Timeouts, environ: Mapping[str, str]) -> TransportSettings:
    """Return the settings of a job: its timeouts, and the environment's proxies and CA file."""
    ca_file = environ.get("SSL_CERT_FILE") or None
    return TransportSettings(
        connect=min(timeouts.connect, LONGEST),
        read=min(timeouts.read, LONGEST),
        total=min(timeouts.total, LONGEST),
        ca_file=ca_file,
        proxies=rules_from(environ),
    )


def read_ca_file(path: str) -> bytes:
    """Return the PEM bytes at `path`; unreadable or without a certificate: ConfigError."""
    try:
        pem = Path(path).read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigError(f"SSL_CERT_FILE ({path}) holds no usable PEM certificate") from None
    except OSError as error:
        raise ConfigError(f"SSL_CERT_FILE ({path}) cannot be read: {error.strerror}") from None
    return pem
