"""Which adapter serves a job: the fast one where it is installed, the portable one elsewhere.

Owns: the table of adapters by name. Refuses to know: their insides; each is imported only when
it is chosen, because a client library costs start-up time and pyreqwest may be absent.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final, Literal

from batchinfer.errors import ConfigError
from batchinfer.transport.base import Transport, TransportSettings

Adapter = Callable[[TransportSettings], Transport]
TransportName = Literal["auto", "pyreqwest", "httpx"]

_ADAPTERS: Final = {
    "pyreqwest": ("batchinfer.transport.reqwest", "ReqwestTransport"),
    "httpx": ("batchinfer.transport.httpx_", "HttpxTransport"),
}


def open_transport(
    name: TransportName, settings: TransportSettings, urls: Iterable[str] = ()
) -> Transport:
    """Return the transport of that name, ready to post to `urls`.

    `auto`: pyreqwest if it can be imported, else httpx. ConfigError: it is not installed, or one
    of `urls` can never be reached (an invalid address, an unusable proxy or CA file).
    """
    transport = _fastest()(settings) if name == "auto" else _chosen(name)(settings)
    for url in urls:
        transport.prepare(url)
    return transport


def describe(transport: Transport) -> str:
    """Return name and version of the library that sends, for people to read."""
    return f"{transport.name} {transport.version}"


def _fastest() -> Adapter:
    try:
        return _load("pyreqwest")
    except ImportError:
        return _load("httpx")


def _chosen(name: str) -> Adapter:
    try:
        return _load(name)
    except ImportError:
        raise ConfigError(
            f"endpoint.transport: {name} is not installed; pip install {name}, "
            'or leave the choice to batchinfer with "auto"'
        ) from None


def _load(name: str) -> Adapter:
    module, adapter = _ADAPTERS[name]
    loaded: Adapter = getattr(import_module(module), adapter)
    return loaded
