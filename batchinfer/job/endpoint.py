"""The way to an endpoint: its address, its headers with the key, an open transport.

Owns: starting and stopping the simulated provider, revealing the key to the transport and to
nobody else. Refuses to know: rows.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from batchinfer.config.schema import Config
from batchinfer.config.secrets import header_values
from batchinfer.errors import ConfigError
from batchinfer.job import wiring
from batchinfer.dispatch.attempt import Wire
from batchinfer.simulate.process import SimulatorProcess
from batchinfer.transport.base import Transport, TransportSettings
from batchinfer.transport.select import describe, open_transport


class Way(Struct, frozen=True):
    """Where requests go, and by what; `name` of the transport for people."""

    wire: Wire
    transport: Transport
    name: str


@asynccontextmanager
async def open_way(config: Config, env: Mapping[str, str]) -> AsyncIterator[Way]:
    """Open the endpoint of a config; ConfigError when the config or the key is no good."""
    endpoint = config.endpoint
    if endpoint is None:
        raise ConfigError("no endpoint is configured")
    headers = header_values(endpoint, env, _read)
    settings = TransportSettings.of(config.timeouts)
    async with AsyncExitStack() as stack:
        base_url = endpoint.base_url
        if endpoint.provider == "simulated":
            behaviour = msgspec.json.encode(config.simulate)
            base_url = stack.enter_context(SimulatorProcess(behaviour)).base_url
        if base_url is None:
            raise ConfigError("endpoint.base_url is missing")
        transport = open_transport(endpoint.transport, settings)
        stack.push_async_callback(transport.aclose)
        revealed = {name: secret.reveal() for name, secret in headers.items()}
        yield Way(wiring.wire(config, base_url, revealed), transport, describe(transport))


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
