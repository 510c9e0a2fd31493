"""Money: what an answer cost, and when the budget is spent.

Owns: the price formula and the running sum. Refuses to know: where prices come from.
"""

from collections.abc import Mapping
from typing import Final

from batchinfer.config.schema import Price
from batchinfer.model import Usage

_MILLION: Final = 1_000_000


class Ledger:
    """Prices by model name; `spent` in USD, what earlier runs of the job paid included."""

    def __init__(self, prices: Mapping[str, Price], max_cost: float | None, spent: float) -> None:
        self._prices = prices
        self._max_cost = max_cost
        self.spent = spent

    def charge(self, usage: Usage, names: tuple[str | None, ...]) -> float | None:
        """Add the cost of an exchange and return it (USD); None when it cannot be known.

        `names`: the model as the reply and as the request name it; the first with a price counts.
        """
        price = next((self._prices[n] for n in names if n is not None and n in self._prices), None)
        cost = None if price is None else cost_of(usage, price)
        self.spent += cost or 0.0
        return cost

    @property
    def empty(self) -> bool:
        """Whether the budget is spent."""
        return self._max_cost is not None and self.spent >= self._max_cost


def cost_of(usage: Usage, price: Price) -> float | None:
    """Return USD: (input - cached) · input + cached · cached + output · output, by the million.

    `usage.input` contains the cached tokens, which never exceed it. None when a count is unknown.
    """
    if usage.input is None or (usage.output is None and price.output):
        return None
    cached = min(usage.cached or 0, usage.input)
    cached_price = price.input if price.cached is None else price.cached
    parts = (usage.input - cached) * price.input + cached * cached_price
    return (parts + (usage.output or 0) * price.output) / _MILLION
