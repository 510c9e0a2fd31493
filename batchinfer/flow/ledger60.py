"""What was used of a limit lately: a sliding window in slots.

Owns: the ring of slots, when room comes free, writing a window down and reading it back. Refuses
to know: limits, clocks (`now` is monotonic seconds, `now_epoch` Unix seconds), what a unit is.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from batchinfer.events import Event, Recalled
from batchinfer.model import Failure, Outcome, Usage

MINUTE: Final = 60.0
DAY: Final = 86_400.0
STEPS: Final[Mapping[float, float]] = {MINUTE: 0.25, DAY: 600.0}
"""Seconds of a window → seconds of its slots."""

WINDOWS: Final[Mapping[str, float]] = {"minute": MINUTE, "day": DAY}

_CRUMB: Final = 1e-6
"""Units by which sums of floats may be off."""

Slots = list[tuple[float, float]]
"""Pairs of Unix seconds and units."""

Past = Mapping[str, Mapping[str, Slots]]
"""Usage by window (`minute`, `day`) and unit (`requests`, `tokens`, `input`, `output`)."""


class Ledger:
    """The last `span` seconds. A slot is forgotten whole, once its youngest second is that old."""

    __slots__ = ("_count", "_newest", "_slots", "_span", "_step", "_used")

    def __init__(self, span: float = MINUTE) -> None:
        self._span = span
        self._step = STEPS[span]
        self._count = round(span / self._step) + 1
        self._slots = [0.0] * self._count
        self._newest = -self._count
        self._used = 0.0

    def used(self, now: float) -> float:
        """Return the units in the window that ends now."""
        newest = int(now // self._step)
        if newest > self._newest:
            for index in range(max(self._newest + 1, newest - self._count + 1), newest + 1):
                self._slots[index % self._count] = 0.0
            self._newest = newest
            self._used = math.fsum(self._slots)
        return self._used

    def add(self, now: float, amount: float) -> None:
        """Enter units used now."""
        self.used(now)
        self.amend(now, amount)

    def amend(self, at: float, amount: float) -> None:
        """Add to what was entered at `at`, or take from it; what is forgotten stays so."""
        index = int(at // self._step)
        if self._newest - self._count < index <= self._newest:
            place = index % self._count
            before = self._slots[place]
            self._slots[place] = max(0.0, before + amount)
            self._used = max(0.0, self._used + self._slots[place] - before)

    def wait(self, now: float, amount: float, most: float) -> float:
        """Return the seconds until the window holds `amount` beside what it has, `most` in all.

        An empty window lets anything through: what never fits is refused elsewhere, or the limit
        has changed since.
        """
        excess = self.used(now) + amount - most - _CRUMB
        if excess <= 0 or self._used <= _CRUMB:
            return 0.0
        index = self._newest - self._count
        while excess > 0 and index < self._newest:
            index += 1
            excess -= self._slots[index % self._count]
        return max(0.0, (index + self._count) * self._step - now)

    def slots(self, now: float, now_epoch: float) -> Slots:
        """Return what `fill` reads: the middle of each slot that holds something."""
        self.used(now)
        return [
            (now_epoch - now + min((index + 0.5) * self._step, now), amount)
            for index in range(self._newest - self._count + 1, self._newest + 1)
            if (amount := self._slots[index % self._count]) > 0
        ]

    def fill(self, now: float, now_epoch: float, slots: Slots) -> None:
        """Enter what an earlier process used; what is too old, or in the future, is left out."""
        self.used(now)
        for moment, amount in slots:
            self.amend(now - (now_epoch - moment), max(0.0, amount))


class Recent:
    """A fold over recalled outcomes: what earlier runs of the job used of a window that runs yet.

    `span`: seconds of the longest window that matters. What was in flight when such a run was
    killed stands in no sidecar, and is not counted.
    """

    def __init__(self, now_epoch: float, span: float) -> None:
        self._now = now_epoch
        self._windows = {name: length for name, length in WINDOWS.items() if length <= span}
        oldest = datetime.fromtimestamp(now_epoch - span, UTC).isoformat(timespec="milliseconds")
        self._oldest = oldest.replace("+00:00", "Z")
        self._sums: dict[str, dict[str, dict[float, float]]] = {
            window: defaultdict(lambda: defaultdict(float)) for window in self._windows
        }

    def fold(self, event: Event) -> None:
        """Count one event; times are compared as text, so that the many old ones cost little."""
        if isinstance(event, Recalled) and event.outcome.at >= self._oldest:
            self._count(event.outcome)

    @property
    def past(self) -> Past:
        """What `Pacer.restore` takes."""
        return {
            window: {unit: list(sums.items()) for unit, sums in units.items()}
            for window, units in self._sums.items()
        }

    def _count(self, outcome: Outcome) -> None:
        try:
            at = datetime.fromisoformat(outcome.at).timestamp()
        except ValueError:
            return
        amounts = _amounts(outcome)
        for window, span in self._windows.items():
            step = STEPS[span]
            if at > self._now - span - step:
                for unit, amount in amounts.items():
                    self._sums[window][unit][at // step * step] += amount


def _amounts(outcome: Outcome) -> Mapping[str, float]:
    usage: Usage = outcome.usage if isinstance(outcome, Failure) else outcome.answer.usage
    return {
        "requests": outcome.attempts + outcome.rate_limited,
        "tokens": usage.total + outcome.wasted,
        "input": usage.input or 0,
        "output": (usage.output or 0) + outcome.wasted,
    }
