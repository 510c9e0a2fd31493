from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.flow.headers import Quota, Told, Unit, learn
from batchinfer.flow.ledger60 import DAY, MINUTE
from batchinfer.providers.waits import duration

NOW: Final = 1_755_780_000.0  # 2025-08-21T12:40:00Z


def told(headers: Mapping[str, str]) -> Told:
    return learn(headers, duration, NOW)


def openai(unit: str, limit: str, remaining: str, reset: str) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{unit}": limit,
        f"x-ratelimit-remaining-{unit}": remaining,
        f"x-ratelimit-reset-{unit}": reset,
    }


# ── who says it how ──────────────────────────────────────────────────────────────────────────


def test_openai_tells_requests_and_tokens_of_a_minute() -> None:
    found = told(openai("requests", "60", "59", "1s") | openai("tokens", "150000", "149984", "6ms"))

    assert found == (
        Quota(Unit.REQUESTS, MINUTE, 60, 59, 1.0),
        Quota(Unit.TOKENS, MINUTE, 150_000, 149_984, 0.006),
    )


@pytest.mark.parametrize("unit", ["project-tokens", "tokens_usage_based"])
def test_a_projects_tokens_are_tokens(unit: str) -> None:
    assert told(openai(unit, "500", "400", "12s")) == (Quota(Unit.TOKENS, MINUTE, 500, 400, 12.0),)


@pytest.mark.parametrize(
    ("limit", "remaining", "reset"),
    [("14400", "14370", "2m59.56s"), ("14400", "14399", "6s"), ("1000", "999", "1m26.4s")],
)
def test_requests_that_take_a_day_to_come_back_are_those_of_a_day(
    limit: str, remaining: str, reset: str
) -> None:
    """Groq: the per-minute limit on requests is in no header."""
    (quota,) = told(openai("requests", limit, remaining, reset))

    assert quota.window == DAY
    assert quota.per_minute is None


@pytest.mark.parametrize("reset", ["61.5s", "2m0s", "1h", "23h59m59s"])
def test_a_reset_of_more_than_a_minute_is_of_no_known_window(reset: str) -> None:
    (quota,) = told(openai("requests", "600", "590", reset))

    assert quota.per_minute is None


@pytest.mark.parametrize("reset", ["0s", "0", "1ms", "37", "59.9", "60s", "1m0s"])
def test_a_reset_within_a_minute_is_a_minutes(reset: str) -> None:
    (quota,) = told(openai("requests", "600", "600", reset))

    assert quota.per_minute == 600


@pytest.mark.parametrize("reset", [{}, {"x-ratelimit-reset-requests": "soon"}])
def test_without_a_reset_the_window_is_unknown(reset: dict[str, str]) -> None:
    headers = {"x-ratelimit-limit-requests": "600", "x-ratelimit-remaining-requests": "5"} | reset

    assert told(headers) == (Quota(Unit.REQUESTS, None, 600, 5, None),)


def test_a_renewal_period_tells_the_window() -> None:
    headers = {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "5",
        "x-ratelimit-renewalperiod-requests": "60",
    }

    assert told(headers) == (Quota(Unit.REQUESTS, MINUTE, 10, 5, None),)


def test_anthropic_tells_three_limits_and_its_tokens_are_left_out() -> None:
    reset = "2025-08-21T12:40:59Z"
    headers = {
        f"anthropic-ratelimit-{unit}-{what}": text
        for unit in ("requests", "tokens", "input-tokens", "output-tokens")
        for what, text in (("limit", "50"), ("remaining", "49"), ("reset", reset))
    }

    assert told(headers) == tuple(
        Quota(unit, MINUTE, 50, 49, 59.0) for unit in (Unit.REQUESTS, Unit.INPUT, Unit.OUTPUT)
    )


def test_mistral_tells_windows_in_the_names() -> None:
    headers = {
        "x-ratelimit-limit-tokens-minute": "500000",
        "x-ratelimit-remaining-tokens-minute": "499000",
        "x-ratelimit-limit-tokens-month": "1000000000",
        "x-ratelimit-tokens-query-cost": "20",
        "x-ratelimit-limit-req-10-second": "10",
        "x-ratelimit-remaining-req-10-second": "9",
    }

    tokens, requests = told(headers)

    assert tokens == Quota(Unit.TOKENS, MINUTE, 500_000, 499_000, None)
    assert requests == Quota(Unit.REQUESTS, 10.0, 10, 9, None)
    assert requests.per_minute == 60


def test_mistrals_older_names_are_tokens_of_a_minute() -> None:
    headers = {"x-ratelimitbysize-limit-minute": "5", "x-ratelimitbysize-remaining-minute": "4"}

    assert told(headers) == (Quota(Unit.TOKENS, MINUTE, 5, 4, None),)


def test_cerebras_tells_minutes_hours_and_days_apart() -> None:
    headers = {
        name: text
        for unit in ("requests", "tokens")
        for window in ("minute", "hour", "day")
        for name, text in openai(f"{unit}-{window}", "900", "800", "30").items()
    }

    found = told(headers)

    assert [quota.window for quota in found] == [60.0, 3600.0, 86_400.0] * 2
    assert [quota.per_minute for quota in found] == [900, None, None] * 2


def test_together_tells_limits_of_a_second() -> None:
    headers = {
        "x-ratelimit-limit": "10",
        "x-ratelimit-remaining": "9",
        "x-ratelimit-reset": "1",
        "x-tokenlimit-limit": "3000",
        "x-tokenlimit-remaining": "2900",
    }

    assert [(quota.unit, quota.per_minute) for quota in told(headers)] == [
        (Unit.REQUESTS, 600),
        (Unit.TOKENS, 180_000),
    ]


def test_a_limit_without_unit_means_nothing_of_itself() -> None:
    headers = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "1"}

    assert told(headers) == ()


def test_fireworks_tells_tokens_of_an_unknown_window() -> None:
    headers = {
        "x-ratelimit-limit-tokens-prompt": "60000",
        "x-ratelimit-remaining-tokens-prompt": "59000",
        "x-ratelimit-limit-tokens-generated": "200",
    }

    assert told(headers) == (
        Quota(Unit.INPUT, None, 60_000, 59_000, None),
        Quota(Unit.OUTPUT, None, 200, None, None),
    )


def test_a_rest_without_a_limit_is_taken_too() -> None:
    headers = {"x-ratelimit-remaining-tokens": "900", "x-rate-limit-reset-tokens": "55"}

    assert told(headers) == (Quota(Unit.TOKENS, MINUTE, None, 900, 55.0),)


# ── how a reset is written ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("2m59.56s", 179.56),
        ("20ms", 0.02),
        ("172.799999ms", 0.172799999),
        ("1h2m3s", 3723.0),
        ("500µs", 0.0005),
        ("37", 37.0),
        ("0.5", 0.5),
        (" 55 ", 55.0),
        ("2025-08-21T12:40:59Z", 59.0),
        ("2025-08-21T14:40:59+02:00", 59.0),
        ("1755780059", 59.0),
        ("0", 0.0),
        ("0s", 0.0),
        ("0m0.0s", 0.0),
        ("-1", None),
        ("-5s", None),
        ("2025-08-21T12:39:00Z", None),
        ("1755779000", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("999999999", None),
        ("1d", None),
        ("9" * 500, None),
    ],
)
def test_every_encoding_of_a_reset_is_understood(text: str, seconds: float | None) -> None:
    headers = openai("requests-minute", "600", "599", text)

    (quota,) = told(headers)

    assert quota.reset == (None if seconds is None else pytest.approx(seconds))


# ── nonsense ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limit", "remaining"),
    [
        ("-1", "-1"),
        ("0", "0"),
        ("0", "5"),
        ("600", "601"),
        ("", ""),
        ("many", "few"),
        ("nan", "inf"),
        ("1e3", "1e2"),
        ("\u0665", "\u0663"),
        ("9" * 400, "-"),
    ],
)
def test_nonsense_is_ignored(limit: str, remaining: str) -> None:
    assert told(openai("requests", limit, remaining, "0")) == ()


def test_a_limit_stands_when_its_rest_is_nonsense() -> None:
    assert told(openai("requests", "600", "-1", "0")) == (
        Quota(Unit.REQUESTS, MINUTE, 600, None, 0.0),
    )


def test_a_server_that_says_nothing_teaches_nothing() -> None:
    assert told({"content-type": "application/json", "server": "uvicorn"}) == ()


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *openai("requests", "", "", ""),
                *openai("tokens", "", "", ""),
                "anthropic-ratelimit-requests-limit",
                "anthropic-ratelimit-requests-remaining",
                "anthropic-ratelimit-requests-reset",
                "x-ratelimit-limit",
                "x-tokenlimit-limit",
                "x-ratelimit-renewalperiod-requests",
            ]
        ),
        st.text(max_size=12) | st.from_regex(r"-?[0-9]{0,12}(ms|s|m|h|\.[0-9])?", fullmatch=True),
    )
)
def test_whatever_the_headers_hold_what_is_learned_makes_sense(headers: dict[str, str]) -> None:
    for quota in told(headers):
        assert quota.limit is None or quota.limit > 0
        assert quota.remaining is None or quota.remaining >= 0
        assert None in {quota.limit, quota.remaining} or quota.remaining <= quota.limit  # type: ignore[operator]
        assert quota.reset is None or 0 <= quota.reset <= DAY
        assert quota.window is None or quota.window > 0
