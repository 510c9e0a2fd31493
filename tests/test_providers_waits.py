"""How long a server asks to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.providers.errorbody import NO_ERROR, ServerError, parse_error
from batchinfer.providers.waits import LONGEST, duration, said, wait_hint

NOW = 1_755_780_000.0  # 2025-08-21T12:40:00Z


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("2m59.56s", 179.56),
        ("20ms", 0.02),
        ("172.799999ms", 0.172799999),
        ("1h2m3s", 3723.0),
        ("250µs", 0.00025),
        ("250μs", 0.00025),
        ("900us", 0.0009),
        ("58s", 58.0),
        ("37", 37.0),
        (" 0.5 ", 0.5),
        ("2025-08-21T12:40:59Z", 59.0),
        ("2025-08-21T14:40:59.500+02:00", 59.5),
        ("2025-08-21T12:40:59", 59.0),
        ("1755780059", 59.0),
        ("Thu, 21 Aug 2025 12:40:03 GMT", 3.0),
        ("Thursday, 21-Aug-25 12:40:03 GMT", 3.0),
        ("Thu Aug 21 12:40:03 2025", 3.0),
    ],
)
def test_every_encoding_of_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration(text, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "0",
        "0s",
        "-1",
        "-5",
        "nan",
        "inf",
        "1_000",
        "1e3",
        "٣",
        "9" * 400,
        "86401",
        "25h",
        "1m 2x",
        "2025-08-21T12:39:59Z",
        "1755779999",
        "Thu, 21 Aug 2025 12:39:00 GMT",
        "Thu, 99 Aug 2025 12:39:00 GMT",
        "Thu, 21 Xxx 2025 12:39:00 GMT",
        "2025-99-99T00:00",
        "0001-01-01T00:00+23:59",
    ],
)
def test_nonsense_zero_the_past_and_more_than_a_day_are_no_wait(text: str) -> None:
    assert duration(text, NOW) is None


def test_absolute_times_need_the_present() -> None:
    assert duration("2025-08-21T12:40:59Z") is None
    assert duration("1755780059") is None
    assert duration("6m0s") == 360.0


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Please try again in 20ms. Visit", 0.02),
        ("try again in 6m0s", 360.0),
        ("Please try again in 1h12m0.5s", 4320.5),
        ("Please retry after 7 seconds.", 7.0),
        ("retry after 1 second", 1.0),
        ("Please retry in 58.2s", 58.2),
        ("Try again in 2 minutes", 120.0),
        ("try again in 300 milliseconds", 0.3),
        ("try again in 1 hour", 3600.0),
        ("try again later", None),
        ("try again in 3 moons", None),
        ("retry after 0 seconds", None),
        ("HTTP 429", None),
    ],
)
def test_a_wait_in_prose_is_read(message: str, seconds: float | None) -> None:
    assert said(message) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1", "retry-after": "9"}, 9.0),
        ({"retry-after": "7200"}, 7200.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "86401"}, None),
        ({}, None),
    ],
)
def test_retry_after_headers_are_read(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_hint(headers, NO_ERROR, NOW) == seconds


def test_a_date_is_relative_to_the_servers_clock_where_it_is_known() -> None:
    headers = {"retry-after": "Thu, 21 Aug 2025 12:40:03 GMT"}
    skewed = headers | {"date": "Thu, 21 Aug 2025 12:39:53 GMT"}

    assert wait_hint(headers, NO_ERROR, NOW) == 3.0
    assert wait_hint(skewed, NO_ERROR, NOW) == 10.0
    assert wait_hint(headers | {"date": "today"}, NO_ERROR, NOW) == 3.0


def test_headers_come_before_the_body_and_details_before_prose() -> None:
    error = parse_error(
        {"error": {"message": "Please retry in 58.2s", "details": [{"retryDelay": "34.07s"}]}}
    )

    assert wait_hint({"retry-after": "2"}, error, NOW) == 2.0
    assert wait_hint({"retry-after": "0"}, error, NOW) == 34.07
    assert wait_hint({}, ServerError(message="Please retry in 58.2s"), NOW) == 58.2


_STAMPS = st.from_regex(
    r"[A-Z][a-z]{2}, \d{1,2} (Jan|Feb|Xyz) \d{2,4} \d\d:\d\d:\d\d (GMT|[+-]\d{4})", fullmatch=True
) | st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?", fullmatch=True)
_STEPS = st.from_regex(r"-?\d{0,20}\.?\d{0,20}(h|m|s|ms|us|ns)?", fullmatch=True)


@given(st.text() | _STAMPS | _STEPS, st.floats(0, 1e11))
def test_a_wait_is_always_within_a_day_or_unknown(text: str, now: float) -> None:
    headers = {"retry-after": text, "retry-after-ms": text[::-1], "date": text}
    for wait in (
        duration(text, now),
        said(f"retry after {text}"),
        wait_hint(headers, ServerError(message=text, retry_delay=text), now),
    ):
        assert wait is None or 0 < wait <= LONGEST


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_go_duration_is_the_sum_of_its_parts(h: int, m: int, s: int, ms: int) -> None:
    total = h * 3600 + m * 60 + s + ms / 1000

    assert (duration(f"{h}h{m}m{s}s{ms}ms") or 0) == pytest.approx(total)
