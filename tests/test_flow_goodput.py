import math
import random

import pytest

from batchinfer.flow.goodput import EDGE, Estimate, Meter, Rate, blend, change


def add(meter: Meter, seconds: float, tokens: int = 0) -> None:
    meter.answers += 1
    meter.seconds += seconds
    meter.squares += seconds * seconds
    if tokens:
        meter.known += 1
        meter.tokens += tokens
        meter.tokens_squares += tokens * tokens
        meter.seconds_tokens += seconds * tokens


def meter_of(in_flight: int, answers: list[tuple[float, int]]) -> Meter:
    meter = Meter()
    for seconds, tokens in answers:
        meter.starts += 1
        meter.in_flight += in_flight
        add(meter, seconds, tokens)
    return meter


def test_goodput_is_in_flight_over_the_time_of_a_request() -> None:
    estimate = meter_of(10, [(2.0, 100)] * 20).estimate(10, None)

    assert estimate.answers.value == pytest.approx(5.0)
    assert estimate.tokens.value == pytest.approx(500.0)
    assert estimate.error == pytest.approx(EDGE)


def test_a_volley_within_the_span_is_part_of_the_error() -> None:
    meter = meter_of(10, [(2.0, 0)] * 20)

    assert meter.estimate(10, 4.0).answers.value == pytest.approx(5.0)
    assert meter.estimate(10, 4.0).answers.error == pytest.approx(EDGE)
    early = meter.estimate(10, 2.5).answers
    assert early.value == pytest.approx(math.sqrt(5.0 * 8.0))
    assert early.error > 0.2


def test_tokens_do_not_mind_lengths_where_time_goes_by_tokens() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(20, 2000) for _ in range(50)]
    estimate = meter_of(8, [(n / 100, n) for n in lengths]).estimate(8, None)

    assert estimate.tokens.value == pytest.approx(800.0)
    assert estimate.tokens.error == pytest.approx(EDGE)
    assert estimate.answers.error > 0.08
    assert estimate.error == estimate.tokens.error


def test_the_error_is_about_the_scatter_of_repeated_windows() -> None:
    rng = random.Random(2)
    windows = [
        meter_of(8, [(rng.lognormvariate(0, 0.5), 0) for _ in range(60)]).estimate(8, None)
        for _ in range(300)
    ]
    logs = [math.log(w.answers.value) for w in windows]
    mean = sum(logs) / len(logs)
    scatter = math.sqrt(sum((log - mean) ** 2 for log in logs) / len(logs))
    claimed = sum(w.answers.error for w in windows) / len(windows)

    assert scatter < claimed < 2 * scatter


def test_time_of_failed_requests_counts_and_yields_nothing() -> None:
    meter = meter_of(10, [(1.0, 0)] * 10)
    meter.waste(10.0)

    assert meter.estimate(10, None).answers.value == pytest.approx(5.0)


def test_tokens_are_used_only_when_nearly_all_answers_tell_them() -> None:
    told = meter_of(4, [(1.0, 50)] * 9 + [(1.0, 0)])
    untold = meter_of(4, [(1.0, 50)] * 8 + [(1.0, 0)] * 2)

    assert math.isfinite(told.estimate(4, None).tokens.error)
    assert untold.estimate(4, None).tokens.error == math.inf


def test_a_change_is_taken_in_the_surer_unit_that_both_have() -> None:
    a = Estimate(8, Rate(10.0, 0.1), Rate(1000.0, 0.01))
    b = Estimate(16, Rate(30.0, 0.1), Rate(2000.0, 0.01))
    c = Estimate(16, Rate(30.0, 0.1), Rate(0.0, math.inf))

    assert change(a, b).log == pytest.approx(math.log(2))
    assert str(change(a, b)) == "+100%"
    assert change(a, c).log == pytest.approx(math.log(3))
    assert change(a, b).error == pytest.approx(math.hypot(0.01, 0.01))


def test_a_reference_follows_slowly_and_starts_anew_in_a_new_unit() -> None:
    none = Rate(0.0, math.inf)
    old = Estimate(8, Rate(10.0, 0.05), none)
    new = Estimate(8, Rate(20.0, 0.05), Rate(500.0, 0.02))
    mean = blend(old, new, 0.2)

    assert mean.answers.value == pytest.approx(12.0)
    assert mean.answers.error < 0.05
    assert mean.tokens == Rate(500.0, 0.02)
