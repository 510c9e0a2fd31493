import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from batchinfer.events import Bounced, Counted, Event, Held, Recalled, Sent, Settled, Skipped
from batchinfer.model import Answer, ErrorClass, Failure, Outcome, Problem, Success, Usage
from batchinfer.report.tally import UNNAMED_MODEL, RateWindow, Tally

ANSWER = Answer(
    output=b'"yes"',
    usage=Usage(input=100, output=20, cached=40, reasoning=5),
    finish_reason="stop",
    model="small",
    request_id="req-1",
)
SUCCESS = Success(
    row=0,
    id="a",
    key=b"k" * 16,
    attempts=1,
    latency_ms=50.0,
    cost_usd=0.25,
    at="2026-01-01T00:00:00Z",
    answer=ANSWER,
)
FAILURE = Failure(
    row=1,
    id="b",
    key=b"f" * 16,
    attempts=3,
    latency_ms=9_000.0,
    cost_usd=None,
    at="2026-01-01T00:00:00Z",
    problem=Problem(ErrorClass.TIMEOUT, "no answer in time"),
)
RATE_LIMITED = Problem(ErrorClass.RATE_LIMIT, "slow down", 429)


def folded(*events: Event) -> Tally:
    tally = Tally()
    for event in events:
        tally.fold(event)
    return tally


def figures(tally: Tally) -> dict[str, object]:
    """All that a tally says, but for what is by nature the last of something."""
    names = set(Tally.__slots__) - {"last_hold", "_window", "latency"}
    told: dict[str, object] = {name: getattr(tally, name) for name in names}
    quantiles = tuple(tally.latency.quantile(q) for q in (0, 0.5, 0.95, 1))
    return told | {"latency": (tally.latency.mean, quantiles), "ambiguous": tally.ambiguous}


def test_a_settled_success_counts_in_rows_tokens_money_and_latency() -> None:
    tally = folded(Settled(SUCCESS))

    assert (tally.succeeded, tally.failed, tally.done, tally.settled) == (1, 0, 1, 1)
    assert (tally.input, tally.output, tally.cached, tally.reasoning) == (100, 20, 40, 5)
    assert tally.wasted == 0
    assert tally.cost == 0.25
    assert tally.latency.mean == 50.0


def test_a_settled_failure_counts_by_its_class_and_its_tokens_are_wasted() -> None:
    cut = structs.replace(FAILURE, usage=Usage(input=7, output=3), wasted=11, cost_usd=0.5)

    tally = folded(Settled(cut))

    assert (tally.succeeded, tally.failed, tally.settled) == (0, 1, 1)
    assert tally.failures == {ErrorClass.TIMEOUT: 1}
    assert (tally.input, tally.output, tally.wasted) == (0, 0, 21)
    assert tally.cost == 0.5
    assert tally.latency.mean is None


def test_invalid_rows_are_a_part_of_the_failed() -> None:
    problem = Problem(ErrorClass.INVALID_INPUT, "not a JSON object")

    tally = folded(
        Settled(structs.replace(FAILURE, attempts=0, problem=problem)),
        Skipped("failed", ErrorClass.INVALID_INPUT),
        Settled(FAILURE),
    )

    assert (tally.failed, tally.invalid) == (3, 2)
    assert sum(tally.failures.values()) == tally.failed


def test_rows_of_earlier_runs_count_as_rows_and_not_as_work_of_this_one() -> None:
    tally = folded(Skipped("succeeded"), Skipped("failed", ErrorClass.SCHEMA))

    assert (tally.succeeded, tally.failed, tally.skipped, tally.settled) == (1, 1, 2, 0)
    assert tally.failures == {ErrorClass.SCHEMA: 1}
    assert tally.sent == 0


def test_recalled_outcomes_count_in_everything_but_rows() -> None:
    tally = folded(
        Recalled(structs.replace(SUCCESS, attempts=2, rate_limited=3, ambiguous=1, wasted=9)),
        Recalled(structs.replace(FAILURE, attempts=3, ambiguous=3)),
        Recalled(structs.replace(FAILURE, attempts=0)),
    )

    assert (tally.done, tally.failures, tally.settled) == (0, {}, 0)
    assert (tally.sent, tally.retried, tally.rate_limited, tally.ambiguous) == (8, 6, 3, 4)
    assert (tally.input, tally.output, tally.wasted) == (100, 20, 9)
    assert tally.cost == 0.25
    assert tally.latency.count == 1


def test_live_requests_are_counted_as_they_leave_and_bounce() -> None:
    tally = folded(
        Sent(),
        Bounced(RATE_LIMITED, 1.0, ambiguous=False, counts=False),
        Sent(),
        Bounced(FAILURE.problem, 1.0, ambiguous=True, counts=True),
        Sent(),
    )

    assert (tally.sent, tally.retried, tally.rate_limited, tally.ambiguous) == (3, 2, 1, 1)


def test_an_ambiguous_exchange_is_counted_once_however_its_row_ends() -> None:
    bounce = Bounced(FAILURE.problem, 1.0, ambiguous=True, counts=True)

    recovered = folded(Sent(), bounce, Sent(), Settled(structs.replace(SUCCESS, ambiguous=1)))
    lost = folded(Sent(), bounce, Sent(), Settled(structs.replace(FAILURE, ambiguous=2)))

    assert recovered.ambiguous == 1
    assert lost.ambiguous == 2


def test_the_cost_is_unknown_as_soon_as_one_answer_has_no_price() -> None:
    unnamed = structs.replace(ANSWER, model=None)

    tally = folded(
        Settled(SUCCESS),
        Settled(structs.replace(SUCCESS, cost_usd=None)),
        Settled(structs.replace(SUCCESS, cost_usd=None, answer=unnamed)),
    )

    assert tally.cost is None
    assert tally.known_cost == 0.25
    assert tally.unpriced_models == {"small", UNNAMED_MODEL}


def test_a_failure_that_used_nothing_up_leaves_the_cost_known() -> None:
    billed = structs.replace(FAILURE, usage=Usage(input=10))

    assert folded(Settled(FAILURE)).cost == 0.0
    assert folded(Settled(billed)).cost is None


def test_an_answer_without_usage_is_counted_and_blames_no_model() -> None:
    silent = structs.replace(SUCCESS, cost_usd=None, answer=structs.replace(ANSWER, usage=Usage()))

    tally = folded(Settled(silent))

    assert tally.unknown_usage == 1
    assert tally.cost is None
    assert tally.unpriced_models == set()


def test_holds_are_counted_and_the_last_one_is_kept() -> None:
    tally = folded(Held(1.0, "first"), Held(2.0, "second"))

    assert tally.holds == 2
    assert tally.last_hold == Held(2.0, "second")


def test_the_total_is_unknown_until_the_input_is_counted() -> None:
    assert folded(Settled(SUCCESS)).total is None
    assert folded(Settled(SUCCESS), Counted(10)).total == 10


COUNTS = st.integers(0, 1_000)
USAGES = st.builds(
    Usage,
    input=COUNTS | st.none(),
    output=COUNTS | st.none(),
    cached=COUNTS | st.none(),
    reasoning=COUNTS | st.none(),
)
COSTS = st.floats(0, 10) | st.none()
OUTCOMES = st.builds(
    lambda usage, cost, numbers, ms: structs.replace(
        SUCCESS,
        answer=structs.replace(ANSWER, usage=usage),
        cost_usd=cost,
        attempts=numbers[0],
        rate_limited=numbers[1],
        ambiguous=numbers[2],
        wasted=numbers[3],
        latency_ms=ms,
    ),
    USAGES,
    COSTS,
    st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    st.floats(0, 1e6),
) | st.builds(
    lambda usage, cost, error, number: structs.replace(
        FAILURE, usage=usage, cost_usd=cost, problem=Problem(error, "m"), ambiguous=number
    ),
    USAGES,
    COSTS,
    st.sampled_from(ErrorClass),
    COUNTS,
)
EVENTS = st.lists(
    st.builds(Settled, OUTCOMES)
    | st.builds(Recalled, OUTCOMES)
    | st.just(Sent())
    | st.just(Skipped("succeeded"))
    | st.builds(lambda error: Skipped("failed", error), st.sampled_from(ErrorClass))
    | st.builds(
        lambda ambiguous, counts: Bounced(RATE_LIMITED, 1.0, ambiguous, counts),
        st.booleans(),
        st.booleans(),
    )
    | st.just(Held(1.0, "r")),
    max_size=30,
)


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_order_of_events_changes_no_figure(events: list[Event], chance: random.Random) -> None:
    shuffled = events.copy()
    chance.shuffle(shuffled)

    assert figures(folded(*events)) == figures(folded(*shuffled))


@given(EVENTS)
def test_failures_by_class_always_add_up_to_the_failed(events: list[Event]) -> None:
    tally = folded(*events)

    assert sum(tally.failures.values()) == tally.failed
    assert tally.failures.get(ErrorClass.INVALID_INPUT, 0) == tally.invalid
    assert tally.done == tally.skipped + tally.settled


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE], ids=["success", "failure"])
def test_memory_does_not_grow_with_the_events(outcome: Outcome) -> None:
    tally = Tally()
    bounced = Bounced(RATE_LIMITED, 1.0, ambiguous=False, counts=False)
    events: list[Event] = [Sent(), bounced, Settled(outcome)]

    def size() -> int:
        for event in events * 1_000:
            tally.fold(event)
        for now in range(1_000):
            tally.rates(now / 100)
        return sum(
            sys.getsizeof(getattr(tally, name)) for name in Tally.__slots__ if name != "_window"
        ) + sys.getsizeof(tally._window._samples)

    before = size()

    # Integers may need another digit of 4 bytes; containers of events would need thousands.
    assert size() < before + 200


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    tally = Tally()
    for second in range(60):
        for _ in range(100 if second < 40 else 10):
            tally.fold(Settled(SUCCESS))
        rates = tally.rates(float(second))

    assert rates.rows == pytest.approx(10)
    assert rates.tokens == pytest.approx(10 * 120)


def test_rates_leave_out_what_earlier_runs_did() -> None:
    tally = Tally()
    tally.rates(0.0)
    tally.fold(Skipped("succeeded"))
    tally.fold(Recalled(SUCCESS))

    assert tally.rates(1.0) == (0.0, 0.0)


def test_rates_are_zero_before_time_has_passed() -> None:
    tally = folded(Settled(SUCCESS))

    assert tally.rates(5.0) == (0.0, 0.0)
    assert tally.rates(5.0) == (0.0, 0.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), min_size=2, max_size=200))
def test_a_window_keeps_few_samples_and_never_a_negative_rate(
    steps: list[tuple[float, int]],
) -> None:
    window = RateWindow(span=10.0, step=0.25)
    now, rows = 0.0, 0
    for wait, more in steps:
        now, rows = now + wait, rows + more
        assert window.rates(now, rows, 0).rows >= 0

    assert len(window._samples) <= 42
