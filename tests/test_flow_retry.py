import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.schema import Config, Retry, Timeouts
from batchinfer.flow.retry import RetryPolicy, Tries

LUCK = st.floats(0, 1, exclude_max=True)


def policy(
    attempts: int = 5, base: float = 0.5, cap: float = 60.0, deadline: float = 3600.0
) -> RetryPolicy:
    retry = Retry(attempts=attempts, base=base, cap=cap)
    return RetryPolicy.of(Config(retry=retry, timeouts=Timeouts(deadline=deadline)))


@pytest.mark.parametrize(
    ("attempt", "most"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (7, 32.0), (8, 60.0), (5000, 60.0)],
)
def test_the_wait_is_drawn_below_a_bound_that_doubles_up_to_the_cap(
    attempt: int, most: float
) -> None:
    waits = policy(attempts=10_000)

    assert waits.after(Tries(attempt, attempt, 0.0), None, 0.0, None).delay == 0.0
    assert waits.after(Tries(attempt, attempt, 0.0), None, 0.5, None).delay == pytest.approx(
        most / 2
    )
    assert waits.after(Tries(attempt, attempt, 0.0), None, 0.999, None).delay == pytest.approx(
        most * 0.999
    )


@given(st.integers(1, 20), st.floats(0, 1000), LUCK)
def test_a_servers_delay_is_a_floor_and_the_draw_adds_a_tenth_at_most(
    attempt: int, floor: float, luck: float
) -> None:
    delay = policy().after(Tries(attempt, attempt, 0.0), floor, luck, None).delay

    assert floor <= delay <= 1.1 * floor


@pytest.mark.parametrize(("attempt", "gives_up"), [(1, False), (4, False), (5, True), (6, True)])
def test_a_row_has_so_many_attempts_in_all(attempt: int, gives_up: bool) -> None:
    backoff = policy(attempts=5).after(Tries(attempt, attempt, 0.0), None, 0.5, None)

    assert backoff.give_up is gives_up
    assert not backoff.out_of_time


@pytest.mark.parametrize(
    ("attempt", "at_most", "gives_up"),
    [(1, 2, False), (2, 2, True), (3, 2, True), (4, 9, False), (5, 9, True)],
)
def test_a_problem_may_be_worth_fewer_attempts_than_the_policy_allows(
    attempt: int, at_most: int, gives_up: bool
) -> None:
    assert (
        policy(attempts=5).after(Tries(attempt, attempt, 0.0), None, 0.5, at_most).give_up
        is gives_up
    )


@pytest.mark.parametrize(
    ("elapsed", "floor", "late"),
    [
        (0.0, None, False),
        (98.0, None, False),
        (99.95, None, True),
        (0.0, 99.0, False),
        (0.0, 100.0, True),
        (50.0, 51.0, True),
        (1000000.0, None, True),
    ],
)
def test_a_wait_that_would_end_after_the_deadline_is_not_begun(
    elapsed: float, floor: float | None, late: bool
) -> None:
    backoff = policy(deadline=100.0).after(Tries(1, 1, elapsed), floor, 0.2, None)

    assert (backoff.give_up, backoff.out_of_time) == (late, late)


def test_with_both_used_up_the_attempts_are_the_reason() -> None:
    backoff = policy(attempts=1, deadline=10.0).after(Tries(1, 1, 50.0), None, 0.5, None)

    assert backoff.give_up
    assert not backoff.out_of_time


@given(st.integers(1, 12), LUCK)
def test_an_endpoints_rest_is_at_least_half_of_the_doubling_bound(
    episode: int, luck: float
) -> None:
    bound = min(0.5 * 2 ** (episode - 1), 60.0)

    rest = policy().pause(episode, None, luck)

    assert bound / 2 <= rest <= bound


@given(st.integers(1, 12), st.floats(0, 1000), LUCK)
def test_an_endpoint_that_says_how_long_gets_that_and_a_second_more_at_most(
    episode: int, floor: float, luck: float
) -> None:
    rest = policy().pause(episode, floor, luck)

    assert floor <= rest <= floor + min(1.0, 0.1 * floor)


def test_the_back_off_grows_with_exchanges_and_gives_up_by_attempts_that_count() -> None:
    refused = policy(attempts=5).after(Tries(7, 0, 0.0), None, 0.5, None)
    failed = policy(attempts=5).after(Tries(7, 5, 0.0), None, 0.5, None)

    assert refused.delay == failed.delay == pytest.approx(16.0)
    assert not refused.give_up
    assert failed.give_up


def test_a_row_that_only_waits_for_its_turn_runs_out_of_time_even_with_one_attempt() -> None:
    backoff = policy(attempts=1, deadline=10.0).after(Tries(30, 0, 11.0), None, 0.5, None)

    assert backoff.out_of_time
