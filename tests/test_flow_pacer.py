from collections import deque
from collections.abc import Iterator
from itertools import chain, repeat

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchinfer.flow.pacer import MAX_DEBT, UTILISATION, Gcra, Pacer, TokenEstimate

WINDOW = 60.0
RATES = st.sampled_from([1.0, 7.0, 60.0, 600.0, 3000.0, 6000.0]) | st.floats(1, 6000)


def departures(
    gcra: Gcra, start: float, late: Iterator[float], idle: Iterator[float], count: int
) -> list[float]:
    """When requests leave, if each timer is overslept by `late` and each is ready after `idle`."""
    now, left = start, []
    for _ in range(count):
        spell = next(idle)
        now += spell
        waited = not spell
        while (wait := gcra.wait(now)) > 0:
            now += wait + next(late)
            waited = True
        gcra.take(now, 1.0, waited=waited)
        left.append(now)
    return left


def most_in_a_window(times: list[float]) -> int:
    """The most departures that any window of a minute, open at its end, holds."""
    held: deque[float] = deque()
    most = 0
    for time in times:
        held.append(time)
        while time - held[0] >= WINDOW:
            held.popleft()
        most = max(most, len(held))
    return most


SPELLS = st.floats(0, 0.5) | st.just(0.0) | st.floats(0, 90)


@settings(max_examples=80, deadline=None)
@given(
    rate=RATES,
    late=st.lists(SPELLS, max_size=20),
    always=st.sampled_from([0.0, 0.001, 0.02]),
    idle=st.lists(st.just(0.0) | st.floats(0, 100), max_size=20),
)
@example(rate=600.0, late=[0.0, 20.0], always=0.0, idle=[])
@example(rate=6000.0, late=[0.0, 3.0], always=0.001, idle=[])
@example(rate=600.0, late=[], always=0.0, idle=[0.0, 0.0, 90.0])
@example(rate=6000.0, late=[], always=0.05, idle=[])
def test_no_minute_holds_more_than_the_limit_and_one(
    rate: float, late: list[float], always: float, idle: list[float]
) -> None:
    """At first anything may happen; then requests stand in line, and timers are good or bad."""
    count = int(rate * 1.2) + 40
    gcra = Gcra(rate, 5.0)

    left = departures(gcra, 5.0, chain(late, repeat(always)), chain(idle, repeat(0.0)), count)

    assert most_in_a_window(left) <= rate + 1


def test_the_whole_of_a_large_limit_stays_below_it_in_every_minute() -> None:
    left = departures(Gcra(6000, 0.0), 0.0, repeat(0.02), repeat(0.0), 13_000)

    assert most_in_a_window(left) <= 6001


@pytest.mark.parametrize("rpm", [60, 300, 600, 1200, 3000, 6000])
@pytest.mark.parametrize("late", [0.0, 0.005, 0.01, 0.02])
def test_timers_that_are_late_by_some_milliseconds_cost_no_more_than_a_hundredth(
    rpm: int, late: float
) -> None:
    left = departures(Gcra(rpm, 0.0), 0.0, repeat(late), repeat(0.0), 3 * rpm + 1)

    reached = 3 * rpm / (left[-1] - left[0]) * 60
    assert 0.97 * rpm <= reached <= 0.9801 * rpm


def test_the_first_request_leaves_at_once_and_no_second_one_with_it() -> None:
    gcra = Gcra(60, 100.0)

    assert gcra.wait(100.0) == 0
    gcra.take(100.0, 1.0, waited=False)

    assert gcra.wait(100.0) == pytest.approx(1 / UTILISATION)
    assert gcra.wait(100.5) == pytest.approx(1 / UTILISATION - 0.5)


def test_an_idle_spell_is_not_saved_up() -> None:
    gcra = Gcra(60, 0.0)
    gcra.take(0.0, 1.0, waited=False)
    gcra.take(500.0, 1.0, waited=False)

    assert gcra.wait(500.0) == pytest.approx(1 / UTILISATION)


def test_only_a_little_of_a_timers_lateness_is_carried_over() -> None:
    gcra = Gcra(60, 0.0)
    gcra.take(0.0, 1.0, waited=False)
    gcra.take(10.0, 1.0, waited=True)

    assert gcra.wait(10.0) == pytest.approx(1 / UTILISATION - MAX_DEBT)


def test_an_estimate_is_replaced_by_what_was_used() -> None:
    more, less = Gcra(600, 0.0), Gcra(600, 0.0)
    for gcra, used in ((more, 30.0), (less, 10.0)):
        gcra.take(0.0, 20.0, waited=False)
        gcra.settle(20.0, used)

    assert more.wait(0.0) == pytest.approx(30 * 0.1 / UTILISATION)
    assert less.wait(0.0) == pytest.approx(10 * 0.1 / UTILISATION)


def test_what_was_given_back_in_plenty_makes_no_burst() -> None:
    gcra = Gcra(600, 0.0)
    gcra.take(0.0, 10.0, waited=False)
    gcra.settle(10.0, 0.0)
    gcra.settle(1000.0, 0.0)

    gcra.take(1.0, 10.0, waited=False)

    assert gcra.wait(1.0) == pytest.approx(1.0 / UTILISATION)


# ── all limits of an endpoint ────────────────────────────────────────────────────────────────


def test_without_limits_nothing_waits_and_nothing_costs() -> None:
    pacer = Pacer(None, None, None, 0.0)
    pacer.take(0.0, 5.0, waited=False)
    pacer.settle(10, 5.0, 100, 100)
    pacer.refund(5.0)

    assert pacer.unlimited
    assert pacer.wait(0.0) == 0.0
    assert pacer.cost(10_000) == 0.0


def test_requests_alone_cost_no_tokens() -> None:
    pacer = Pacer(60, None, None, 0.0)
    pacer.take(0.0, pacer.cost(1_000_000), waited=False)

    assert not pacer.unlimited
    assert pacer.wait(0.0) == pytest.approx(1 / UTILISATION)


def test_the_limit_that_allows_it_last_decides() -> None:
    pacer = Pacer(60, 600, None, 0.0)
    pacer.take(0.0, 100.0, waited=False)

    assert pacer.wait(0.0) == pytest.approx(10 / UTILISATION)
    assert pacer.wait(10 / UTILISATION) == pytest.approx(0.0)


def test_an_estimate_books_a_minutes_tokens_at_most() -> None:
    pacer = Pacer(None, 1000, None, 0.0)

    assert pacer.expect(b"x" * 100) == pacer.cost(100)
    assert pacer.expect(b"x" * 10_000) <= 1000


def test_a_replys_usage_corrects_the_booking() -> None:
    pacer = Pacer(None, 600, None, 0.0)
    pacer.take(0.0, 300.0, waited=False)
    pacer.settle(400, 300.0, 20, 10)

    assert pacer.wait(0.0) == pytest.approx(3.0 / UTILISATION)


def test_a_reply_without_usage_leaves_the_estimate() -> None:
    pacer = Pacer(None, 600, None, 0.0)
    pacer.take(0.0, 300.0, waited=False)
    pacer.settle(400, 300.0, None, None)

    assert pacer.wait(0.0) == pytest.approx(30.0 / UTILISATION)


def test_a_reply_that_knows_but_one_count_is_believed() -> None:
    pacer = Pacer(None, 600, None, 0.0)
    pacer.take(0.0, 300.0, waited=False)
    pacer.settle(400, 300.0, 50, None)

    assert pacer.wait(0.0) == pytest.approx(5.0 / UTILISATION)


def test_a_request_that_never_reached_the_server_gets_its_tokens_back() -> None:
    pacer = Pacer(None, 600, None, 0.0)
    pacer.take(0.0, 300.0, waited=False)
    pacer.refund(300.0)

    assert pacer.wait(0.0) == pytest.approx(0.0)


# ── what a request will cost ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("max_tokens", "output"), [(None, 256), (10, 10), (100_000, 256), (0, 256)]
)
def test_before_any_reply_bytes_and_the_asked_for_tokens_are_the_guess(
    max_tokens: float | None, output: float
) -> None:
    assert TokenEstimate(max_tokens).of(400) == 100 + output


@settings(max_examples=30)
@given(st.integers(1, 10_000), st.integers(0, 5000), st.integers(0, 5000))
def test_the_guess_comes_to_what_replies_report(size: int, inward: int, outward: int) -> None:
    estimate = TokenEstimate(None)
    for _ in range(300):
        estimate.learn(size, inward, outward)

    assert estimate.of(size) == pytest.approx(inward + outward, rel=0.01, abs=1)


def test_counts_that_are_not_reported_teach_nothing() -> None:
    estimate = TokenEstimate(None)
    before = estimate.of(400)
    estimate.learn(400, None, None)
    estimate.learn(0, 50, None)

    assert estimate.of(400) == before


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 400)), min_size=5, max_size=60),
    st.floats(0.1, 5.0),
)
def test_over_the_whole_run_no_more_tokens_leave_than_the_limit_allows(
    requests: list[tuple[int, int]], latency: float
) -> None:
    """What is in flight when its estimate proves too small is the only excess."""
    tpm = 6000.0
    pacer = Pacer(None, tpm, None, 0.0)
    now, used, largest = 0.0, 0.0, 0.0
    for inward, outward in requests:
        cost = pacer.cost(inward * 4)
        now += pacer.wait(now)
        pacer.take(now, cost, waited=False)
        pacer.settle(inward * 4, cost, inward, outward)
        used += inward + outward
        largest = max(largest, inward + outward)
        now += latency / 100

    now += pacer.wait(now)
    assert used <= tpm * UTILISATION / 60 * now + largest + 1e-6
