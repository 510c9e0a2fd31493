"""What every transport promises, over real HTTP on loopback: one suite for all adapters."""

import asyncio
import contextlib
import gzip
import resource
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, Literal

import pytest
from msgspec import structs
from rawserver import (
    AUTHORITY,
    Exchange,
    Script,
    closed_port,
    deaf_port,
    serve,
    server_tls,
    until,
)

from batchinfer.errors import ConfigError
from batchinfer.model import Fault, FaultKind, Reply
from batchinfer.transport.base import Transport, TransportSettings
from batchinfer.transport.proxies import rules_from
from batchinfer.transport.select import open_transport

Name = Literal["pyreqwest", "httpx"]
PATIENT: Final = TransportSettings(connect=30.0, read=30.0, total=60.0)
HASTY: Final = TransportSettings(connect=0.2, read=0.2, total=20.0)
BRIEF: Final = TransportSettings(connect=5.0, read=5.0, total=0.4)
HEADERS: Final = {"authorization": "Bearer sk-SECRET456", "content-type": "application/json"}
OK: Final = b"HTTP/1.1 200 OK\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n"

# A connection attempt that is cut off inside httpcore may leave its socket to the collector, which
# says so at a time of its own choosing; leaks are looked for by the tests that count descriptors.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*unclosed.*:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(params=["pyreqwest", "httpx"])
def name(request: pytest.FixtureRequest) -> Name:
    param: Name = request.param
    return param


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@contextlib.asynccontextmanager
async def opened(name: Name, settings: TransportSettings = PATIENT) -> AsyncIterator[Transport]:
    transport = open_transport(name, settings)
    try:
        yield transport
    finally:
        await transport.aclose()


async def post(transport: Transport, url: str, body: bytes = b"{}") -> Reply | Fault:
    return await transport.post(url, HEADERS, body)


async def exchanged(name: Name, script: Script, settings: TransportSettings) -> Reply | Fault:
    """Post once to a server that follows `script`; check what holds for any outcome."""
    async with serve(script) as server, opened(name, settings) as transport:
        outcome = await post(transport, f"{server.url}?key=SECRET123")
    if isinstance(outcome, Fault):
        assert f"127.0.0.1:{server.port}" in outcome.detail
        assert "SECRET" not in outcome.detail
        assert outcome.ambiguous or not server.exchanges
    return outcome


def outcome_of(name: Name, script: Script, settings: TransportSettings) -> Reply | Fault:
    return asyncio.run(exchanged(name, script, settings))


def faults_of(
    name: Name, scripts: dict[str, Script], settings: TransportSettings
) -> dict[str, FaultKind | Reply]:
    """Post to all servers at the same time, because each takes its time."""

    async def scenario() -> list[Reply | Fault]:
        return await asyncio.gather(*(exchanged(name, s, settings) for s in scripts.values()))

    kinds = [o.kind if isinstance(o, Fault) else o for o in asyncio.run(scenario())]
    return dict(zip(scripts, kinds, strict=True))


def fault_of(name: Name, script: Script, settings: TransportSettings = PATIENT) -> FaultKind:
    outcome = outcome_of(name, script, settings)
    assert isinstance(outcome, Fault), outcome
    return outcome.kind


def reply_of(name: Name, script: Script, settings: TransportSettings = PATIENT) -> Reply:
    outcome = outcome_of(name, script, settings)
    assert isinstance(outcome, Reply), outcome
    return outcome


def says(data: bytes, then: Literal["wait", "close", "reset"] = "wait") -> Script:
    """Return a script that sends `data`, then waits for ever or ends the connection."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(data)
        if then == "wait":
            await asyncio.Event().wait()
        await asyncio.sleep(0.05)
        exchange.reset() if then == "reset" else exchange.close()

    return script


def repeats(data: bytes, first: bytes = b"", pause: float = 0.02) -> Script:
    """Return a script that sends `first`, then `data` for ever."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(first)
        while True:
            await exchange.send(data)
            await asyncio.sleep(pause)

    return script


async def fine(exchange: Exchange) -> None:
    await exchange.answer(
        b'{"answer": 42}', b"X-Request-Id: r-1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"
    )


# ── what is sent, and what comes back ────────────────────────────────────────────────────────


def test_a_request_arrives_as_it_was_given(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine) as server, opened(name) as transport:
            await post(transport, f"{server.url}?version=2", b'{"q": "\xc3\xa4"}')
            (seen,) = server.exchanges
            assert seen.line == "POST /v1/chat/completions?version=2 HTTP/1.1"
            assert seen.body == b'{"q": "\xc3\xa4"}'
            assert seen.header("authorization") == "Bearer sk-SECRET456"
            assert seen.header("host") == f"127.0.0.1:{server.port}"
            assert seen.header("accept-encoding") == "identity"
            assert str(seen.header("user-agent")).startswith("batchinfer/")
            assert seen.header("transfer-encoding") is None

    run(scenario())


def test_a_reply_has_its_status_its_headers_in_lower_case_and_its_body(name: Name) -> None:
    reply = reply_of(name, fine)

    assert (reply.status, reply.body) == (200, b'{"answer": 42}')
    assert reply.headers["x-request-id"] == "r-1"
    assert reply.headers["set-cookie"] == "a, b"


def test_a_header_that_is_not_text_does_not_cost_the_answer(name: Name) -> None:
    reply = reply_of(
        name, says(OK + b"X-Odd: \xff\xfe\r\nX-Good: 1\r\nContent-Length: 2\r\n\r\n{}")
    )

    assert reply.body == b"{}"
    assert reply.headers["x-good"] == "1"
    assert "x-odd" not in reply.headers


@pytest.mark.parametrize("status", [201, 400, 401, 404, 429, 500, 503])
def test_any_status_is_a_reply(name: Name, status: int) -> None:
    reply = reply_of(name, says(b"HTTP/1.1 %d Odd\r\nContent-Length: 2\r\n\r\nno" % status))

    assert (reply.status, reply.body) == (status, b"no")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_reply_and_the_other_host_hears_nothing(name: Name, status: int) -> None:
    async def scenario() -> None:
        async with serve(fine) as other:
            head = b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
            script = says(head % (status, other.url.encode()))
            async with serve(script) as server, opened(name) as transport:
                reply = await post(transport, server.url)
            assert isinstance(reply, Reply)
            assert (reply.status, reply.headers["location"]) == (status, other.url)
            assert other.accepted == 0

    run(scenario())


def test_interim_responses_are_passed_over(name: Name) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"

    assert reply_of(name, says(interim + OK + b"Content-Length: 2\r\n\r\n{}")).body == b"{}"


def test_a_body_that_ends_with_the_connection_is_whole(name: Name) -> None:
    assert reply_of(name, says(b"HTTP/1.0 200 OK\r\n\r\nhello", "close")).body == b"hello"


def test_blank_lines_before_a_late_answer_are_waited_for(name: Name) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(OK + CHUNKED)
        for _ in range(10):
            await exchange.send(b"1\r\n\n\r\n")
            await asyncio.sleep(0.03)
        await exchange.send(b"2\r\n{}\r\n0\r\n\r\n")

    assert reply_of(name, script, HASTY).body == b"\n" * 10 + b"{}"


# ── time ─────────────────────────────────────────────────────────────────────────────────────


def test_silence_is_a_read_timeout(name: Name) -> None:
    scripts = {
        "from the start": says(b""),
        "after the headers": says(OK + b"Content-Length: 9\r\n\r\n"),
        "within the body": says(OK + b"Content-Length: 9\r\n\r\n{"),
    }

    assert faults_of(name, scripts, HASTY) == dict.fromkeys(scripts, FaultKind.READ_TIMEOUT)


def test_a_server_that_drips_for_ever_is_cut_at_the_total(name: Name) -> None:
    scripts = {
        "headers": repeats(b"X-Drip: 1\r\n", OK),
        "bytes of a header": repeats(b"2", OK[:-4]),
        "bytes of a body": repeats(b" ", OK + b"Content-Length: 100000\r\n\r\n"),
        "blank lines": repeats(b"1\r\n\n\r\n", OK + CHUNKED),
        "interim responses": repeats(b"HTTP/1.1 100 Continue\r\n\r\n"),
    }

    assert faults_of(name, scripts, BRIEF) == dict.fromkeys(scripts, FaultKind.TOTAL_TIMEOUT)


def test_a_port_that_never_accepts_is_a_connect_timeout(name: Name) -> None:
    async def scenario() -> None:
        with deaf_port() as port:
            async with opened(name, structs.replace(HASTY, read=30.0)) as transport:
                outcome = await post(transport, f"http://127.0.0.1:{port}/")
        assert isinstance(outcome, Fault)
        assert outcome.kind is FaultKind.CONNECT_TIMEOUT
        assert not outcome.ambiguous

    run(scenario())


def test_the_total_bounds_connecting_too(name: Name) -> None:
    async def scenario() -> None:
        with deaf_port() as port:
            async with opened(name, BRIEF) as transport:
                outcome = await post(transport, f"http://127.0.0.1:{port}/")
        assert isinstance(outcome, Fault)
        assert outcome.kind is FaultKind.TOTAL_TIMEOUT

    run(scenario())


# ── broken connections ───────────────────────────────────────────────────────────────────────


def test_a_closed_port_is_a_failed_connect_that_says_why(name: Name) -> None:
    async def scenario() -> None:
        port = closed_port()
        async with opened(name) as transport:
            outcome = await post(transport, f"http://127.0.0.1:{port}/?key=SECRET123")
        detail = f"cannot connect to 127.0.0.1:{port} (connection refused)"
        assert outcome == Fault(FaultKind.CONNECT, detail)

    run(scenario())


def test_a_process_without_free_descriptors_says_so(name: Name) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def scenario() -> None:
        async with serve(fine) as server, opened(name) as transport:
            transport.prepare(server.url)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            try:
                outcome = await post(transport, server.url)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert isinstance(outcome, Fault)
        assert outcome.kind is FaultKind.CONNECT
        assert "too many open files" in outcome.detail

    run(scenario())


def test_an_unknown_host_is_a_failed_connect_that_says_why(name: Name) -> None:
    async def scenario() -> None:
        # Too long for DNS: every resolver refuses it without asking the network.
        host = ".".join(["a" * 63] * 5)
        async with opened(name) as transport:
            outcome = await post(transport, f"http://{host}/?key=SECRET123")
        detail = f"cannot connect to {host}:80 (the host name is not known)"
        assert outcome == Fault(FaultKind.CONNECT, detail)

    run(scenario())


def test_a_connection_that_breaks_after_the_request_left_is_a_reset(name: Name) -> None:
    scripts = {
        "closed at once": says(b"", "close"),
        "reset at once": says(b"", "reset"),
        "closed in the headers": says(b"HTTP/1.1 200 OK\r\nX-Half: ", "close"),
        "closed in the body": says(OK + b"Content-Length: 100\r\n\r\n{", "close"),
        "reset in the body": says(OK + b"Content-Length: 100\r\n\r\n{", "reset"),
        "closed between chunks": says(OK + CHUNKED + b"2\r\n{}\r\n", "close"),
        "closed in a chunk": says(OK + CHUNKED + b"ff\r\n{}", "close"),
    }

    assert faults_of(name, scripts, PATIENT) == dict.fromkeys(scripts, FaultKind.RESET)


def test_a_reply_that_is_not_http_is_a_protocol_fault(name: Name) -> None:
    scripts = {
        "another protocol": says(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        "no length": says(OK + b"Content-Length: many\r\n\r\n"),
        "two lengths": says(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
        "no chunk size": says(OK + CHUNKED + b"zz\r\n{}\r\n"),
        "a huge header": says(OK + b"X-Huge: " + b"x" * 1_000_000 + b"\r\n\r\n"),
        "a switch": says(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    }

    assert faults_of(name, scripts, PATIENT) == dict.fromkeys(scripts, FaultKind.PROTOCOL)


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


def test_a_certificate_nobody_vouches_for_is_refused_before_the_request(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine, server_tls()) as server, opened(name) as transport:
            outcome = await post(transport, server.url)
            assert isinstance(outcome, Fault)
            assert outcome.kind is FaultKind.TLS
            assert "certificate is not trusted" in outcome.detail
            assert server.exchanges == []

    run(scenario())


def test_the_ca_file_makes_its_authority_trusted(name: Name) -> None:
    async def scenario() -> None:
        settings = structs.replace(PATIENT, ca_file=str(AUTHORITY))
        async with serve(fine, server_tls()) as server, opened(name, settings) as transport:
            replies = [await post(transport, server.url) for _ in range(3)]
            assert [reply.status for reply in replies if isinstance(reply, Reply)] == [200] * 3
            assert server.accepted == 1

    run(scenario())


def test_plain_http_where_tls_was_expected_is_a_tls_fault(name: Name) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with opened(name) as transport:
                outcome = await post(transport, f"https://127.0.0.1:{port}/")
        assert isinstance(outcome, Fault)
        assert outcome.kind is FaultKind.TLS

    run(scenario())


def test_a_handshake_that_never_comes_is_a_connect_timeout(name: Name) -> None:
    over = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with opened(name, structs.replace(HASTY, read=30.0)) as transport:
                outcome = await post(transport, f"https://127.0.0.1:{port}/")
            over.set()
        assert isinstance(outcome, Fault)
        assert outcome.kind is FaultKind.CONNECT_TIMEOUT

    run(scenario())


@pytest.mark.parametrize("content", [None, b"no certificate", b"-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_useless_ca_file_is_a_config_error_before_the_first_row(
    name: Name, content: bytes | None, tmp_path: Any
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE \(.*ca\.pem\)"):
        open_transport(name, structs.replace(PATIENT, ca_file=str(path)), ["https://127.0.0.1/"])


# ── size ─────────────────────────────────────────────────────────────────────────────────────

SMALL: Final = structs.replace(PATIENT, max_body=100_000)


@pytest.mark.parametrize(
    "script",
    [
        repeats(b"x" * 10_000, OK + b"Content-Length: 100001\r\n\r\n", 0),
        repeats(b"x" * 10_000, OK + b"Content-Length: 9223372036854775807\r\n\r\n", 0),
        repeats(b"2710\r\n" + b"x" * 10_000 + b"\r\n", OK + CHUNKED, 0),
        repeats(b"x" * 10_000, b"HTTP/1.0 200 OK\r\n\r\n", 0),
    ],
    ids=["announced", "announced beyond all bounds", "chunks without end", "no length, no end"],
)
def test_a_body_above_the_cap_is_cut(name: Name, script: Script) -> None:
    assert fault_of(name, script, SMALL) is FaultKind.TOO_LARGE


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 100000\r\n\r\n%s",
        b"Transfer-Encoding: chunked\r\n\r\n186a0\r\n%s\r\n0\r\n\r\n",
    ],
)
def test_a_body_of_just_the_cap_is_whole(name: Name, head: bytes) -> None:
    body = b"x" * SMALL.max_body

    assert reply_of(name, says(OK + head % body), SMALL).body == body


def encoded(encoding: bytes, body: bytes) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(body, b"Content-Encoding: " + encoding + b"\r\n")

    return script


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [(b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"identity", bytes)],
)
def test_a_body_encoded_unasked_is_decoded(
    name: Name, encoding: bytes, encode: Callable[[bytes], bytes]
) -> None:
    assert reply_of(name, encoded(encoding, encode(b'{"a": 1}'))).body == b'{"a": 1}'


@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress])
def test_a_decompression_bomb_is_cut_at_the_cap(
    name: Name, encode: Callable[[bytes], bytes]
) -> None:
    bomb = encode(b"\0" * (SMALL.max_body + 1))

    assert len(bomb) < 1000
    assert fault_of(name, encoded(b"deflate", bomb), SMALL) is FaultKind.TOO_LARGE


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip", b"gzip"])
def test_a_body_that_cannot_be_decoded_is_a_protocol_fault(name: Name, encoding: bytes) -> None:
    assert fault_of(name, encoded(encoding, b"no such stream")) is FaultKind.PROTOCOL


def test_a_compressed_body_cut_short_is_a_reset(name: Name) -> None:
    assert fault_of(name, encoded(b"gzip", gzip.compress(b"{}" * 99)[:-9])) is FaultKind.RESET


# ── connections ──────────────────────────────────────────────────────────────────────────────


def test_requests_one_after_another_share_a_connection(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine) as server, opened(name) as transport:
            for _ in range(10):
                assert isinstance(await post(transport, server.url), Reply)
            assert server.accepted == 1

    run(scenario())


def test_a_connection_the_server_gave_up_while_idle_costs_no_row(name: Name) -> None:
    async def answer_once(exchange: Exchange) -> None:
        await exchange.answer()
        exchange.close()

    async def scenario() -> None:
        async with serve(answer_once) as server, opened(name) as transport:
            for _ in range(5):
                assert isinstance(await post(transport, server.url), Reply)
                await until(lambda: not server.open)
                await asyncio.sleep(0.02)
            assert len(server.exchanges) == 5

    run(scenario())


def test_a_thousand_requests_at_once_wait_for_no_connection(name: Name) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    everyone = asyncio.Event()
    arrived: list[Exchange] = []

    async def together(exchange: Exchange) -> None:
        arrived.append(exchange)
        if len(arrived) == 1000:
            everyone.set()
        await everyone.wait()
        await exchange.answer()

    async def scenario() -> None:
        async with serve(together) as server, opened(name) as transport:
            outcomes = await asyncio.gather(*(post(transport, server.url) for _ in range(1000)))
            assert all(isinstance(outcome, Reply) for outcome in outcomes)

    try:
        run(scenario())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_cancelled_request_leaks_no_connection_and_harms_no_other(name: Name) -> None:
    async def script(exchange: Exchange) -> None:
        await (fine if exchange.body == b"{}" else says(exchange.body))(exchange)

    async def scenario() -> None:
        begun = [b"HTTP", OK + b"X-Half: ", OK + b"Content-Length: 9\r\n\r\n{"] * 10
        settings = structs.replace(PATIENT, total=1.5)
        async with serve(script) as server, opened(name, settings) as transport:
            hanging = [asyncio.create_task(post(transport, server.url, body)) for body in begun]
            await until(lambda: len(server.exchanges) == len(begun))
            for task in hanging:
                task.cancel()
            assert isinstance(await post(transport, server.url), Reply)
            results = await asyncio.gather(*hanging, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            outcomes = await asyncio.gather(*(post(transport, server.url) for _ in range(50)))
            assert all(isinstance(outcome, Reply) for outcome in outcomes)
            abandoned = server.exchanges[: len(begun)]
            await until(lambda: all(exchange.gone for exchange in abandoned))

    run(scenario())


def test_requests_cancelled_while_connecting_leave_the_transport_healthy(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine) as server, opened(name) as transport:
            with deaf_port() as port:
                url = f"http://127.0.0.1:{port}/"
                connecting = [asyncio.create_task(post(transport, url)) for _ in range(20)]
                await asyncio.sleep(0.05)
                for task in connecting:
                    task.cancel()
                await asyncio.gather(*connecting, return_exceptions=True)
            assert isinstance(await post(transport, server.url), Reply)

    run(scenario())


def test_closing_the_transport_closes_its_idle_connections(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine) as server:
            async with opened(name) as transport:
                await asyncio.gather(*(post(transport, server.url) for _ in range(5)))
            await until(lambda: not server.open)

    run(scenario())


# ── secrets and addresses ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "value", ["Bearer sk-SECRET456\n", "sk-SECRET456\0", "sk-SECRET456\xe4", " sk-SECRET456"]
)
def test_a_header_that_cannot_be_sent_is_an_error_without_its_value(name: Name, value: str) -> None:
    async def scenario() -> None:
        async with serve(fine) as server, opened(name) as transport:
            with pytest.raises(ConfigError, match="'Authorization'") as caught:
                await transport.post(server.url, {"Authorization": value}, b"{}")
            assert "SECRET" not in repr(caught.value)
            assert server.accepted == 0

    run(scenario())


def test_other_headers_are_sent_with_their_own_request(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine) as server, opened(name) as transport:
            for key in ("a", "b"):
                await transport.post(server.url, {"x-api-key": key}, b"{}")
            assert [seen.header("x-api-key") for seen in server.exchanges] == ["a", "b"]

    run(scenario())


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000/v1?key=SECRET123",
        "ftp://127.0.0.1/?key=SECRET123",
        "http:///v1?key=SECRET123",
        "http://127.0.0.1:SECRET/",
        "http://[::1/?key=SECRET123",
        "http://127.0.0.1/a b?key=SECRET123",
        "http://user:SECRET@127.0.0.1/",
        "http://" + "a" * 64 + ".example/?key=SECRET123",
        "http://300.300.300.300/?key=SECRET123",
    ],
)
def test_an_address_that_cannot_be_used_is_an_error_before_the_first_row(
    name: Name, url: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_transport(name, PATIENT, [url])
    assert "SECRET" not in repr(caught.value)


# ── proxies ──────────────────────────────────────────────────────────────────────────────────


def test_a_proxy_gets_the_request_and_its_own_credentials(name: Name) -> None:
    async def scenario() -> None:
        async with serve(fine) as proxy:
            rules = rules_from({"HTTP_PROXY": f"http://me%40here:p%3Aw@127.0.0.1:{proxy.port}"})
            async with opened(name, structs.replace(PATIENT, proxies=rules)) as transport:
                assert isinstance(await post(transport, "http://model.test/v1"), Reply)
            (seen,) = proxy.exchanges
            assert seen.line == "POST http://model.test/v1 HTTP/1.1"
            assert seen.header("proxy-authorization") == "Basic bWVAaGVyZTpwOnc="

    run(scenario())


def test_https_goes_through_the_proxy_in_a_tunnel(name: Name) -> None:
    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        there, back = await asyncio.open_connection(
            "127.0.0.1", int(head.split()[1].split(b":")[1])
        )
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        try:
            await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            back.close()
            writer.close()

    async def scenario() -> None:
        async with (
            serve(fine, server_tls()) as server,
            await asyncio.start_server(tunnel, "127.0.0.1", 0) as proxy,
        ):
            port = proxy.sockets[0].getsockname()[1]
            rules = rules_from({"https_proxy": f"127.0.0.1:{port}"})
            settings = structs.replace(PATIENT, proxies=rules, ca_file=str(AUTHORITY))
            async with opened(name, settings) as transport:
                url = server.url.replace("127.0.0.1", "localhost")
                assert isinstance(await post(transport, url), Reply)
            assert server.exchanges[0].line.startswith("POST /v1/chat/completions ")

    run(scenario())


def test_a_proxy_that_refuses_the_tunnel_is_a_failed_connect(name: Name) -> None:
    async def scenario() -> None:
        refuse = says(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        async with serve(refuse) as proxy:
            rules = rules_from({"ALL_PROXY": f"http://me:SECRET@127.0.0.1:{proxy.port}"})
            async with opened(name, structs.replace(PATIENT, proxies=rules)) as transport:
                outcome = await post(transport, "https://model.test/v1")
            assert isinstance(outcome, Fault)
            assert outcome.kind is FaultKind.CONNECT
            assert f"model.test:443 (by proxy 127.0.0.1:{proxy.port})" in outcome.detail
            assert "the proxy refused" in outcome.detail
            assert "SECRET" not in outcome.detail

    run(scenario())


@pytest.mark.parametrize(
    "no_proxy", ["127.0.0.1", "localhost,fe80::/10,127.0.0.1", "localhost, [::1], 127.0.0.0/8", "*"]
)
def test_a_host_in_no_proxy_is_reached_directly(name: Name, no_proxy: str) -> None:
    async def scenario() -> None:
        closed = f"http://127.0.0.1:{closed_port()}"
        for proxy in (closed, "socks5://127.0.0.1:9", "http://[nonsense"):
            rules = rules_from({"HTTP_PROXY": proxy, "NO_PROXY": no_proxy})
            settings = structs.replace(PATIENT, proxies=rules)
            async with serve(fine) as server, opened(name, settings) as transport:
                assert isinstance(await post(transport, server.url), Reply)

    run(scenario())


def test_only_the_given_environment_counts(name: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{closed_port()}")

    assert reply_of(name, fine).status == 200


def test_an_unusable_proxy_is_an_error_before_the_first_row(name: Name) -> None:
    rules = rules_from({"ALL_PROXY": "socks5://me:SECRET@127.0.0.1:9"})

    with pytest.raises(ConfigError, match=r"ALL_PROXY \('socks5://127\.0\.0\.1'\)") as caught:
        open_transport(name, structs.replace(PATIENT, proxies=rules), ["http://127.0.0.1/v1"])
    assert "SECRET" not in repr(caught.value)
