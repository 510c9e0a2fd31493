"""The climb: find the smallest number in flight that yields (nearly) the best goodput.

Owns: which limit to measure next, given what those measured so far yield. Up: twice the limit
while that pays. Back: bisect down to the smallest limit that yields KEEP of the best. Refuses to
know: requests, refusals, clocks, how goodput is measured.
"""

import math
from typing import Final

from msgspec import Struct

from batchinfer.flow.goodput import Change, Estimate, change

PAYS: Final = 0.35
"""Elasticity (d ln goodput / d ln limit) from which more in flight pays."""
FLAT_STEPS: Final = 2
"""How many flat doublings end the climb: one may be a local plateau of a batching server."""
KEEP: Final = 0.98
"""Share of the best goodput that a smaller limit must yield. At 0.96 a concave server would be
left at exactly the loss that is to be avoided, and the error of measuring comes on top."""
FALLS: Final = 0.9
"""Goodput that falls to this share while climbing ends the climb: no plateau looks like that."""
CLOSE: Final = 1.12
"""The bisection ends when what is too little and what is enough lie this near (ratio)."""
SURE: Final = 2.0
"""Standard errors at which a window may end early."""
EAGER: Final = 1.0
"""The same for going up: a doubling too many costs less than the time to be sure of it."""
CHANCE: Final = 0.5
"""Standard errors by which a goodput must be better to be called the best, or too little."""
VAGUE: Final = 0.12
"""A change known no better than this is no reason to stop climbing."""
WORTH: Final = 1.05
"""A smaller step up (ratio) is not worth taking."""


class Window(Struct, frozen=True):
    """How long to measure, in answers, and the relative error that is wanted.

    `first`: before the first look. `enough`: the window is full, once the error is small or
    `patience` is at its end. `quick`: too short for counting by the clock.
    """

    first: int
    enough: int
    patience: int
    error: float
    quick: bool


class Bounds(Struct, frozen=True):
    """The least and the largest limit that make sense now, by what else is known."""

    floor: int
    roof: int


class Try(Struct, frozen=True):
    """Measure this limit next; the present one: anew. `reason` is for people."""

    limit: int
    reason: str


class Found(Struct, frozen=True):
    """The climb is over: hold this limit."""

    best: Estimate
    reason: str


class Climb:
    """`judge` what the present limit yields, until Found; None: measure on."""

    def __init__(
        self, limit: int, least: int, *, base: Estimate | None = None, factor: float = 2.0
    ) -> None:
        """Begin at `limit`; `base` is a smaller one that is known, the climb ends at no less."""
        self.limit = limit
        self._least = base.limit if base else least
        self._factor = factor
        self._last = base
        self._known = {base.limit: base} if base else {}
        self._precise = set(self._known)
        self._flats = FLAT_STEPS - 1 if base else 0
        self._quick = True
        self._peeking = False
        self._back = False

    @property
    def window(self) -> Window:
        """How to measure the present limit."""
        if self._back:
            enough = max(50, 5 * self.limit // 2)
            return Window(max(12, self.limit // 2), enough, 4 * enough, 0.03, quick=False)
        enough = max(40, self.limit)
        return Window(max(6, self.limit // 4), enough, enough, 0.08, quick=self._quick)

    def moved(self, limit: int) -> bool:
        """Take note that the limit was changed from outside; False: the climb has lost its way."""
        self.limit = limit
        self._quick = False
        return not (self._back or self._peeking)

    def judge(self, seen: Estimate, roof: int, *, final: bool) -> Try | Found | None:
        """Take in what the present limit yields; `final`: the window asked for is full.

        `roof`: the largest limit that is allowed now.
        """
        last = self._last
        if last is None:
            return self._up(seen, roof, "start")
        if self._back:
            return self._bisect(seen, final=final)
        if self._peeking:
            return self._peek(last, seen, roof, final=final)
        return self._rise(last, seen, roof, final=final)

    def _rise(
        self, last: Estimate, seen: Estimate, roof: int, *, final: bool
    ) -> Try | Found | None:
        step, bound = _compare(last, seen)
        text = f"throughput {step} for {seen.limit / last.limit:.3g} times the requests"
        vague = step.error > VAGUE and not step.below(bound, EAGER)
        if step.above(bound, EAGER) or (final and (vague or step.log > bound)):
            self._flats = 0
            return self._up(seen, roof, text)
        falls = step.below(math.log(FALLS), SURE)
        if not (final or falls or step.below(bound, SURE)):
            return None
        if self._quick and not falls:
            # What was sent on the way up met a shorter queue: flatness is judged on what follows.
            self._quick = False
            return Try(self.limit, text)
        return self._flat(seen, roof, text, falls=falls)

    def _flat(self, seen: Estimate, roof: int, text: str, *, falls: bool) -> Try | Found:
        self._flats += 1
        lower = self.limit // 4
        if self._flats == len(self._known) == 1 and lower >= self._least:
            # The start may have been too much already. It was measured before its own queue had
            # built up, so it counts no more: a quarter of this is the second step, or the slope.
            self._known = {seen.limit: seen}
            self._last = seen
            self._peeking = True
            return self._to(lower, f"{text}: is less enough?")
        self._known[seen.limit] = seen
        if falls or self._flats >= FLAT_STEPS:
            return self._narrow(text)
        return self._up(seen, roof, text)

    def _peek(self, top: Estimate, seen: Estimate, roof: int, *, final: bool) -> Try | Found | None:
        step, bound = _compare(top, seen)
        flat = decide(step, bound, final=final)
        if flat is None:
            return None
        self._peeking = False
        self._known[seen.limit] = seen
        text = f"throughput {step} with {seen.limit}"
        return self._narrow(text) if flat else self._up(top, roof, text)

    def _up(self, seen: Estimate, roof: int, text: str) -> Try | Found:
        self._known[seen.limit] = seen
        self._last = seen
        limit = min(roof, math.ceil(seen.limit * self._factor))
        if limit < seen.limit * WORTH:
            return self._narrow(f"{text}, and no more is allowed")
        self._quick = True
        return self._to(limit, f"{text}: up")

    def _bisect(self, seen: Estimate, *, final: bool) -> Try | Found | None:
        step = change(self._best(), seen)
        again = seen.limit in self._known
        if not final and (again or decide(step, math.log(KEEP), final=False) is None):
            return None
        self._known[seen.limit] = seen
        self._precise.add(seen.limit)
        return self._narrow(f"throughput {step} of the best")

    def _narrow(self, text: str) -> Try | Found:
        """Try between the largest limit that is too little and the smallest that is enough."""
        self._back = True
        best = self._best()
        known = sorted(self._known.values(), key=lambda e: e.limit)
        high = next(e for e in known if e is best or _enough(change(best, e)))
        if high.limit not in self._precise:
            return self._to(high.limit, f"{text}: back to {high.limit}")
        low = max((e for e in known if e.limit < high.limit), key=lambda e: e.limit, default=None)
        # Goodput a slot never rises with the number of slots: that bounds what can be enough.
        floor = low.limit * math.exp(change(low, best).log) * KEEP if low else high.limit / 2
        limit = max(self._least, round(math.sqrt(floor * high.limit)))
        if limit >= high.limit or limit in self._known or high.limit / floor <= CLOSE:
            return Found(high, text)
        return self._to(limit, f"{text}: between {floor:.0f} and {high.limit}")

    def _best(self) -> Estimate:
        """Return the best that is known; a better one must be better by more than chance.

        The largest of several noisy figures is mostly the luckiest, and nothing would equal it.
        """
        known = sorted(self._known.values(), key=lambda e: (e.limit not in self._precise, e.limit))
        best = known[0]
        for one in known[1:]:
            if change(best, one).above(0.0, CHANCE):
                best = one
        return best

    def _to(self, limit: int, reason: str) -> Try:
        self.limit = limit
        return Try(limit, reason)


def decide(step: Change, bound: float, *, final: bool) -> bool | None:
    """Whether the change is above the bound; None: not sure yet."""
    if step.above(bound, SURE):
        return True
    if step.below(bound, SURE):
        return False
    return step.log > bound if final else None


def _compare(old: Estimate, new: Estimate) -> tuple[Change, float]:
    """Return the change of goodput, and from where on it is worth the change of the limit."""
    return change(old, new), PAYS * math.log(new.limit / old.limit)


def _enough(step: Change) -> bool:
    return not step.below(math.log(KEEP), CHANCE)
