"""The many shapes of an error body."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.providers.errorbody import NO_ERROR, parse_error


@pytest.mark.parametrize(
    ("body", "kind", "code", "message"),
    [
        (
            {"error": {"message": "m", "type": "t", "param": None, "code": "c"}},
            "t",
            "c",
            "m",
        ),
        ({"error": {"message": "m", "type": "t", "code": None}}, "t", None, "m"),
        (
            {"error": {"message": "m", "type": "BadRequestError", "code": 400}},
            "BadRequestError",
            "400",
            "m",
        ),
        (
            {"object": "error", "message": "m", "type": "t", "param": None, "code": 1300},
            "t",
            "1300",
            "m",
        ),
        (
            {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "m"},
                "request_id": "r",
            },
            "overloaded_error",
            None,
            "m",
        ),
        (
            [
                {
                    "error": {
                        "code": 429,
                        "message": "m",
                        "status": "RESOURCE_EXHAUSTED",
                        "details": [],
                    }
                }
            ],
            "RESOURCE_EXHAUSTED",
            "429",
            "m",
        ),
        ({"message": "m"}, None, None, "m"),
        ({"error": "m", "error_type": "overloaded"}, "overloaded", None, "m"),
        ({"error": "m"}, None, None, "m"),
        ({"detail": "m"}, None, None, "m"),
        (
            {"detail": [{"loc": ["body", "messages", 0], "msg": "field required", "type": "x"}]},
            None,
            None,
            "body.messages.0: field required",
        ),
        ({"status": 429, "title": "Too Many Requests"}, None, None, "Too Many Requests"),
        ({"errors": [{"code": 7009, "message": "m"}], "success": False}, None, "7009", "m"),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 400,
                    "metadata": {"raw": "too long"},
                }
            },
            None,
            "400",
            "Provider returned error: too long",
        ),
        ("m", None, None, "m"),
        ({"error": {"code": 502.0}}, None, "502", ""),
        ({"error": {"code": True, "type": ["t"], "message": {"message": "m"}}}, None, None, "m"),
    ],
)
def test_every_known_shape_is_read(
    body: object, kind: str | None, code: str | None, message: str
) -> None:
    error = parse_error(body)

    assert (error.type, error.code, error.message) == (kind, code, message)


@pytest.mark.parametrize("body", [None, [], 7, True, {}, {"error": None}, {"error": {}}, [[]]])
def test_a_body_that_says_nothing_is_no_error(body: object) -> None:
    assert parse_error(body) == NO_ERROR


def test_the_names_of_an_error_are_gathered_the_most_specific_first() -> None:
    gemini = {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "x/google.rpc.QuotaFailure", "violations": [{"quotaId": "GenPerDay"}, 3]},
            {"@type": "x/google.rpc.RetryInfo", "retryDelay": "58s"},
            {"reason": "API_KEY_INVALID"},
            "odd",
        ],
    }
    error = parse_error([{"error": gemini}])

    assert error.labels == ("genperday", "api_key_invalid", "429", "resource_exhausted")
    assert error.retry_delay == "58s"


def test_the_inner_names_of_azure_anthropic_and_openrouter_are_seen() -> None:
    azure = {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}
    anthropic = {"type": "rate_limit_error", "details": {"error_code": "ramp_limit_exceeded"}}
    router = {"code": 402, "metadata": {"limit_source": "a", "reason": "b", "error_type": "c"}}

    assert "responsibleaipolicyviolation" in parse_error({"error": azure}).labels
    assert "ramp_limit_exceeded" in parse_error({"type": "error", "error": anthropic}).labels
    assert parse_error({"error": router}).labels == ("b", "a", "c", "402")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (429, 429),
        ("503", 503),
        (502.0, 502),
        (1302, None),
        ("bad", None),
        (200, None),
        (None, None),
    ],
)
def test_a_code_may_be_a_status(code: object, status: int | None) -> None:
    assert parse_error({"error": {"code": code}}).status == status


def test_texts_are_clean_and_bounded() -> None:
    error = parse_error({"error": {"message": "\x1b[31m" + "x" * 9000, "code": "c" * 500}})

    assert "\x1b" not in error.message
    assert len(error.message) <= 2000
    assert len(error.code or "") <= 100


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "errors",
                    "message",
                    "type",
                    "code",
                    "status",
                    "details",
                    "detail",
                    "metadata",
                    "raw",
                    "innererror",
                    "violations",
                    "quotaId",
                    "retryDelay",
                    "reason",
                    "loc",
                    "msg",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
)


@given(_JSON)
def test_no_json_of_any_shape_breaks_the_reading(body: object) -> None:
    error = parse_error(body)

    assert error.status is None or 400 <= error.status < 600
    assert all(label == label.lower() for label in error.labels)
