"""The generic cell rate algorithm: when the next request may leave, for one limit.

Owns: the rate arithmetic. Refuses to know: clocks, sleeping, who waits; `now` is monotonic seconds.

Virtual scheduling form (ITU-T I.371, appendix A): a theoretical arrival time `tat` moves on by
cost/rate with each request. Bursts of one, and an empty start: no window ever holds more than its
share, at the start and after an idle spell alike.
"""

from typing import Final

UTILISATION: Final = 0.98
"""Share of a limit that is used: jitter on the way, not the rate, causes the last 429s."""

MAX_DEBT: Final = 0.05
"""Seconds of a timer's lateness that are carried over; without it a pacer loses 2-25 % of its rate
to late wake-ups, with more of it an idle spell would turn into a burst."""


class Gcra:
    """One limit of `per_minute` units; `wait` asks, `take` books, `settle` corrects.

    `debt`: seconds of lateness that are carried over.
    """

    __slots__ = ("_debt", "_tat", "per_minute", "per_unit")

    def __init__(
        self,
        per_minute: float,
        now: float,
        utilisation: float = UTILISATION,
        debt: float = MAX_DEBT,
    ) -> None:
        self._tat = now
        self._debt = debt
        self.set(per_minute, utilisation)

    def set(self, per_minute: float, utilisation: float) -> None:
        """Change the limit, or the share of it that is used; what is booked stays booked."""
        self.per_minute = per_minute
        self.per_unit = 60.0 / (per_minute * utilisation)

    def wait(self, now: float) -> float:
        """Return the seconds until the next request may leave; 0 when it may leave now."""
        return max(0.0, self._tat - now)

    def take(self, now: float, cost: float, *, waited: bool) -> None:
        """Book `cost` units for a request that leaves now.

        `waited`: it was ready before, and kept by a timer or behind one that was.
        """
        start = max(self._tat, now - self._debt) if waited else max(self._tat, now)
        self._tat = start + cost * self.per_unit

    def resume(self, moment: float) -> None:
        """Let nothing leave before `moment`: what left in an earlier process reaches till then."""
        self._tat = max(self._tat, moment)

    def settle(self, estimated: float, used: float) -> None:
        """Replace an estimate that was booked by what was really used."""
        self._tat += (used - estimated) * self.per_unit
