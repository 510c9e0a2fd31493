"""A latency histogram: quantiles within one per cent from a bounded number of counters.

Owns: the logarithmic buckets (those of DDSketch, Masson et al., VLDB 2019). Refuses to know:
where latencies come from. What it says depends on the values added, never on their order.
"""

import math
from typing import Final

ERROR: Final = 0.01
"""The greatest relative error of a quantile between FLOOR and CEILING."""

FLOOR: Final = 1e-3
CEILING: Final = 1e8
"""Milliseconds: a microsecond and a day; what lies outside is put in the outermost bucket."""

_GAMMA: Final = (1 + ERROR) / (1 - ERROR)
_PER_LOG: Final = 1 / math.log(_GAMMA)
_MIDDLE: Final = 2 / (1 + _GAMMA)
"""What turns a bucket's upper bound into the value that is equally wrong at both its ends."""


class Histogram:
    """Counts of latencies in milliseconds, at most some 1,270 of them."""

    __slots__ = ("_buckets", "_largest", "_micros", "_smallest", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._smallest = math.inf
        self._largest = 0.0
        # Whole microseconds: sums of floats would depend on their order.
        self._micros = 0
        self.count = 0

    def add(self, ms: float) -> None:
        """Count one latency; what is no time at all (negative, NaN) counts as none."""
        ms = min(ms, CEILING) if ms > 0 else 0.0
        bucket = math.ceil(math.log(max(ms, FLOOR)) * _PER_LOG)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._micros += round(ms * 1000)
        self._smallest = min(self._smallest, ms)
        self._largest = max(self._largest, ms)
        self.count += 1

    @property
    def mean(self) -> float | None:
        """The arithmetic mean in ms, exact to a microsecond; None where nothing was added."""
        return self._micros / self.count / 1000 if self.count else None

    def quantile(self, q: float) -> float | None:
        """Find the nearest-rank quantile (0 <= q <= 1) in ms; None where nothing was added."""
        if not self.count:
            return None
        rank = max(1, math.ceil(q * self.count))
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                value = _GAMMA**bucket * _MIDDLE
                return min(max(value, self._smallest), self._largest)
        return self._largest
