import math
import random

from hypothesis import given
from hypothesis import strategies as st

from batchinfer.report.histogram import CEILING, ERROR, FLOOR, Histogram

LATENCIES = st.lists(st.floats(FLOOR, CEILING), min_size=1, max_size=60)


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(LATENCIES, st.floats(0, 1))
def test_a_quantile_is_within_one_per_cent_of_the_nearest_rank(
    values: list[float], q: float
) -> None:
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]

    found = filled(values).quantile(q)

    assert found is not None
    assert abs(found - exact) <= ERROR * exact * (1 + 1e-9)


@given(LATENCIES, st.randoms(use_true_random=False))
def test_the_order_of_the_latencies_changes_nothing(
    values: list[float], chance: random.Random
) -> None:
    shuffled = values.copy()
    chance.shuffle(shuffled)
    one, other = filled(values), filled(shuffled)

    assert one.mean == other.mean
    assert [one.quantile(q / 10) for q in range(11)] == [other.quantile(q / 10) for q in range(11)]


@given(LATENCIES)
def test_the_mean_is_exact_to_a_microsecond(values: list[float]) -> None:
    mean = filled(values).mean

    assert mean is not None
    assert math.isclose(mean, math.fsum(values) / len(values), rel_tol=1e-12, abs_tol=0.0005)


@given(LATENCIES)
def test_the_extremes_are_exact_and_quantiles_rise(values: list[float]) -> None:
    histogram = filled(values)
    quantiles = [histogram.quantile(q / 20) or 0.0 for q in range(21)]

    assert quantiles == sorted(quantiles)
    assert quantiles[-1] <= max(values)
    assert quantiles[0] >= min(values)


def test_an_empty_histogram_has_no_figures() -> None:
    histogram = Histogram()

    assert histogram.mean is None
    assert histogram.quantile(0.5) is None


def test_memory_is_bounded_over_the_whole_range() -> None:
    histogram = Histogram()
    for step in range(200_000):
        histogram.add(FLOOR * (CEILING / FLOOR) ** (step / 200_000))

    assert histogram.count == 200_000
    assert len(histogram._buckets) < 1_300


def test_what_is_no_time_counts_as_none_and_what_is_endless_as_the_ceiling() -> None:
    histogram = filled([-5.0, math.nan, 0.0, math.inf])

    assert histogram.count == 4
    assert histogram.quantile(0.5) == 0.0 or (histogram.quantile(0.5) or 1) <= FLOOR
    assert histogram.quantile(1.0) is not None
    assert (histogram.quantile(1.0) or 0) >= CEILING * (1 - ERROR)
    assert math.isfinite(histogram.mean or math.inf)
