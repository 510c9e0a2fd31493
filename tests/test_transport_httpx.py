"""What the portable transport makes of httpx's own exceptions, mocked below the transport."""

import asyncio
import ssl

import httpx
import pytest
import respx

from batchinfer.config.schema import Timeouts
from batchinfer.model import Fault, FaultKind, Reply
from batchinfer.transport.base import settings_from
from batchinfer.transport.httpx_ import HttpxTransport

URL = "https://model.test/v1?key=SECRET"
SETTINGS = settings_from(Timeouts(), {})


def post() -> Reply | Fault:
    async def scenario() -> Reply | Fault:
        transport = HttpxTransport(SETTINGS)
        try:
            return await transport.post(URL, {}, b"{}")
        finally:
            await transport.aclose()

    return asyncio.run(scenario())


@respx.mock
def test_a_mocked_route_answers_the_transport() -> None:
    route = respx.post(URL).respond(429, headers={"Retry-After": "3"}, content=b"slow down")

    reply = post()

    assert isinstance(reply, Reply)
    assert (reply.status, reply.headers["retry-after"], reply.body) == (429, "3", b"slow down")
    assert route.calls.last.request.content == b"{}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ConnectTimeout, FaultKind.CONNECT_TIMEOUT),
        (httpx.ConnectError, FaultKind.CONNECT),
        (httpx.ProxyError, FaultKind.CONNECT),
        (httpx.ReadTimeout, FaultKind.READ_TIMEOUT),
        (httpx.WriteTimeout, FaultKind.READ_TIMEOUT),
        (httpx.ReadError, FaultKind.RESET),
        (httpx.WriteError, FaultKind.RESET),
        (httpx.RemoteProtocolError, FaultKind.PROTOCOL),
        (httpx.LocalProtocolError, FaultKind.PROTOCOL),
        (ssl.SSLError, FaultKind.RESET),
    ],
)
@respx.mock
def test_each_exception_is_a_fault_without_its_text(
    error: type[Exception], kind: FaultKind
) -> None:
    respx.post(URL).mock(side_effect=error("Bearer sk-SECRET"))

    outcome = post()

    assert isinstance(outcome, Fault)
    assert outcome.kind is kind
    assert "model.test:443" in outcome.detail
    assert "SECRET" not in outcome.detail


def test_all_transports_share_one_tls_context() -> None:
    transport = HttpxTransport(SETTINGS)
    for path in ("a", "b"):
        transport.prepare(f"https://model.test/{path}")
    first, second = transport._lanes.values()

    assert isinstance(first.trust, ssl.SSLContext)
    assert first.trust is second.trust
    assert first.trust.verify_mode is ssl.CERT_REQUIRED


def test_no_authority_is_read_for_plain_http() -> None:
    transport = HttpxTransport(SETTINGS)
    transport.prepare("http://127.0.0.1:8000/v1")

    assert transport._trust is None
