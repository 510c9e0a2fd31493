import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.schema import Price
from batchinfer.flow.ledger import Ledger, cost_of
from batchinfer.model import NO_USAGE, Usage

PRICE = Price(input=2.0, output=8.0, cached=0.5)


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        (Usage(1_000_000, 0), PRICE, 2.0),
        (Usage(0, 1_000_000), PRICE, 8.0),
        (Usage(1000, 500, 400), PRICE, (600 * 2 + 400 * 0.5 + 500 * 8) / 1e6),
        (Usage(1000, 0, 400), Price(2.0), 1000 * 2 / 1e6),
        (Usage(100, 0, 400), PRICE, 100 * 0.5 / 1e6),
        (Usage(1000), Price(2.0), 1000 * 2 / 1e6),
        (Usage(1000), PRICE, None),
        (Usage(None, 5), PRICE, None),
        (NO_USAGE, Price(2.0), None),
        (Usage(5, 5), Price(0.0), 0.0),
    ],
)
def test_the_cost_of_an_exchange(usage: Usage, price: Price, cost: float | None) -> None:
    assert cost_of(usage, price) == (None if cost is None else pytest.approx(cost))


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_cached_tokens_never_make_it_dearer_nor_negative(
    inward: int, cached: int, outward: int
) -> None:
    with_cache = cost_of(Usage(inward, outward, cached), PRICE)
    without = cost_of(Usage(inward, outward), PRICE)

    assert with_cache is not None
    assert without is not None
    assert 0 <= with_cache <= without


def test_what_was_spent_before_counts() -> None:
    ledger = Ledger({"m": PRICE}, 5.0, 4.0)

    assert not ledger.empty
    assert ledger.charge(Usage(500_000, 0), ("m",)) == 1.0
    assert ledger.spent == 5.0
    assert ledger.empty


def test_the_first_name_with_a_price_counts() -> None:
    ledger = Ledger({"m": Price(1.0), "alias": Price(9.0)}, None, 0.0)

    assert ledger.charge(Usage(1_000_000), ("m-2026", "m")) == 1.0
    assert ledger.charge(Usage(1_000_000), ("m", "alias")) == 1.0
    assert ledger.charge(Usage(1_000_000), (None, "alias")) == 9.0


def test_without_a_price_nothing_is_known_and_nothing_spent() -> None:
    ledger = Ledger({}, 1.0, 0.0)

    assert ledger.charge(Usage(10**9, 10**9), ("m", None)) is None
    assert ledger.spent == 0.0


def test_without_a_budget_there_is_always_money() -> None:
    assert not Ledger({}, None, 1e9).empty
