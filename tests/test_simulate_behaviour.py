import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from batchinfer.config.schema import Simulate
from batchinfer.errors import ConfigError
from batchinfer.simulate.behaviour import (
    Behaviour,
    Fate,
    fate,
    is_truncated,
    parse_behaviour,
    service_time,
)

SEEDS = st.integers(min_value=-(2**63), max_value=2**63)


def test_the_fields_and_defaults_are_those_of_the_configuration() -> None:
    assert structs.asdict(Behaviour()) == structs.asdict(Simulate())


def test_a_behaviour_is_read_from_json() -> None:
    assert parse_behaviour(b'{"latency": 0, "slots": 4, "rpm": 30}') == Behaviour(
        latency=0, slots=4, rpm=30
    )


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b'{"latncy": 1}', "latncy"),
        (b'{"error_rate": 1.5}', "error_rate"),
        (b'{"slots": "many"}', "slots"),
        (b'{"api": "telepathy"}', "api"),
        (b'{"rpm": 0.5}', "rpm"),
        (b'{"error_rate": 0.6, "hang_rate": 0.6}', "hang_rate"),
        (b"{", "cannot be read"),
    ],
)
def test_a_senseless_behaviour_is_refused_by_the_name_of_its_field(raw: bytes, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_behaviour(raw)


def test_shares_that_make_up_the_whole_are_allowed() -> None:
    behaviour = Behaviour(error_rate=0.7, rate_limit_rate=0.2, hang_rate=0.1)

    assert Fate.ANSWER not in {fate(behaviour, number) for number in range(2000)}


def test_fates_come_in_the_shares_asked_for() -> None:
    behaviour = Behaviour(error_rate=0.2, rate_limit_rate=0.1, hang_rate=0.05, seed=3)
    drawn = [fate(behaviour, number) for number in range(20_000)]

    assert drawn.count(Fate.ERROR) == pytest.approx(4000, rel=0.1)
    assert drawn.count(Fate.RATE_LIMIT) == pytest.approx(2000, rel=0.1)
    assert drawn.count(Fate.HANG) == pytest.approx(1000, rel=0.15)


def test_another_seed_draws_other_fates() -> None:
    one, other = (
        [fate(Behaviour(error_rate=0.5, seed=seed), number) for number in range(200)]
        for seed in (1, 2)
    )

    assert one != other


@given(seed=SEEDS, number=st.integers(min_value=0))
def test_the_same_request_of_the_same_seed_meets_the_same_fate_in_the_same_time(
    seed: int, number: int
) -> None:
    first, again = (
        Behaviour(error_rate=0.3, hang_rate=0.3, truncate_rate=0.5, seed=seed) for _ in range(2)
    )

    assert fate(first, number) is fate(again, number)
    assert service_time(first, number, 7) == service_time(again, number, 7)
    assert is_truncated(first, number) == is_truncated(again, number)


@given(
    number=st.integers(min_value=0),
    latency=st.floats(0, 100),
    jitter=st.floats(0, 1),
    tokens=st.integers(0, 1000),
)
def test_the_time_stays_within_the_jitter_and_grows_with_the_tokens(
    number: int, latency: float, jitter: float, tokens: int
) -> None:
    behaviour = Behaviour(latency=latency, jitter=jitter, per_token=0.01)
    seconds = service_time(behaviour, number, tokens) - 0.01 * tokens

    assert latency * (1 - jitter) - 1e-6 <= seconds <= latency * (1 + jitter) + 1e-6


def test_the_mean_time_is_the_latency() -> None:
    behaviour = Behaviour(latency=2.0, jitter=0.5)
    times = [service_time(behaviour, number, 0) for number in range(5000)]

    assert sum(times) / len(times) == pytest.approx(2.0, rel=0.02)
    assert max(times) - min(times) > 1.8
