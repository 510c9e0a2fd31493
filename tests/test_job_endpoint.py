import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import a_row

from batchinfer.config.schema import Config, Endpoint
from batchinfer.errors import (
    ConfigError,
)
from batchinfer.job.endpoint import Way, open_way

# ── the way to the endpoint ──────────────────────────────────────────────────────────────────


async def opened(config: Config, env: dict[str, str], look: Callable[[Way], Any]) -> Any:
    async with open_way(config, env) as way:
        return look(way)


def test_a_way_has_the_address_the_key_and_an_open_transport() -> None:
    config = Config(
        endpoint=Endpoint(
            base_url="http://127.0.0.1:9/v1", model="m", api_key_env="KEY", transport="httpx"
        )
    )

    way = asyncio.run(opened(config, {"KEY": "sk-secret-1"}, lambda way: way))

    assert way.wire.url == "http://127.0.0.1:9/v1/chat/completions"
    assert way.wire.headers["Authorization"] == "Bearer sk-secret-1"
    assert "sk-secret-1" in way.wire.secrets
    assert b"sk-secret-1" in way.wire.keys
    assert way.name.startswith("httpx ")


def test_a_key_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret-2\n")
    file.chmod(0o600)
    config = Config(
        endpoint=Endpoint(base_url="http://127.0.0.1:9/v1", model="m", api_key_file=str(file))
    )

    way = asyncio.run(opened(config, {}, lambda way: way))

    assert way.wire.headers["Authorization"] == "Bearer sk-secret-2"


def test_without_an_endpoint_there_is_no_way() -> None:
    with pytest.raises(ConfigError, match="no endpoint"):
        asyncio.run(opened(Config(), {}, lambda way: way))


def test_the_simulated_provider_is_started_and_stopped() -> None:
    config = Config(endpoint=Endpoint(provider="simulated", model="m"))

    async def main() -> tuple[str, Any]:
        async with open_way(config, {}) as way:
            body = way.wire.provider.body(asked, "m", {})
            return way.wire.url, await way.transport.post(way.wire.url, way.wire.headers, body)

    asked = a_row(1).ask
    url, reply = asyncio.run(main())

    assert url.startswith("http://127.0.0.1:")
    assert reply.status == 200
    assert b"simulated" in reply.body.lower()
