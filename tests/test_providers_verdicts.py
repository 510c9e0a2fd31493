"""What each failure means: the decision table."""

import json

import pytest

from batchinfer.model import (
    Accept,
    ErrorClass,
    Fault,
    FaultKind,
    Halt,
    Problem,
    Reject,
    Reply,
    Retry,
    Verdict,
)
from batchinfer.providers.registry import PROVIDERS, provider

E = ErrorClass
NOW = 1_755_780_000.0


def judge(
    status: int,
    body: object = b"",
    headers: dict[str, str] | None = None,
    name: str = "openai-chat",
) -> Verdict:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return provider(name).judge(Reply(status, headers or {}, data), NOW)


def err(message: str = "", **members: object) -> dict[str, object]:
    return {"error": {"message": message, **members}}


def problem(verdict: Verdict) -> Problem:
    assert not isinstance(verdict, Accept)
    return verdict.problem


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (301, Halt, E.INVALID_REQUEST),
        (304, Halt, E.INVALID_REQUEST),
        (400, Reject, E.INVALID_REQUEST),
        (401, Halt, E.AUTH),
        (402, Halt, E.QUOTA),
        (403, Halt, E.AUTH),
        (404, Halt, E.INVALID_REQUEST),
        (405, Halt, E.INVALID_REQUEST),
        (407, Halt, E.AUTH),
        (408, Retry, E.TIMEOUT),
        (409, Retry, E.SERVER_ERROR),
        (410, Reject, E.INVALID_REQUEST),
        (412, Reject, E.INVALID_REQUEST),
        (413, Reject, E.TOO_LARGE),
        (414, Reject, E.TOO_LARGE),
        (418, Reject, E.INVALID_REQUEST),
        (422, Reject, E.INVALID_REQUEST),
        (424, Retry, E.SERVER_ERROR),
        (425, Retry, E.SERVER_ERROR),
        (429, Retry, E.RATE_LIMIT),
        (431, Reject, E.TOO_LARGE),
        (498, Retry, E.OVERLOAD),
        (499, Retry, E.SERVER_ERROR),
        (500, Retry, E.SERVER_ERROR),
        (501, Reject, E.INVALID_REQUEST),
        (502, Retry, E.SERVER_ERROR),
        (503, Retry, E.OVERLOAD),
        (504, Retry, E.TIMEOUT),
        (505, Reject, E.INVALID_REQUEST),
        (520, Retry, E.SERVER_ERROR),
        (524, Retry, E.TIMEOUT),
        (529, Retry, E.OVERLOAD),
        (599, Retry, E.SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>502</html>", b"[1,2]", b"null", b'{"error":7}'])
def test_a_status_alone_has_a_default(
    status: int, kind: type[Verdict], error: ErrorClass, body: bytes
) -> None:
    for name in PROVIDERS:
        verdict = judge(status, body, name=name)

        assert isinstance(verdict, kind)
        assert not isinstance(verdict, Retry) or verdict.after is None
        assert problem(verdict).error is error
        assert problem(verdict).status == status


@pytest.mark.parametrize(
    ("status", "body", "kind", "error"),
    [
        # 429: money
        (429, err(type="insufficient_quota", code="insufficient_quota"), Halt, E.QUOTA),
        (429, err(type="insufficient_quota", code=None), Halt, E.QUOTA),
        (429, err(type="billing", code="credit_balance_exhausted"), Halt, E.QUOTA),
        (429, err(code="organization_spend_limit_exceeded"), Halt, E.QUOTA),
        (429, err(code="project_spend_limit_exceeded"), Halt, E.QUOTA),
        (429, err(code="organization_usage_limit_exceeded"), Halt, E.QUOTA),
        (429, err(details={"error_code": "contract_spend_limit_reached"}), Halt, E.QUOTA),
        (403, err(code="insufficient_quota"), Halt, E.QUOTA),
        (
            429,
            [err(details=[{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}])],
            Halt,
            E.QUOTA,
        ),
        # 429: one request larger than the bucket
        (
            429,
            err("Request too large for m on tokens per min (TPM): Limit 6,000, Requested 7,500."),
            Reject,
            E.TOO_LARGE,
        ),
        (429, err("TPM: Limit 10000, Used 9500, Requested 800."), Retry, E.RATE_LIMIT),
        # 429: load
        (429, err(code="1302"), Retry, E.OVERLOAD),
        (429, err(code="queue_exceeded"), Retry, E.OVERLOAD),
        (429, {"error": "Model is overloaded", "error_type": "overloaded"}, Retry, E.OVERLOAD),
        (429, err("Too many concurrent requests"), Retry, E.OVERLOAD),
        (429, err("The system is experiencing high demand"), Retry, E.OVERLOAD),
        # 429: ordinary
        (429, err(type="tokens", code="rate_limit_exceeded"), Retry, E.RATE_LIMIT),
        (
            429,
            [
                err(
                    "You exceeded your current quota, please check your plan and billing details.",
                    details=[{"violations": [{"quotaId": "GenerateRequestsPerMinute"}]}],
                )
            ],
            Retry,
            E.RATE_LIMIT,
        ),
        # 400
        (400, err(code="context_length_exceeded"), Reject, E.TOO_LARGE),
        (400, err(type="exceed_context_size_error", code=400), Reject, E.TOO_LARGE),
        (400, err("This model's maximum context length is 4096 tokens"), Reject, E.TOO_LARGE),
        (400, {"object": "error", "message": "prompt is too long: 9 > 8"}, Reject, E.TOO_LARGE),
        (400, err("Current length is 9000 while limit is 8192"), Reject, E.TOO_LARGE),
        (400, err("bad", metadata={"raw": "the prompt is too long"}), Reject, E.TOO_LARGE),
        (400, err(code="content_filter"), Reject, E.REFUSED),
        (
            400,
            err(code=None, innererror={"code": "ResponsibleAIPolicyViolation"}),
            Reject,
            E.REFUSED,
        ),
        (400, err(code="model_not_found"), Halt, E.INVALID_REQUEST),
        (400, [err(status="FAILED_PRECONDITION", code=400)], Halt, E.INVALID_REQUEST),
        (400, [err(details=[{"reason": "API_KEY_INVALID"}])], Halt, E.AUTH),
        (400, err(code="json_validate_failed"), Retry, E.BAD_RESPONSE),
        (400, err("a message that quotes 429"), Reject, E.INVALID_REQUEST),
        # 402, 403, 404, 412
        (
            402,
            err(
                metadata={
                    "limit_source": "openrouter_in_flight_budget",
                    "reason": "in_flight_budget_exhausted",
                }
            ),
            Retry,
            E.RATE_LIMIT,
        ),
        (
            402,
            err(
                metadata={
                    "limit_source": "openrouter_in_flight_budget",
                    "reason": "weight_exceeds_budget",
                }
            ),
            Reject,
            E.TOO_LARGE,
        ),
        (
            403,
            err("Input token count + max_tokens must be less than the context length"),
            Reject,
            E.TOO_LARGE,
        ),
        (403, err("x", metadata={"flagged_input": "y", "reasons": ["z"]}), Reject, E.REFUSED),
        (403, err("Input was flagged by moderation"), Reject, E.REFUSED),
        (403, {"message": "Out of call volume quota."}, Halt, E.QUOTA),
        (403, err(code="model_not_found"), Halt, E.INVALID_REQUEST),
        (404, err(code="model_not_found"), Halt, E.INVALID_REQUEST),
        (412, err("Account x is suspended"), Halt, E.QUOTA),
        # 413, 422, 5xx
        (413, err(code="rate_limit_exceeded"), Reject, E.TOO_LARGE),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, Reject, E.INVALID_REQUEST),
        (422, err("`inputs` tokens + `max_new_tokens` must be <= 2048"), Reject, E.TOO_LARGE),
        (500, err(type="overloaded_error"), Retry, E.OVERLOAD),
        (500, err("the prompt is longer: exceeds the available context size"), Reject, E.TOO_LARGE),
        (503, err("Loading model", type="unavailable_error", code=503), Retry, E.OVERLOAD),
    ],
)
def test_the_body_decides_where_a_status_is_ambiguous(
    status: int, body: object, kind: type[Verdict], error: ErrorClass
) -> None:
    verdict = judge(status, body)

    assert isinstance(verdict, kind)
    assert problem(verdict).error is error


def test_headers_tell_the_kind_where_the_body_is_silent() -> None:
    groq = judge(422, err("failed"), {"x-groq-region": "us"})
    daily = judge(429, b"", {"x-ratelimit-type": "UserByDay"})
    concurrent = judge(429, b"", {"x-ratelimit-type": "UserConcurrentRequests", "retry-after": "0"})
    router = judge(402, b"", {"x-error-message": "credits are gone"})

    assert isinstance(groq, Retry)
    assert groq.attempts == 2
    assert isinstance(daily, Halt)
    assert isinstance(concurrent, Retry)
    assert concurrent.problem.error is E.OVERLOAD
    assert concurrent.after is None
    assert isinstance(router, Halt)
    assert router.problem.message == "credits are gone"


@pytest.mark.parametrize("status", [429, 498, 503, 529])
def test_a_wait_that_is_the_endpoints_uses_no_attempt(status: int) -> None:
    verdict = judge(status, b"", {"retry-after": "1.5"})

    assert isinstance(verdict, Retry)
    assert not verdict.counts
    assert verdict.after == 1.5


@pytest.mark.parametrize("status", [408, 409, 500, 502, 504])
def test_a_server_fault_uses_an_attempt_and_keeps_the_servers_wait(status: int) -> None:
    verdict = judge(status, err("Please retry in 2s"))

    assert isinstance(verdict, Retry)
    assert verdict.counts
    assert verdict.after == 2.0


def test_a_date_in_retry_after_is_waited_for() -> None:
    ahead = judge(429, b"", {"retry-after": "Thu, 21 Aug 2025 12:40:03 GMT"})
    past = judge(429, b"", {"retry-after": "Thu, 21 Aug 2025 12:39:03 GMT"})

    assert isinstance(ahead, Retry)
    assert ahead.after == 3.0
    assert isinstance(past, Retry)
    assert past.after is None


def test_a_redirect_names_the_host_and_nothing_else() -> None:
    verdict = judge(307, b"", {"location": "https://u:pw@other.example/v1?key=SECRET"})
    unreadable = judge(307, b"", {"location": "https://[broken"})

    assert isinstance(verdict, Halt)
    assert verdict.problem.message == (
        "the server redirects to other.example (redirects are not followed, check base_url)"
    )
    assert isinstance(unreadable, Halt)
    assert unreadable.problem.message.startswith("the server redirects (")


@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        (
            502,
            b"<html>Bad <b>gateway</b></html>",
            {"content-type": "text/html"},
            "HTTP 502 Bad Gateway",
        ),
        (520, b"", {}, "HTTP 520"),
        (503, b"no healthy upstream\n", {"content-type": "text/plain; x"}, "no healthy upstream"),
        (500, err("\x1b[31mred\nalert"), {}, "\ufffdred alert"),
        (401, err("Bearer sk-SECRET456 is wrong"), {}, "Bearer *** is wrong"),
        (
            404,
            err("The model `x` does not exist"),
            {},
            "The model `x` does not exist (check the model's name)",
        ),
        (404, b"", {}, "HTTP 404 Not Found (check base_url)"),
        (400, err("x" * 5000), {}, "x" * 499 + "…"),
    ],
)
def test_the_message_is_the_servers_own_clean_and_bounded(
    status: int, body: object, headers: dict[str, str], message: str
) -> None:
    verdict = judge(status, body, headers)

    assert problem(verdict).message == message


@pytest.mark.parametrize(
    ("kind", "error", "counts"),
    [
        (FaultKind.CONNECT, E.CONNECTION, False),
        (FaultKind.TLS, E.CONNECTION, False),
        (FaultKind.CONNECT_TIMEOUT, E.CONNECTION, False),
        (FaultKind.READ_TIMEOUT, E.TIMEOUT, True),
        (FaultKind.TOTAL_TIMEOUT, E.TIMEOUT, True),
        (FaultKind.RESET, E.CONNECTION, True),
        (FaultKind.PROTOCOL, E.BAD_RESPONSE, True),
        (FaultKind.TOO_LARGE, E.TOO_LARGE, None),
    ],
)
def test_a_broken_exchange_is_retried_unless_the_reply_is_too_large(
    kind: FaultKind, error: ErrorClass, counts: bool | None
) -> None:
    verdict = provider("openai-chat").judge(Fault(kind, "it broke"), NOW)

    assert isinstance(verdict, Reject if counts is None else Retry)
    assert verdict.problem.error is error
    assert verdict.problem.message == "it broke"
    assert not isinstance(verdict, Retry) or verdict.counts is counts


def test_every_kind_of_fault_has_a_verdict() -> None:
    assert all(provider("openai-chat").judge(Fault(kind, "x"), NOW) for kind in FaultKind)
