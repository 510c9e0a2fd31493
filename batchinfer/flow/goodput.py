"""What a limit yields: goodput, how sure that is, and how two limits compare.

Owns: the arithmetic of one measuring window. Refuses to know: which limit to try, clocks.

Goodput is measured in two ways that err differently. Little's law, requests in flight · answers /
seconds in flight, is right from the first answers on, but follows the queue's past. Counting by
the clock is exact where a queue is deep, but requests that left together come back together, and
a short span may hold two such volleys or one. The estimate is their geometric mean, and half of
the gap between them is part of its error: a window is long enough when both agree.
"""

import math
from typing import Final

from msgspec import Struct

EDGE: Final = 0.01
"""The relative error that no number of requests averages away."""
ALIKE: Final = 1.5
"""Little's law alone: requests share a queue, the sum of their errors is that much wider."""
KNOWN: Final = 0.9
"""Tokens count when at least this share of the answers told theirs."""
STEADY: Final = 0.3
"""What is left of the scatter by Little's law once the clock agrees, in tokens: the clock counts
them exactly, long answers or short."""


class Rate(Struct, frozen=True):
    """Units a second, and the relative standard error (inf: not known)."""

    value: float
    error: float


class Estimate(Struct, frozen=True):
    """What a limit yields, in answers and in tokens a second."""

    limit: int
    answers: Rate
    tokens: Rate

    @property
    def error(self) -> float:
        """The relative error in the unit that is surer."""
        return min(self.answers.error, self.tokens.error)


class Change(Struct, frozen=True):
    """The logarithm of a ratio of goodputs, and its standard error."""

    log: float
    error: float

    def above(self, bound: float, sureness: float) -> bool:
        """Whether the change is more than `bound`, by so many standard errors."""
        return self.log - sureness * self.error > bound

    def below(self, bound: float, sureness: float) -> bool:
        """Whether the change is less than `bound`, by so many standard errors."""
        return self.log + sureness * self.error < bound

    def __str__(self) -> str:
        """Show it as people say it: +42%."""
        return f"{math.expm1(self.log):+.0%}"


_UNKNOWN: Final = Rate(0.0, math.inf)


def change(old: Estimate, new: Estimate) -> Change:
    """Compare in the unit that is surer: tokens where answers differ much in length."""
    pairs = ((old.tokens, new.tokens), (old.answers, new.answers))
    a, b = min(pairs, key=lambda pair: pair[0].error + pair[1].error)
    return Change(math.log(b.value / a.value), math.hypot(a.error, b.error))


def blend(old: Estimate, new: Estimate, weight: float) -> Estimate:
    """Let a reference follow what is measured now (exponential mean)."""
    answers = _mix(old.answers, new.answers, weight)
    return Estimate(new.limit, answers, _mix(old.tokens, new.tokens, weight))


def _mix(old: Rate, new: Rate, weight: float) -> Rate:
    if not math.isfinite(old.error + new.error):
        return new
    keep = 1.0 - weight
    error = math.hypot(keep * old.error, weight * new.error)
    return Rate(keep * old.value + weight * new.value, error)


class Meter:
    """The sums of one window; the controller adds to them directly, a few times a request."""

    __slots__ = (
        "answers",
        "in_flight",
        "known",
        "seconds",
        "seconds_tokens",
        "squares",
        "starts",
        "tokens",
        "tokens_squares",
        "wasted",
    )

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a window."""
        self.starts = self.in_flight = 0
        self.answers = self.known = self.tokens = self.tokens_squares = 0
        self.seconds = self.squares = self.seconds_tokens = self.wasted = 0.0

    def waste(self, seconds: float) -> None:
        """Take in a request that held its place so long for nothing."""
        self.wasted += seconds
        self.squares += seconds * seconds

    @property
    def depth(self) -> float:
        """How many were in flight, in the mean over the starts; 0 when none was started."""
        return self.in_flight / self.starts if self.starts else 0.0

    def estimate(self, limit: int, span: float | None) -> Estimate:
        """Sum up a window of `span` seconds that holds at least one answer.

        None: the window is too short for counting by the clock.
        """
        answers = self._rate(self.answers, self._scatter(self.answers, self.seconds), span)
        if self.known < KNOWN * self.answers:
            return Estimate(limit, answers, _UNKNOWN)
        scatter = self._scatter(self.tokens_squares, self.seconds_tokens, self.tokens)
        steady = scatter if span is None else STEADY * scatter
        return Estimate(limit, answers, self._rate(self.tokens, steady, span))

    def _scatter(self, squares: float, products: float, total: float | None = None) -> float:
        """Return the relative standard error of units / seconds (a ratio estimator, linearised).

        `squares`, `products`: the sums of y² and of x·y, for y units got in x seconds each.
        """
        units = self.answers if total is None else total
        ratio = units / (self.seconds + self.wasted)
        residual = squares - 2 * ratio * products + ratio * ratio * self.squares
        return math.sqrt(max(0.0, residual)) / units

    def _rate(self, units: float, scatter: float, span: float | None) -> Rate:
        little = self.depth * units / (self.seconds + self.wasted)
        if span is None:
            return Rate(little, math.hypot(ALIKE * scatter, EDGE))
        counted = units / span
        gap = math.log(little / counted) / 2
        return Rate(math.sqrt(little * counted), math.hypot(scatter, EDGE, gap))
