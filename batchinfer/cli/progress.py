"""Progress for people, on stderr: a live view on a terminal, a few plain lines elsewhere.

Owns: what is shown of a tally and how often. Refuses to know: what the counters count, clocks
(`tick` is told the time), stdout. A terminal that is stuck or gone never stops the run.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol, TextIO, cast

from batchinfer.cli.streams import Lenient
from batchinfer.cli.text import duration
from batchinfer.cli.watch import Styled, View, Watch, figures, figures_line, rows_text
from batchinfer.report.gauges import Gauges

if TYPE_CHECKING:
    from rich.text import Text

REFRESHES_PER_SECOND: Final = 5
QUIET_LINE: Final = 60.0
"""Seconds between two plain lines while nothing changes."""

CALM: Final = 30.0
"""Seconds without a hold (or a 429) after which the next one is news again."""

_BAR: Final = 8
"""Columns below which a bar says nothing."""


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
        self._stream = Lenient(stream)
        self._hold = _Episode()
        self._limit = _Episode()
        self._limited = gauges.tally.rate_limited
        self._causes = set(gauges.tally.failures)
        self._printed = 0.0
        self._now: float | None = None
        self._open = False

    def start(self) -> None:
        """Say that the run has begun."""
        self._open = True
        self._stream.line("started")

    def tick(self, now: float) -> None:
        """Print what is news; nothing, most of the time."""
        self._now = now
        view = self._watch.look(now)
        news = self._news(now, view)
        if not news and view.elapsed - self._printed >= QUIET_LINE:
            news = [figures_line(view)]
        for line in news:
            self._printed = view.elapsed
            self._stream.line(f"[{duration(view.elapsed)}] {line}")

    def stop(self) -> None:
        """Print the last figures."""
        if self._open:
            self._open = False
            self._stream.line("stopped" if self._now is None else self._last_line(self._now))

    def _last_line(self, now: float) -> str:
        view = self._watch.look(now)
        return f"stopped after {duration(view.elapsed)}: {figures_line(view._replace(eta=None))}"

    def _news(self, now: float, view: View) -> list[str]:
        news = []
        if self._limit.begins(now, active=view.rate_limited > self._limited):
            news.append("rate-limited by the server")
        if self._hold.begins(now, active=view.hold > 0):
            news.append(f"held for {duration(view.hold)}: {view.reason}")
        causes = self._tally.failures.keys() - self._causes
        news += [f"rows begin to fail: {cause}" for cause in sorted(causes)]
        self._causes |= causes
        self._limited = view.rate_limited
        return news


class Terminal:
    """A bar and its figures, redrawn in place.

    A thread of rich's draws the last snapshot, so that a terminal that takes no bytes (Ctrl-S)
    holds up that thread and not the run.
    """

    def __init__(self, gauges: Gauges, stream: TextIO, width: int | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._watch = Watch(gauges)
        self._view: View | None = None
        file = cast("TextIO", Lenient(stream))
        console = self._console = Console(file=file, force_terminal=True, width=width)
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,  # stdout carries data
            redirect_stderr=stream is sys.stderr,
        )

    def start(self) -> None:
        """Take the lines below the cursor."""
        self._live.start()

    def tick(self, now: float) -> None:
        """Take a snapshot for the next redrawing."""
        self._view = self._watch.look(now)

    def stop(self) -> None:
        """Give the lines back, empty."""
        self._live.stop()

    def _render(self) -> "Text":
        from rich.text import Text

        # A full last column makes some terminals wrap.
        width = max(self._console.width - 1, 1)
        lines = _draw(self._view, width) if self._view else [[("starting", "")]]
        drawn = [Text.assemble(*line) for line in lines]
        for line in drawn:
            line.truncate(width, overflow="ellipsis")
        return Text("\n", no_wrap=True).join(drawn)


def choose(
    gauges: Gauges, stream: TextIO, environ: Mapping[str, str], *, quiet: bool = False
) -> Progress:
    """Choose how to show progress on `stream`."""
    if quiet:
        return Quiet()
    if stream.isatty() and environ.get("TERM") not in {"dumb", "unknown"}:
        return Terminal(gauges, stream)
    return Plain(gauges, stream)


def _draw(view: View, width: int) -> list[list[Styled]]:
    """Draw the view on at most three lines, meant for `width` columns."""
    lines = [_bar_line(view, width), _fitting(figures(view), width)]
    if view.hold:
        lines.append([(f"held for {duration(view.hold)}: {view.reason}", "yellow")])
    return lines


def _bar_line(view: View, width: int) -> list[Styled]:
    percent = "" if view.share is None else f"{int(view.share * 100):>3}% "
    eta = "" if view.eta is None else f", {duration(view.eta)} left"
    tail = f" {rows_text(view)}, {duration(view.elapsed)}{eta}"
    room = width - len(percent) - len(tail)
    if view.share is None or room < _BAR:
        return [(percent, "bold"), (tail.strip(), "")]
    full = int(room * view.share)
    bar = [("━" * full, "green"), ("─" * (room - full), "bright_black")]
    return [(percent, "bold"), *bar, (tail, "")]


def _fitting(figures: list[Styled], width: int) -> list[Styled]:
    """Join as many figures as fit."""
    line: list[Styled] = []
    used = 0
    for text, style in figures:
        gap = "  " if line else ""
        if used + len(gap) + len(text) > width:
            break
        line += [(gap, ""), (text, style)]
        used += len(gap) + len(text)
    return line
