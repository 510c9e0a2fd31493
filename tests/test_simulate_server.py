"""The provider over real HTTP on loopback."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from batchinfer.errors import ConfigError
from batchinfer.simulate.behaviour import Behaviour
from batchinfer.simulate.server import SimulatedServer, serve
from batchinfer.simulate.wire import MAX_BODY

QUICK = Behaviour(latency=0)
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}

try:
    import uvloop
except ImportError:
    EVENT_LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
else:
    EVENT_LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]

Scene = Callable[[SimulatedServer, httpx.AsyncClient], Awaitable[None]]


def play(behaviour: Behaviour, scene: Scene) -> None:
    async def stage() -> None:
        server = await serve(behaviour)
        try:
            async with httpx.AsyncClient(base_url=server.base_url, trust_env=False) as client:
                await scene(server, client)
        finally:
            await server.close()

    for factory in EVENT_LOOPS:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(stage())


async def metrics(client: httpx.AsyncClient, server: SimulatedServer) -> dict[str, float]:
    reply = await client.get(f"http://127.0.0.1:{server.port}/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    return {name: float(value) for name, value in map(str.split, reply.text.splitlines())}


async def poll(
    client: httpx.AsyncClient, server: SimulatedServer, until: Callable[[dict[str, float]], bool]
) -> None:
    while not until(await metrics(client, server)):  # noqa: ASYNC110 (the server has no event)
        await asyncio.sleep(0.005)


async def raw(server: SimulatedServer, *pieces: bytes) -> bytes:
    """What the server says until it closes, or until it has been silent for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.01)
    said = b""
    try:
        while piece := await asyncio.wait_for(reader.read(65536), 0.3):
            said += piece
    except TimeoutError:
        pass
    writer.close()
    await writer.wait_closed()
    return said


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"host: x", *headers]
    return b"\r\n".join([*lines, b"content-length: %d" % len(body), b"", body])


def test_a_chat_request_is_answered_under_an_id_of_its_own() -> None:
    async def scene(_: SimulatedServer, client: httpx.AsyncClient) -> None:
        replies = [await client.post("/chat/completions", json=BODY) for _ in range(3)]

        assert [reply.status_code for reply in replies] == [200] * 3
        assert replies[0].json()["choices"][0]["message"]["content"].startswith("[simulated]")
        ids = [reply.headers["x-request-id"] for reply in replies]
        assert all(re.fullmatch(r"sim-\d+", each) for each in ids)
        assert len(set(ids)) == 3

    play(QUICK, scene)


def test_health_models_and_unknown_paths_are_answered_in_json() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        health = await client.get(f"http://127.0.0.1:{server.port}/health")
        models = await client.get("/models")
        unknown = await client.get("/nowhere")

        assert health.json() == {"status": "ok"}
        assert models.json()["data"][0]["id"] == "simulated"
        assert (unknown.status_code, list(unknown.json())) == (404, ["error"])

    play(QUICK, scene)


def test_a_chunked_body_is_read_like_any_other() -> None:
    async def pieces() -> Any:
        for byte in json.dumps(BODY):
            yield byte.encode()

    async def scene(_: SimulatedServer, client: httpx.AsyncClient) -> None:
        chunked = await client.post("/chat/completions", content=pieces())
        whole = await client.post("/chat/completions", json=BODY)

        assert chunked.json()["choices"] == whole.json()["choices"]

    play(QUICK, scene)


def test_a_limit_is_a_real_429_with_its_headers() -> None:
    async def scene(_: SimulatedServer, client: httpx.AsyncClient) -> None:
        replies = [await client.post("/chat/completions", json=BODY) for _ in range(4)]
        refused = replies[-1]

        assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
        assert [reply.headers["x-ratelimit-remaining-requests"] for reply in replies] == list(
            "2100"
        )
        assert 0 < int(refused.headers["retry-after-ms"]) <= 60_000
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"

    play(Behaviour(latency=0, rpm=3), scene)


def test_slots_work_side_by_side_while_the_rest_queue() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        sent = [asyncio.create_task(client.post("/chat/completions", json=BODY)) for _ in range(7)]
        while not sent[0].done():
            seen = await metrics(client, server)
            assert seen["simulated_running"] <= 2
        await asyncio.gather(*sent)
        seen = await metrics(client, server)

        assert seen["simulated_running_peak"] == seen["simulated_slots"] == 2
        assert seen["simulated_running"] == seen["simulated_waiting"] == 0
        assert seen["simulated_busy_slot_seconds_total"] >= 7 * 0.049  # timers tick in ms

    play(Behaviour(latency=0.05, jitter=0, slots=2), scene)


def test_metrics_count_what_was_answered() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        good = await client.post("/chat/completions", json=BODY)
        await client.post("/chat/completions", json={})
        await client.post("/embeddings", json={"input": "x"})
        seen = await metrics(client, server)

        assert seen["simulated_requests_total"] == 3
        assert seen["simulated_rate_limited_total"] == 1
        assert seen['simulated_responses_total{status="200"}'] == 1
        assert seen['simulated_responses_total{status="400"}'] == 1
        assert seen['simulated_responses_total{status="429"}'] == 1
        assert seen["simulated_prompt_tokens_total"] == good.json()["usage"]["prompt_tokens"]
        assert seen["simulated_output_tokens_total"] == good.json()["usage"]["completion_tokens"]
        assert (
            seen["simulated_start_time_seconds"]
            <= seen["simulated_first_request_time_seconds"]
            <= seen["simulated_last_response_time_seconds"]
        )

    play(Behaviour(latency=0, rpm=1), scene)


def test_ordered_errors_reach_the_client() -> None:
    async def scene(_: SimulatedServer, client: httpx.AsyncClient) -> None:
        reply = await client.post("/chat/completions", json=BODY)

        assert reply.status_code == 500
        assert reply.json()["error"]["type"] == "server_error"

    play(Behaviour(latency=0, error_rate=1), scene)


def test_a_hung_request_is_never_answered_and_its_connection_stays_open() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/chat/completions", json=BODY, timeout=0.2)
        seen = await metrics(client, server)

        assert seen["simulated_hung_total"] == seen["simulated_abandoned_total"] == 1
        assert seen["simulated_running"] == 0

    play(Behaviour(latency=0, hang_rate=1), scene)


def test_a_client_that_leaves_frees_its_slot_for_the_next() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        async def until(name: str, value: int) -> None:
            await poll(client, server, lambda seen: seen[name] == value)

        first, second, third = (
            asyncio.create_task(client.post("/chat/completions", json=BODY, timeout=None))
            for _ in range(3)
        )
        await until("simulated_waiting", 2)
        second.cancel()
        await until("simulated_waiting", 1)
        first.cancel()
        await until("simulated_waiting", 0)
        seen = await metrics(client, server)

        assert seen["simulated_running"] == 1
        assert seen["simulated_abandoned_total"] == 2
        third.cancel()
        await until("simulated_running", 0)

    play(Behaviour(latency=3600, slots=1), scene)


def test_a_slot_is_freed_once_whoever_closes_the_connection() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        async with httpx.AsyncClient(base_url=server.base_url, trust_env=False) as other:
            await other.post("/chat/completions", json=BODY)
        async with httpx.AsyncClient(base_url=server.base_url, trust_env=False) as other:
            with pytest.raises(httpx.ReadTimeout):
                await other.post("/chat/completions", json=BODY, timeout=0.05)
        await asyncio.sleep(0.15)
        seen = await metrics(client, server)

        assert seen["simulated_running"] == 0
        assert seen["simulated_abandoned_total"] == 1
        assert seen['simulated_responses_total{status="200"}'] == 1

    play(Behaviour(latency=0.1, jitter=0, slots=1), scene)


def test_requests_sent_ahead_are_answered_in_order_and_none_is_lost() -> None:
    bodies = [
        json.dumps({"messages": [{"role": "user", "content": f"n{n}"}]}).encode() for n in range(60)
    ]

    async def scene(server: SimulatedServer, _: httpx.AsyncClient) -> None:
        said = await raw(server, b"".join(map(post, bodies)))

        assert re.findall(rb"begins: n(\d+)", said) == [b"%d" % n for n in range(60)]

    play(Behaviour(latency=0.001, slots=1), scene)
    play(QUICK, scene)


def test_a_request_may_come_byte_by_byte() -> None:
    request = post(json.dumps(BODY).encode())

    async def scene(server: SimulatedServer, _: httpx.AsyncClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for byte in request:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await writer.wait_closed()

    play(QUICK, scene)


def test_a_client_that_asks_to_close_is_closed() -> None:
    async def scene(server: SimulatedServer, _: httpx.AsyncClient) -> None:
        request = post(json.dumps(BODY).encode(), b"connection: close")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request)
        said = await reader.read()

        assert b"connection: close\r\n" in said
        assert said.endswith(b"}")
        writer.close()
        await writer.wait_closed()

    play(QUICK, scene)


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    async def scene(server: SimulatedServer, _: httpx.AsyncClient) -> None:
        body = json.dumps(BODY).encode()
        head = post(body, b"expect: 100-continue").removesuffix(body)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await writer.wait_closed()

    play(QUICK, scene)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_cap_is_refused_and_the_client_hears_it(chunked: bool) -> None:
    async def pieces() -> Any:
        for _ in range(MAX_BODY // 2**20 + 1):
            yield b" " * 2**20

    async def scene(_: SimulatedServer, client: httpx.AsyncClient) -> None:
        content = pieces() if chunked else b" " * (MAX_BODY + 1)
        reply = await client.post("/chat/completions", content=content)
        after = await client.post("/chat/completions", json=BODY)

        assert reply.status_code == 413
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert after.status_code == 200

    play(QUICK, scene)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: " + b"9" * 40 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_a_400_and_harms_nobody(nonsense: bytes) -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        said = await raw(server, nonsense)

        assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 "))
        assert said.count(b"HTTP/1.1 4") == 1
        assert (await client.post("/chat/completions", json=BODY)).status_code == 200

    play(QUICK, scene)


def test_a_client_that_does_not_read_is_not_answered_without_end() -> None:
    big = json.dumps({"input": ["x"] * 2000, "dimensions": 64}).encode()
    request = post(big).replace(b"/chat/completions", b"/embeddings")

    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request * 15)
        await poll(client, server, lambda seen: seen["simulated_requests_total"] > 0)
        await asyncio.sleep(0.2)
        assert (await metrics(client, server))["simulated_requests_total"] < 15
        writer.transport.abort()

    play(QUICK, scene)


def test_requests_sent_ahead_of_a_pending_answer_are_left_in_the_socket() -> None:
    request = post(b" " * 2**20)

    async def scene(server: SimulatedServer, _: httpx.AsyncClient) -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(json.dumps(BODY).encode()) + request * 64)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.5)
        writer.transport.abort()

    play(Behaviour(hang_rate=1), scene)


def test_a_port_that_is_taken_is_a_configuration_error() -> None:
    async def scene(server: SimulatedServer, _: httpx.AsyncClient) -> None:
        with pytest.raises(ConfigError, match=str(server.port)):
            await serve(QUICK, port=server.port)
        with pytest.raises(ConfigError, match="65536"):
            await serve(QUICK, port=65536)

    play(QUICK, scene)


def test_closing_cuts_what_is_open_and_may_be_repeated() -> None:
    async def scene(server: SimulatedServer, client: httpx.AsyncClient) -> None:
        pending = asyncio.create_task(client.post("/chat/completions", json=BODY, timeout=None))
        await poll(client, server, lambda seen: seen["simulated_running"] == 1)
        await server.close()
        await server.close()

        with pytest.raises(httpx.TransportError):
            await pending
        with pytest.raises(httpx.ConnectError):
            await client.get("/models")

    play(Behaviour(latency=3600), scene)


def test_every_address_has_a_base_url_that_can_be_called() -> None:
    async def scene() -> None:
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):  # noqa: S104 (the case in question)
            server = await serve(QUICK, host)
            async with httpx.AsyncClient(base_url=server.base_url, trust_env=False) as client:
                assert (await client.get("/models")).status_code == 200
            await server.close()

    asyncio.run(scene())
