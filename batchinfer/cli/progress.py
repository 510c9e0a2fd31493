"""Progress for people, on stderr: a live view on a terminal, a few plain lines elsewhere.

Owns: what is shown of a tally and how often. Refuses to know: what the counters count, clocks
(`tick` is told the time), stdout. A terminal that is stuck or gone never stops the run.
"""

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TextIO

from batchinfer.cli.text import clean, count, duration, money, rate
from batchinfer.report.tally import RateWindow, Rates, Tally

if TYPE_CHECKING:
    from rich.text import Text

REFRESHES_PER_SECOND: Final = 5
QUIET_LINE: Final = 60.0
"""Seconds between two plain lines while nothing changes."""

CALM: Final = 30.0
"""Seconds without a hold (or a 429) after which the next one is news again."""

_BAR: Final = 8
"""Columns below which a bar says nothing."""


class Gauges(NamedTuple):
    """What progress reads.

    `in_flight`: requests on their way now. `total`: a guess of the rows while the tally has no
    count. `fraction`: the share of the input's bytes read, 0 to 1, where that is known.
    """

    tally: Tally
    in_flight: Callable[[], int]
    total: Callable[[], int | None]
    fraction: Callable[[], float | None]


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
            return None, self._gauges.fraction()
        return total, min(1.0, done / total) if total else 1.0

    def _eta(self, now: float, total: int | None, share: float | None) -> float | None:
        tally = self._gauges.tally
        speed = self._steady.rates(now, tally.settled, 0).rows
        if not speed or not share:
            return None
        rows = tally.done / share if total is None else total
        return max(0.0, rows - tally.done) / speed


class Progress(Protocol):
    """A way to show progress."""

    def start(self) -> None:
        """Begin to show."""

    def tick(self, now: float) -> None:
        """Look again: to be called some times a second (seconds of a monotonic clock)."""

    def stop(self) -> None:
        """End, whatever was shown; a second call does nothing."""


class Quiet:
    """Shows nothing."""

    def start(self) -> None:
        """Show nothing."""

    def tick(self, now: float) -> None:
        """Show nothing."""

    def stop(self) -> None:
        """Show nothing."""


class _Episode:
    """Tells the beginning of something that comes in bursts."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def begins(self, now: float, *, active: bool) -> bool:
        fresh = active and now - self._last > CALM
        self._last = now if active else self._last
        return fresh


class Plain:
    """A line at the start, on a change of state, at the end; else one a minute."""

    def __init__(self, gauges: Gauges, stream: TextIO) -> None:
        self._tally = gauges.tally
        self._watch = Watch(gauges)
        self._stream = _Lenient(stream)
        self._hold = _Episode()
        self._limit = _Episode()
        self._limited = 0
        self._causes: set[str] = set()
        self._last: float | None = None
        self._view: View | None = None
        self._open = False

    def start(self) -> None:
        """Say that the run has begun."""
        self._open = True
        self._print("started")

    def tick(self, now: float) -> None:
        """Print what is news; nothing most of the time."""
        view = self._view = self._watch.look(now)
        self._last = now if self._last is None else self._last
        news = self._news(now, view)
        if not news and now - self._last >= QUIET_LINE:
            news = [""]
        for line in news:
            self._last = now
            self._print(" · ".join([f"[{duration(view.elapsed)}]", *_figures(view), line][: None if line else -1]))

    def stop(self) -> None:
        """Print the last figures."""
        if self._open:
            self._open = False
            self._print("stopped" if self._view is None else f"stopped: {self._view}")

    def _news(self, now: float, view: View) -> list[str]:
        raise NotImplementedError

    def _print(self, line: str) -> None:
        self._stream.write(f"batchinfer: {line}\n")
        self._stream.flush()
