import io
import os
import re
import sys
from collections.abc import Callable

import pytest
from msgspec import structs
from rich.cells import cell_len
from test_report_tally import FAILURE, RATE_LIMITED, SUCCESS

from batchinfer.cli.progress import Plain, Progress, Quiet, Terminal, choose
from batchinfer.cli.watch import Watch
from batchinfer.events import Bounced, Counted, Held, Recalled, Sent, Settled, Skipped
from batchinfer.model import ErrorClass
from batchinfer.report.gauges import Gauges
from batchinfer.report.tally import Tally

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m|\x1b\[[0-9;]*9[0-9]m")
LIMITED = Bounced(RATE_LIMITED, 1.0, ambiguous=False, counts=False)


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A terminal that was hung up."""

    def write(self, text: str, /) -> int:  # noqa: ARG002 - nothing arrives
        raise OSError(5, "Input/output error")

    def isatty(self) -> bool:
        return True


def gauges(
    tally: Tally,
    in_flight: int = 64,
    total: int | None = None,
    fraction: Callable[[], float | None] = lambda: None,
) -> Gauges:
    return Gauges(tally, lambda: in_flight, lambda: total, fraction)


def busy(rows: int = 450, total: int | None = 1_000) -> Tally:
    """Make a tally where much has happened."""
    tally = Tally()
    for _ in range(rows):
        tally.fold(Sent())
        tally.fold(LIMITED)
        tally.fold(Settled(SUCCESS))
    tally.fold(Settled(FAILURE))
    if total is not None:
        tally.fold(Counted(total))
    return tally


def drawn(terminal: Terminal) -> list[str]:
    """Render what the terminal would show, as rich would print it."""
    terminal._console.file = file = io.StringIO()
    terminal._console.print(terminal._render(), end="")
    return ESCAPES.sub("", file.getvalue()).split("\n")


# ── what is seen ─────────────────────────────────────────────────────────────────────────────


def test_the_time_left_is_that_of_the_rows_left_at_the_present_speed() -> None:
    tally = Tally()
    tally.fold(Counted(100))
    watch = Watch(gauges(tally))
    watch.look(0.0)
    for _ in range(20):
        tally.fold(Settled(SUCCESS))

    view = watch.look(10.0)

    assert (view.done, view.total, view.guessed) == (20, 100, False)
    assert view.share == 0.2
    assert view.eta == pytest.approx(40.0)
    assert view.elapsed == 10.0


def test_rows_of_earlier_runs_do_not_make_this_one_look_fast() -> None:
    tally = Tally()
    watch = Watch(gauges(tally, total=100))
    watch.look(0.0)
    for _ in range(50):
        tally.fold(Skipped("succeeded"))
        tally.fold(Recalled(SUCCESS))

    view = watch.look(10.0)

    assert (view.share, view.eta) == (0.5, None)
    assert view.rates.rows == 0.0


def test_without_a_total_the_share_of_the_bytes_read_stands_in() -> None:
    tally = Tally()
    watch = Watch(gauges(tally, fraction=lambda: 0.25))
    watch.look(0.0)
    for _ in range(10):
        tally.fold(Settled(SUCCESS))

    view = watch.look(10.0)

    assert (view.total, view.share) == (None, 0.25)
    assert view.eta == pytest.approx(30.0)


def test_an_input_read_to_its_end_does_not_pass_for_rows_done() -> None:
    view = Watch(gauges(Tally(), fraction=lambda: 1.0)).look(0.0)

    assert (view.share, view.eta) == (None, None)


def test_an_empty_input_is_done() -> None:
    tally = Tally()
    tally.fold(Counted(0))

    assert Watch(gauges(tally)).look(0.0).share == 1.0


def test_a_hold_is_on_until_its_time_is_over() -> None:
    tally = Tally()
    watch = Watch(gauges(tally))
    watch.look(0.0)
    tally.fold(Held(10.0, "429\x1b[2J from the server"))

    assert watch.look(5.0).hold == 10.0
    assert watch.look(12.0).hold == pytest.approx(3.0)
    assert watch.look(12.0).reason == r"429\x1b[2J from the server"
    assert watch.look(16.0).hold == 0.0


# ── on a terminal ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [1, 7, 20, 40, 59, 60, 80, 120, 300])
@pytest.mark.parametrize("total", [None, 1_000, 10**11])
def test_no_line_is_wider_than_the_terminal(width: int, total: int | None) -> None:
    tally = busy(total=total)
    terminal = Terminal(gauges(tally, fraction=lambda: 0.5), Screen(), width)
    terminal.tick(0.0)
    tally.fold(Held(12.0, "宽" * 200))
    terminal.tick(1.0)

    lines = drawn(terminal)

    assert len(lines) == 3
    assert max(map(cell_len, lines)) < max(width, 2)


def test_eighty_columns_show_what_matters() -> None:
    tally = busy()
    terminal = Terminal(gauges(tally), Screen(), 80)
    terminal.tick(0.0)
    tally.fold(Settled(SUCCESS))
    tally.fold(Held(12.0, "429 from the server"))
    terminal.tick(2.0)

    bar, figures, hold = drawn(terminal)

    assert bar.startswith(" 45% ━━━━")
    assert bar.endswith(" 452/1,000 rows, 2.0s, 18m 16s left")
    assert figures == ("64 in flight  30.0 rows/min  1 failed  60.0 tokens/s  450 x 429  $112.75")
    assert hold == "held for 12s: 429 from the server"


def test_markup_in_a_reason_is_only_text() -> None:
    tally = Tally()
    terminal = Terminal(gauges(tally), Screen(), 80)
    terminal.tick(0.0)
    tally.fold(Held(12.0, "[bold red]loud[/] [link=http://x]y"))
    terminal.tick(0.1)

    assert "[bold red]loud[/] [link=http://x]y" in drawn(terminal)[2]


def test_the_view_is_drawn_while_it_runs_and_wiped_at_the_end() -> None:
    screen = Screen()
    terminal = Terminal(gauges(busy()), screen, 80)

    terminal.start()
    terminal.tick(0.0)
    terminal.stop()
    terminal.stop()

    shown = screen.getvalue()
    assert "451/1,000 rows" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert shown.endswith("\x1b[2K")


def test_colours_are_left_out_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def show() -> str:
        terminal = Terminal(gauges(busy()), screen := Screen(), 80)
        terminal.start()
        terminal.tick(0.0)
        terminal.stop()
        return screen.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert COLOUR.search(show())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(show())


def test_stdout_is_left_alone() -> None:
    terminal = Terminal(gauges(Tally()), Screen(), 80)
    before = sys.stdout

    terminal.start()
    during = sys.stdout
    terminal.stop()

    assert during is before


@pytest.mark.parametrize("make", [Terminal, Plain])
def test_a_terminal_that_is_gone_does_not_stop_the_run(
    make: Callable[[Gauges, io.StringIO], Progress],
) -> None:
    progress = make(gauges(busy()), Gone())

    progress.start()
    progress.tick(0.0)
    progress.tick(100.0)
    progress.stop()


# ── elsewhere ────────────────────────────────────────────────────────────────────────────────


def test_plain_progress_says_little() -> None:
    tally = Tally()
    tally.fold(Counted(1_000))
    stream = io.StringIO()
    plain = Plain(gauges(tally), stream)

    plain.start()
    for second in range(200):
        tally.fold(Settled(SUCCESS))
        plain.tick(float(second))
        plain.tick(second + 0.5)
    plain.stop()
    plain.stop()

    rates = "64 in flight, 1.0 rows/s, 120 tokens/s"
    assert stream.getvalue().splitlines() == [
        "batchinfer: started",
        f"batchinfer: [1m 00s] 61/1,000 rows, {rates}, $15.25, 15m 39s left",
        f"batchinfer: [2m 00s] 121/1,000 rows, {rates}, $30.25, 14m 39s left",
        f"batchinfer: [3m 00s] 181/1,000 rows, {rates}, $45.25, 13m 39s left",
        f"batchinfer: stopped after 3m 20s: 200/1,000 rows, {rates}, $50.00",
    ]


def news(plain: Plain, stream: io.StringIO, now: float) -> list[str]:
    before = len(stream.getvalue())
    plain.tick(now)
    return [line.split("] ")[1] for line in stream.getvalue()[before:].splitlines()]


def test_a_change_of_state_is_told_at_once_and_once() -> None:
    tally = Tally()
    plain = Plain(gauges(tally), stream := io.StringIO())
    assert news(plain, stream, 0.0) == []

    tally.fold(LIMITED)
    tally.fold(Held(10.0, "429\nfrom the server"))
    assert news(plain, stream, 1.0) == [
        "rate-limited by the server",
        "held for 10s: 429 from the server",
    ]
    tally.fold(Settled(FAILURE))
    assert news(plain, stream, 2.0) == ["rows begin to fail: timeout"]
    tally.fold(Settled(FAILURE))
    assert news(plain, stream, 3.0) == []


def test_a_burst_of_holds_and_limits_is_one_piece_of_news() -> None:
    tally = Tally()
    plain = Plain(gauges(tally), stream := io.StringIO())
    plain.tick(0.0)

    told = []
    for second in range(1, 50):
        tally.fold(LIMITED)
        tally.fold(Held(0.5, "429"))
        told += news(plain, stream, float(second))
    assert told == ["rate-limited by the server", "held for 0.5s: 429"]

    tally.fold(Held(5.0, "again"))
    assert "held for 5.0s: again" in news(plain, stream, 200.0)


def test_failures_of_earlier_runs_are_no_news() -> None:
    tally = Tally()
    tally.fold(Skipped("failed", ErrorClass.SCHEMA))
    plain = Plain(gauges(tally), stream := io.StringIO())

    assert news(plain, stream, 0.0) == []


def test_plain_progress_holds_no_escape() -> None:
    tally = busy()
    tally.fold(Held(9.0, "\x1b[31mred\x07"))
    plain = Plain(gauges(tally), stream := io.StringIO())
    plain.start()
    tally.fold(Held(9.0, "\x1b[31mred\x07"))
    plain.tick(0.0)
    plain.stop()

    assert all(line.isprintable() for line in stream.getvalue().splitlines())


# ── the choice ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stream", "environ", "quiet", "chosen"),
    [
        (Screen(), {"TERM": "xterm"}, False, Terminal),
        (Screen(), {"TERM": "dumb"}, False, Plain),
        (io.StringIO(), {"TERM": "xterm"}, False, Plain),
        (Screen(), {"TERM": "xterm"}, True, Quiet),
    ],
)
def test_the_view_suits_the_stream(
    stream: io.StringIO, environ: dict[str, str], quiet: bool, chosen: type[Progress]
) -> None:
    assert type(choose(gauges(Tally()), stream, environ, quiet=quiet)) is chosen


def test_quiet_prints_nothing() -> None:
    tally = busy()
    progress = choose(gauges(tally), screen := Screen(), os.environ, quiet=True)

    progress.start()
    progress.tick(0.0)
    tally.fold(Settled(structs.replace(FAILURE, row=9)))
    progress.tick(100.0)
    progress.stop()

    assert screen.getvalue() == ""
