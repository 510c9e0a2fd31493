"""How much of its limits an endpoint uses: less after refusals, more again with time.

Owns: additive increase, multiplicative decrease, and what is one episode of refusals. Refuses to
know: limits, clocks (`now` is monotonic seconds).
"""

from typing import Final

from batchinfer.flow.gcra import UTILISATION

CUT: Final = 0.9
"""What is left of the share after an episode."""
FLOOR: Final = 0.3
"""Share of a limit that neither refusals nor a server's count take away: they may be wrong."""
RECOVERY: Final = 0.002
"""Share that comes back in each second."""
EPISODE: Final = 5.0
"""Seconds in which refusals are one episode, or as long as the server asks to wait."""


class Share:
    """`at` tells the share, `refused` cuts it."""

    __slots__ = ("_deaf_until", "_from", "_share", "full")

    def __init__(self) -> None:
        self._share = UTILISATION
        self._from = self._deaf_until = float("-inf")
        self.full = True

    def at(self, now: float) -> float:
        """Return the share to use now."""
        if self.full:
            return UTILISATION
        share = self._share + RECOVERY * max(0.0, now - self._from)
        self.full = share >= UTILISATION
        return min(UTILISATION, share)

    def refused(self, sent_at: float, now: float, after: float | None) -> bool:
        """Take in a refusal of what left at `sent_at`, with its Retry-After; whether it cuts.

        What is refused together, or left before the cut, is one episode.
        """
        if sent_at < self._deaf_until:
            return False
        self._share = max(FLOOR, CUT * self.at(now))
        self.full = False
        self._from = now + (after or 0.0)
        self._deaf_until = now + max(EPISODE, after or 0.0)
        return True
