"""What there is to show of a run at one moment.

Owns: the view (a snapshot of a tally and its gauges) and what needs time to know: elapsed time,
the hold that is on, the time left. Refuses to know: where and how often a view is shown, clocks
(a caller says what time it is).
"""

from typing import NamedTuple

from batchinfer.cli.text import clean, count, duration, money, rate
from batchinfer.report.gauges import Gauges
from batchinfer.report.tally import Rates, RateWindow

Styled = tuple[str, str]
"""A piece of text and its rich style."""


class View(NamedTuple):
    """What is to be shown at one moment. Seconds; `share` of the rows done, 0 to 1."""

    elapsed: float
    done: int
    total: int | None
    guessed: bool
    share: float | None
    eta: float | None
    failed: int
    in_flight: int
    rates: Rates
    retried: int
    rate_limited: int
    cost: float | None
    hold: float
    reason: str


class Watch:
    """Looks at the gauges and remembers what needs time: when it began, holds, slow rates."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges
        self._began: float | None = None
        self._holds = gauges.tally.holds
        self._held_until = 0.0
        # Ten seconds are fresh enough to show, but an ETA over them would dance.
        self._steady = RateWindow(span=120.0, step=2.0)

    def look(self, now: float) -> View:
        """Take a snapshot at `now`, in seconds of any monotonic clock."""
        tally = self._gauges.tally
        self._began = now if self._began is None else self._began
        total, share = self._extent()
        hold = tally.last_hold
        if hold is not None and tally.holds != self._holds:
            self._holds = tally.holds
            self._held_until = max(self._held_until, now + hold.seconds)
        return View(
            elapsed=now - self._began,
            done=tally.done,
            total=total,
            guessed=tally.total is None,
            share=share,
            eta=self._eta(now, total, share),
            failed=tally.failed,
            in_flight=self._gauges.in_flight(),
            rates=tally.rates(now),
            retried=tally.retried,
            rate_limited=tally.rate_limited,
            cost=tally.cost,
            hold=max(0.0, self._held_until - now),
            reason=clean(hold.reason) if hold else "",
        )

    def _extent(self) -> tuple[int | None, float | None]:
        done = self._gauges.tally.done
        total = self._gauges.tally.total
        total = self._gauges.total() if total is None else total
        if total is None:
            read = self._gauges.fraction()
            # A short input is read to its end at once, which says nothing of the rows done.
            return None, read if read is not None and read < 1 else None
        return total, min(1.0, done / total) if total else 1.0

    def _eta(self, now: float, total: int | None, share: float | None) -> float | None:
        tally = self._gauges.tally
        speed = self._steady.rates(now, tally.settled, 0).rows
        if not speed or not share:
            return None
        rows = tally.done / share if total is None else total
        return max(0.0, rows - tally.done) / speed


def rows_text(view: View) -> str:
    """Name the rows done, of how many: "450/1,000 rows"; a guessed total is marked by "~"."""
    if view.total is None:
        return f"{count(view.done)} rows"
    return f"{count(view.done)}/{'~' if view.guessed else ''}{count(view.total)} rows"


def figures(view: View) -> list[Styled]:
    """Name the figures, the weightiest first; those that are nothing are left out."""
    shown = [
        (f"{count(view.in_flight)} in flight", ""),
        (rate(view.rates.rows, "rows"), ""),
        (f"{count(view.failed)} failed", "red") if view.failed else None,
        (rate(view.rates.tokens, "tokens"), "") if view.rates.tokens else None,
        (f"{count(view.rate_limited)} x 429", "yellow") if view.rate_limited else None,
        (money(view.cost), "") if view.cost else None,
        (f"{count(view.retried)} retries", "") if view.retried else None,
    ]
    return [figure for figure in shown if figure]


def figures_line(view: View) -> str:
    """Put everything on one line, however long."""
    eta = [] if view.eta is None else [f"{duration(view.eta)} left"]
    return ", ".join([rows_text(view), *(text for text, _ in figures(view)), *eta])
