"""What refusals and failures say about the limit.

Owns: telling a server that is over its limit from one that refuses now and then, or is away; how
far to go down, the soft ceiling that remains of it, and how long failures hold growth back.
Refuses to know: requests, status codes, goodput, clocks (`now` is monotonic seconds).
"""

import math
from typing import Final

CUT: Final = 0.85
"""What refusals leave of min(limit, in flight)."""
FILL: Final = 0.98
"""The same when they met a limit that was being tried: what was let in is the server's limit."""
FOLLOW: Final = 0.97
"""What an episode lets in is followed in steps of at least this (ratio)."""
EPISODE: Final = 15.0
"""Seconds in which refusals belong together, and that failures keep the limit from growing."""
CLEAN: Final = 60.0
"""Seconds without a cut after which the soft ceiling rises, by RISE and one."""
RISE: Final = 1.05
PRESSURE: Final = 3.0
LEAK: Final = 0.03
"""Refusals, less this share of the answers since, that call for a cut. A server that refuses one
request in a hundred whatever the load, or lets one hang, would else be left with nothing."""
BLACKOUT: Final = 10
"""Refusals in a row, and no fewer than the limit, that show an outage: nobody was let in."""


class Refusals:
    """`refused` each time; `row` counts those since the last answer."""

    __slots__ = (
        "_answers",
        "_before",
        "_ceiling",
        "_clean_from",
        "_cut_at",
        "_failed_at",
        "_floor",
        "_frozen_until",
        "_most",
        "_pressure",
        "_row_from",
        "row",
    )

    def __init__(self, now: float, most: int) -> None:
        self._most = most
        self._ceiling = float(most)
        self._clean_from = now
        self._pressure = 0.0
        self._answers = 0
        self._row_from = now
        self._floor = 1
        self._before = (most, float(most))
        self._cut_at = self._failed_at = self._frozen_until = -math.inf
        self.row = 0

    def ceiling(self, now: float) -> int:
        """Return the largest limit that recent refusals leave."""
        while now >= self._clean_from + CLEAN and self._ceiling < self._most:
            self._clean_from += CLEAN
            self._ceiling = min(float(self._most), self._ceiling * RISE + 1)
        return int(self._ceiling)

    def frozen(self, now: float) -> bool:
        """Whether the limit may not grow now."""
        return now < self._frozen_until

    def failed(self, now: float) -> None:
        """Take note of a failure other than a refusal: it holds growth back for a while.

        Only the first after a minute without does; who always fails some is taken as it is.
        """
        if now >= self._failed_at + CLEAN:
            self._frozen_until = now + EPISODE
        self._failed_at = now

    def weigh(self, now: float, answers: int) -> bool:
        """Count a refusal when there were `answers` in all so far: whether it is one too many."""
        if not self.row:
            self._row_from = now
        since, self._answers = answers - self._answers, answers
        self._pressure = max(0.0, self._pressure - LEAK * since) + 1.0
        self.row += 1
        return self._pressure >= PRESSURE

    def cut(
        self, now: float, sent_at: float, in_flight: int, limit: int, proven: int
    ) -> int | None:
        """Return the limit that one refusal too many leaves, None when it is low enough already.

        `in_flight`: without the one refused. `proven`: the limit that is known to be good. A limit
        that was just being tried falls back to what was let in, but not below the proven one, which
        itself falls to CUT once an episode. What else is refused in the episode, was sent before
        the cut, or comes before any answer, lowers the limit to what is let in, at most to half.
        """
        new = in_flight if sent_at < self._cut_at else math.floor(FILL * in_flight)
        over = sent_at >= self._cut_at and now >= self._cut_at + EPISODE
        if over and self.row <= BLACKOUT:
            self._cut_at = now
            self._before = (min(limit, proven), self._ceiling)
            self._floor = proven if limit > proven else max(1, limit // 2)
            new = math.floor((FILL if limit > proven else CUT) * min(limit, in_flight))
        elif new > FOLLOW * limit:
            return None
        new = max(self._floor, new)
        if new >= limit:
            return None
        self._clean_from = now
        self._ceiling = float(max(new, min(self.ceiling(now), in_flight)))
        return new

    def over(self) -> int | None:
        """Take note of an answer after refusals: the limit to return to after an outage.

        A cut during an outage said nothing about the limit, and is undone with its ceiling.
        """
        outage, self.row = self.row >= max(BLACKOUT, self._before[0]), 0
        if not outage or self._cut_at < self._row_from - EPISODE:
            return None
        self._pressure = 0.0
        limit, self._ceiling = self._before
        return limit
