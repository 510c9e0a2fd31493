"""Text for people: foreign text made safe to show, figures made readable, the closing summary.

Owns: how counts, times and money are written, and what the human summary says. Refuses to know:
terminals, colours, streams.
"""

import math
import shlex
from typing import Final

from batchinfer.model import TRANSIENT, ErrorClass
from batchinfer.report.summary import Latency, Outputs, Requests, Rows, Summary, Tokens

WIDTH: Final = 80
"""Columns that the summary fits into; only the user's own long paths may be wider."""

_LABEL: Final = 11
_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))
_CLASSES_NAMED: Final = 3
_MODELS_NAMED: Final = 3
_MODEL: Final = WIDTH - _LABEL - len("unknown: no price of ")


def clean(text: str, limit: int = 200) -> str:
    r"""Make text from servers, rows or file names safe to show on one line of a terminal.

    Blanks of any kind become spaces; control characters, direction overrides, lone surrogates and
    whatever else does not print become their escapes (`\x1b`); at most `limit` characters.
    """
    if len(text) <= limit and text.isprintable():
        return text
    shown = "".join(map(_visible, text[: limit + 1]))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f\x85":
        return " "
    return character.encode("unicode_escape").decode("ascii")


def count(number: int) -> str:
    """1234567 → "1,234,567"."""
    return f"{number:,}"


def duration(seconds: float) -> str:
    """Two units at most: "0.4s", "12s", "3m 05s", "1h 02m", "2d 03h"."""
    if seconds < 9.95:  # noqa: PLR2004 - what would be rounded to ten has no decimals
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    for size, unit, part, part_unit in _UNITS:
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // part:02d}{part_unit}"
    return f"{whole}s"


def money(usd: float) -> str:
    """Cents above a dollar, four decimals below, two figures of what is smaller still."""
    if usd >= 1:
        return f"${usd:,.2f}"
    if usd >= 0.0001 or usd == 0:  # noqa: PLR2004 - the least that four decimals show
        return f"${usd:.4f}"
    return f"${usd:.{min(1 - math.floor(math.log10(usd)), 12)}f}"


def rate(per_second: float, what: str) -> str:
    """Name a rate: "1.2M rows/s", "1,234 rows/s", "8.3 rows/s", "3.0 rows/min"."""
    if per_second >= 999_950:  # noqa: PLR2004 - what would be rounded to 1.0M
        return f"{per_second / 1e6:,.1f}M {what}/s"
    if per_second >= 99.95:  # noqa: PLR2004 - three figures need no decimals
        return f"{per_second:,.0f} {what}/s"
    if per_second >= 1 or per_second == 0:
        return f"{per_second:.1f} {what}/s"
    return f"{per_second * 60:.1f} {what}/min"


def milliseconds(ms: float) -> str:
    """Up to a second in ms, else as a duration."""
    if ms < 10:  # noqa: PLR2004 - one figure needs a decimal
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"  # noqa: PLR2004 - ms in a second


def summary_lines(summary: Summary) -> list[str]:
    """Write the human summary, a label and its figures a line, within WIDTH columns."""
    return [
        *_labelled("ended", [_ended(summary)]),
        *_labelled("rows", _row_parts(summary.rows)),
        *_labelled("requests", _request_parts(summary.requests, summary.possibly_rebilled)),
        *_labelled("tokens", _token_parts(summary.tokens, summary.unknown_usage)),
        *_labelled("cost", _cost_parts(summary)),
        *_labelled("latency", _latency_parts(summary.latency_ms)),
        *_failure_lines(summary),
        *_path_lines(summary.output),
    ]


def _ended(summary: Summary) -> str:
    spent = duration(summary.elapsed_s)
    return f"{clean(summary.ended)} after {spent}, {rate(summary.rows_per_s, 'rows')}"


def _labelled(label: str, parts: list[str]) -> list[str]:
    """Lay parts out after a label, on as many lines as WIDTH asks for."""
    lines: list[str] = []
    line = ""
    for part in parts:
        longer = f"{line} · {part}" if line else part
        if line and _LABEL + len(longer) > WIDTH:
            lines.append(line)
            longer = part
        line = longer
    lines += [line] if line else []
    return [f"{label if not i else '':<{_LABEL}}{line}" for i, line in enumerate(lines)]


def _present(*figures: tuple[int, str]) -> list[str]:
    """Name the figures that are not zero."""
    return [f"{count(number)} {name}" for number, name in figures if number]


def _row_parts(rows: Rows) -> list[str]:
    whole = [] if rows.total is None else [f"{count(rows.total)} in all"]
    failed = f"{count(rows.failed)} failed"
    invalid = f" ({count(rows.invalid)} invalid)" if rows.invalid else ""
    pending = _present((rows.pending or 0, "pending"))
    return [*whole, f"{count(rows.succeeded)} succeeded", failed + invalid, *pending]


def _request_parts(requests: Requests, rebilled: int) -> list[str]:
    return [
        f"{count(requests.sent)} sent",
        *_present(
            (requests.retried, "retried"),
            (requests.rate_limited, "rate-limited"),
            (requests.ambiguous, "of unknown end"),
            (rebilled, "possibly billed twice"),
        ),
    ]


def _token_parts(tokens: Tokens, unknown: int) -> list[str]:
    cached = f" ({count(tokens.cached)} cached)" if tokens.cached else ""
    reasoning = f" ({count(tokens.reasoning)} reasoning)" if tokens.reasoning else ""
    return [
        f"{count(tokens.input)} in{cached}",
        f"{count(tokens.output)} out{reasoning}",
        *_present((tokens.wasted, "wasted"), (unknown, "answers without a count")),
    ]


def _cost_parts(summary: Summary) -> list[str]:
    if summary.cost_usd is not None:
        return [money(summary.cost_usd)]
    if not summary.unpriced_models:
        return ["unknown: the server did not count all tokens"]
    names = [clean(name, _MODEL) for name in summary.unpriced_models[:_MODELS_NAMED]]
    more = ["…"] if len(summary.unpriced_models) > _MODELS_NAMED else []
    return [f"unknown: no price of {names[0]}", *names[1:], *more]


def _latency_parts(latency: Latency) -> list[str]:
    figures = {"mean": latency.mean, "p50": latency.p50, "p95": latency.p95, "p99": latency.p99}
    return [f"{name} {milliseconds(ms)}" for name, ms in figures.items() if ms is not None]


def _failure_lines(summary: Summary) -> list[str]:
    figures = [(clean(name, 24), count(number)) for name, number in summary.failures.items()]
    wide = max((len(number) for _, number in figures), default=0)
    lines = [
        f"{'failed' if not i else '':<{_LABEL}}{number:>{wide}} {name}"
        for i, (name, number) in enumerate(figures)
    ]
    return lines + [f"{'again':<{_LABEL}}{hint}" for hint in _hints(summary)]


def _hints(summary: Summary) -> list[str]:
    """Say how to get the failed rows done: as they are, when asked for, or after an edit."""
    failed = [ErrorClass(name) for name in summary.failures]
    asked = [e for e in failed if e not in TRANSIENT and e is not ErrorClass.INVALID_INPUT]
    hints = []
    if any(error in TRANSIENT for error in failed):
        hints.append(_resume(summary, ""))
    if asked:
        hints.append(_resume(summary, f" --retry-failed={','.join(asked[:_CLASSES_NAMED])}"))
    if ErrorClass.INVALID_INPUT in failed:
        hints.append("mend the invalid lines of the input, then run again")
    return hints


def _resume(summary: Summary, option: str) -> str:
    """Name the job, where there is room: by its prefix if that is its own, else by the input."""
    bare = f"batchinfer resume{option}"
    name, flag = (summary.prefix, "--output ") if summary.prefix else (summary.input, "")
    if not name or not name.isprintable():
        return bare
    named = f"batchinfer resume {flag}{shlex.quote(name)}{option}"
    return named if _LABEL + len(named) <= WIDTH else bare


def _path_lines(paths: Outputs) -> list[str]:
    named = {"results": paths.results, "succeeded": paths.success, "failures": paths.failure}
    return [f"{label:<{_LABEL}}{clean(path, 4096)}" for label, path in named.items() if path]
