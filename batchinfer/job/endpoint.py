"""The way to an endpoint: its address, its headers with the key, an open transport.

Owns: starting and stopping the simulated provider, revealing the key to the transport and to
nobody else. Refuses to know: rows.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from batchinfer.config.address import joined
from batchinfer.config.schema import Config
from batchinfer.config.secrets import endpoint_url, header_values, secret_texts
from batchinfer.dispatch.endpoint import Wire
from batchinfer.errors import ConfigError
from batchinfer.job import wiring
from batchinfer.providers.registry import provider
from batchinfer.simulate.process import SimulatorProcess
from batchinfer.transport.base import Transport, settings_from
from batchinfer.transport.select import describe, open_transport


class Way(Struct, frozen=True):
    """Where requests go, and by what; `name` of the transport for people."""

    wire: Wire
    transport: Transport
    name: str


def check_way(config: Config, env: Mapping[str, str]) -> None:
    """Raise the ConfigError that `open_way` would, as far as can be known without opening."""
    if config.endpoint is not None:
        header_values(config.endpoint, env, _read)
        settings_from(config.timeouts, env)


@asynccontextmanager
async def open_way(config: Config, env: Mapping[str, str]) -> AsyncIterator[Way]:
    """Open the endpoint of a config; ConfigError when the config or the key is no good."""
    endpoint = config.endpoint
    if endpoint is None:
        raise ConfigError("no endpoint is configured")
    headers = {k: v.reveal() for k, v in header_values(endpoint, env, _read).items()}
    secrets = list(secret_texts(endpoint, env, _read))
    simulated = endpoint.provider == "simulated"
    # A proxy of the environment must not catch what stays on this machine.
    settings = settings_from(config.timeouts, {} if simulated else env)
    api = provider(wiring.wire_api(config))
    async with AsyncExitStack() as stack:
        if simulated:
            behaviour = msgspec.json.encode(config.simulate)
            base_url = stack.enter_context(SimulatorProcess(behaviour)).base_url
            url = joined(base_url, f"/{api.path}")
        else:
            url = endpoint_url(endpoint, env, f"/{api.path}")
        transport = open_transport(endpoint.transport, settings, [url])
        stack.push_async_callback(transport.aclose)
        wire = wiring.wire(config, api, url, headers, secrets)
        yield Way(wire, transport, describe(transport))


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
