"""Holding a limit: notice when the server changes, and try a little more or less now and then.

Owns: the running mean of what the limit yields, when to probe, what a probe shows. Refuses to
know: requests, refusals, clocks (`now` is monotonic seconds), how goodput is measured.
"""

import math
from typing import Final

from msgspec import Struct

from batchinfer.flow.climb import KEEP, PAYS, SURE, WORTH, Bounds, Climb, Try, Window, decide
from batchinfer.flow.goodput import Change, Estimate, blend, change

COLLAPSED: Final = 0.75
"""Goodput that falls to this share of the usual calls for a new climb."""
BROKEN: Final = 0.5
"""The same at once; between the two a second window must agree: it may have been a hiccup."""
MARGIN: Final = 1.15
"""How much more than what the fallen goodput needs is kept in flight."""
WEIGHT: Final = 0.2
"""Of a new window in the running mean."""
UP: Final = 1.25
DOWN: Final = 0.8
"""The probes."""
STEEP: Final = 0.7
"""A probe down to less than this share costs too much: from 3 to 2, from 2 to 1."""
LEAP: Final = 0.7
"""Elasticity of a probe up from which the climb that follows doubles."""
PAUSE: Final = 15.0
"""Seconds before the first probe, and between two."""
INTERVAL: Final = 30.0
"""Seconds until a probe in the same direction is worth another try; grows with each failure."""
UP_SLOWER: Final = 1.5
UP_AT_MOST: Final = 60.0
DOWN_SLOWER: Final = 2.0
DOWN_AT_MOST: Final = 600.0
"""A probe down that fails costs goodput and one that succeeds gains none: it is rare soon."""
LATENCIES: Final = 20.0
"""A probe in the same direction is at least this many request times away, on slow servers."""


class Again(Struct, frozen=True):
    """Climb anew."""

    climb: Climb
    reason: str


class Watch:
    """`judge` what the held limit, or the one that is probed, yields."""

    def __init__(self, now: float, limit: int, least: int, usual: Estimate | None = None) -> None:
        """Hold `limit`; `usual` is what it yields, where that is known."""
        self._least = least
        self._settle(now, limit, usual)

    def _settle(self, now: float, limit: int, usual: Estimate | None, share: float = 1.0) -> None:
        self.limit = self._held = limit
        self._usual = usual
        self._share = share
        self._slumps = 0
        # by direction: True is up
        self._pauses = {True: INTERVAL, False: INTERVAL}
        self._due = {True: now + INTERVAL, False: now + PAUSE}

    @property
    def probing(self) -> bool:
        """Whether the present limit is a probe."""
        return self.limit != self._held

    @property
    def window(self) -> Window:
        """How to measure the present limit."""
        enough = max(50, 5 * self.limit // 2)
        if self.probing:
            return Window(max(12, self.limit // 2), enough, 4 * enough, 0.025, quick=False)
        return Window(enough, enough, 4 * enough, 0.04, quick=False)

    def judge(
        self, now: float, seen: Estimate, bounds: Bounds, *, final: bool
    ) -> Try | Again | None:
        """Take in what the present limit yields; `final`: the window asked for is full."""
        usual = self._usual
        if usual is None:
            self._usual = seen if final else None
            return None
        step = change(usual, seen)
        if self.probing:
            return self._probed(now, usual, seen, final=final)
        if not final:
            return None
        if step.log < math.log(COLLAPSED):
            return self._slump(now, step)
        self._slumps = 0
        self._usual = blend(usual, seen, WEIGHT)
        return self._probe(now, bounds)

    def _probe(self, now: float, bounds: Bounds) -> Try | None:
        up = min(bounds.roof, math.ceil(self.limit * UP))
        if now >= self._due[True] and up >= self.limit * WORTH:
            return self._to(up, "probe: does more pay?")
        down = max(self._least, bounds.floor, math.floor(self.limit * DOWN))
        if now >= self._due[False] and down * WORTH < self.limit <= down / STEEP:
            return self._to(down, "probe: is less enough?")
        return None

    def _slump(self, now: float, step: Change) -> Try | None:
        """Go down to where the queue is as long as it was, if the server has become slower.

        If it is the rows that have become longer, the next probe up pays and a climb follows.
        """
        self._slumps += 1
        if self._slumps == 1 and step.log > math.log(BROKEN):
            return None
        limit = max(self._least, round(self.limit * math.exp(step.log) * MARGIN))
        self._settle(now, min(self.limit, limit), None)
        return Try(self.limit, f"throughput {step}: down")

    def _probed(
        self, now: float, usual: Estimate, seen: Estimate, *, final: bool
    ) -> Try | Again | None:
        step, ratio = change(usual, seen), math.log(self.limit / self._held)
        up = ratio > 0
        # More than an even chance is asked for: probes are many, and each mistake would stay.
        bound = PAYS * ratio + step.error if up else math.log(KEEP / self._share) + step.error / 4
        good = decide(step, bound, final=final)
        if good is None:
            return None
        text = f"throughput {step} at {self.limit}"
        if not good:
            self._postpone(now, seen, up=up, clear=up or step.below(math.log(KEEP), SURE))
            return self._to(self._held, f"{text}: back")
        if up:
            factor = 2.0 if step.log > LEAP * ratio else UP
            climb = Climb(self.limit, self._least, base=usual, factor=factor)
            return Again(climb, f"{text}: up")
        self._lower(now, seen, step)
        return Try(self.limit, f"{text}: less is enough")

    def _lower(self, now: float, seen: Estimate, step: Change) -> None:
        """Hold the lower limit, and try at once whether still less is enough.

        What each of these steps costs is kept count of: together they stay above KEEP.
        """
        self._settle(now, self.limit, seen, min(1.0, self._share * math.exp(step.log)))
        self._due[False] = now

    def _postpone(self, now: float, seen: Estimate, *, up: bool, clear: bool) -> None:
        """Put off the next probe in this direction, more so after a clear failure."""
        latency = seen.limit / seen.answers.value
        self._due[up] = now + max(self._pauses[up], LATENCIES * latency)
        self._due[not up] = max(self._due[not up], now + PAUSE)
        slower, most = (UP_SLOWER, UP_AT_MOST) if up else (DOWN_SLOWER, DOWN_AT_MOST)
        if clear:
            self._pauses[up] = min(most, self._pauses[up] * slower)

    def _to(self, limit: int, reason: str) -> Try:
        self.limit = limit
        return Try(limit, reason)
