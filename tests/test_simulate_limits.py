import math
import re
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.simulate.limits import SPAN, RateLimits, Window, duration, retry_headers

ARRIVALS = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 12)), min_size=1, max_size=80
)  # (seconds since the one before, amount)


@given(arrivals=ARRIVALS, limit=st.integers(1, 40))
def test_no_minute_holds_more_than_the_limit_and_nobody_waits_in_vain(
    arrivals: list[tuple[float, int]], limit: int
) -> None:
    window, now = Window(limit), 0.0
    admitted: list[tuple[float, int]] = []
    for pause, amount in arrivals:
        now += pause
        held = sum(taken for at, taken in admitted if at + SPAN > now)
        assert window.used(now) == held
        if window.wait(now, amount) == 0:
            assert held + amount <= limit
            window.take(now, amount)
            admitted.append((now, amount))
        else:
            assert held + amount > limit


@given(arrivals=ARRIVALS, limit=st.integers(12, 40), amount=st.integers(1, 12))
def test_who_waits_as_long_as_told_is_admitted_and_not_a_moment_earlier(
    arrivals: list[tuple[float, int]], limit: int, amount: int
) -> None:
    window, now = Window(limit), 0.0
    for pause, each in arrivals:
        now += pause
        if window.wait(now, each) == 0:
            window.take(now, each)
    wait = window.wait(now, amount)

    if wait > 1e-6:
        assert window.wait(now + wait - 1e-6, amount) > 0
    assert window.wait(now + wait + 1e-9, amount) == 0


def test_what_is_larger_than_the_limit_never_fits() -> None:
    assert Window(10).wait(0.0, 11) == math.inf


def test_a_window_keeps_no_more_than_it_needs() -> None:
    window, live, admitted = Window(200), deque[int](), 0
    for second in range(6000):
        for _ in range(5):
            while live and live[0] + SPAN <= second:
                live.popleft()
            assert window.used(second) == len(live)
            if window.wait(second, 1) == 0:
                window.take(second, 1)
                live.append(second)
                admitted += 1

    assert admitted == 20_000
    assert len(window._expiries) == len(window._taken) < 10_000


def test_a_window_is_empty_again_when_its_reset_says() -> None:
    window = Window(5)
    window.take(10.0, 2)
    window.take(30.0, 1)

    assert window.reset(40.0) == 50.0
    assert window.used(40.0 + 50.0) == 0
    assert window.reset(100.0) == 0.0


def test_a_refused_request_uses_up_nothing_of_either_limit() -> None:
    limits = RateLimits(rpm=2, tpm=100)
    assert limits.admit(0.0, 90) is None
    excess = limits.admit(1.0, 20)

    assert excess is not None
    assert (excess.unit, excess.used, excess.requested, excess.wait) == ("tokens", 90, 20, 59.0)
    assert limits.admit(2.0, 10) is None
    assert b"x-ratelimit-remaining-requests: 0\r\n" in limits.headers(2.0)
    assert b"x-ratelimit-remaining-tokens: 0\r\n" in limits.headers(2.0)


def test_the_longer_of_two_waits_is_named() -> None:
    limits = RateLimits(rpm=1, tpm=100)
    limits.admit(0.0, 10)
    excess = limits.admit(0.0, 1000)

    assert excess is not None
    assert (excess.unit, excess.wait) == ("tokens", math.inf)


def test_without_limits_all_are_admitted_and_no_header_is_sent() -> None:
    limits = RateLimits(rpm=0, tpm=0)

    assert all(limits.admit(0.0, 10**9) is None for _ in range(100))
    assert limits.headers(0.0) == b""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.012, "12ms"),
        (0.0001, "1ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (7.66, "7.66s"),
        (60, "1m0s"),
        (360, "6m0s"),
        (59.9999, "1m0s"),
    ],
)
def test_durations_are_in_the_notation_of_openai(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(seconds=st.floats(0, 3600))
def test_a_duration_reads_back_as_no_less_than_what_was_meant(seconds: float) -> None:
    found = re.fullmatch(r"(?:(\d+)m)?(?:([\d.]+)s)?|(\d+)ms", duration(seconds))

    assert found is not None
    minutes, rest, milliseconds = (float(group or 0) for group in found.groups())
    assert 0 <= minutes * 60 + rest + milliseconds / 1000 - seconds < 0.0011


def test_a_pause_is_rounded_up_and_left_out_where_none_would_help() -> None:
    assert retry_headers(1.2341) == b"retry-after: 2\r\nretry-after-ms: 1235\r\n"
    assert retry_headers(math.inf) == b""
