"""How long a server asks to wait.

Owns: every encoding of a wait or a reset in headers and bodies, in seconds from now. Refuses to
know: clocks (`now_epoch`, Unix seconds, is an argument) and what is done with a wait. Zero,
negative, nonsensical and longer than a day all mean "the server did not say": None.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from batchinfer.providers.errorbody import ServerError

LONGEST: Final = 86_400.0
"""Seconds; a longer wait is not believed."""

_EPOCH: Final = 1e9
_LONGEST_TEXT: Final = 64
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_STEP: Final = r"(?:\d+(?:\.\d*)?|\.\d+)\s*(?:ms|us|µs|μs|ns|h|m|s)"
_STEPS: Final = re.compile(rf"(?:{_STEP}\s*)+", re.ASCII)
_ONE_STEP: Final = re.compile(r"([\d.]+)\s*([a-zµμ]+)", re.ASCII)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)
_HTTP_DATE: Final = re.compile(
    r"[A-Z][a-z]{2,8}, \d{1,2}[ -][A-Z][a-z]{2}[ -](?:\d{4}|\d\d) \d\d:\d\d:\d\d"
    r" (?:GMT|UTC|[+-]\d{4})"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
    re.ASCII,
)
_SECONDS: Final = {
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,  # the micro sign
    "μs": 1e-6,  # the Greek letter
    "ns": 1e-9,
}
_WORDS: Final = {"hour": "h", "minute": "m", "min": "m", "second": "s", "sec": "s"}
_SAID: Final = re.compile(
    r"\b(?:try again|retry)\s+(?:in|after)\s+"
    rf"(?:((?:{_STEP})+)\b|(\d+(?:\.\d+)?)\s*(milliseconds?|hours?|minutes?|mins?|seconds?|secs?)\b)",
    re.IGNORECASE | re.ASCII,
)


def wait_hint(headers: Mapping[str, str], error: ServerError, now_epoch: float) -> float | None:
    """Return the wait the server asks for, or None.

    The order is that of the official clients: `retry-after-ms`, `retry-after` (a number, or a date
    relative to the response's own `date`), then what the body says.
    """
    after = _millis(headers.get("retry-after-ms"))
    if after is None and (text := headers.get("retry-after")):
        after = duration(text, _served_at(headers, now_epoch))
    if after is None and error.retry_delay:
        after = duration(error.retry_delay)
    return after if after is not None else said(error.message)


def duration(text: str, now_epoch: float | None = None) -> float | None:
    """Return the seconds that `text` stands for.

    Known: `37`, `0.5`, `6m0s`, `172.8ms`, and, where `now_epoch` is given, the absolute forms:
    Unix seconds, RFC 3339, HTTP-date.
    """
    text = text.strip()
    if not text or len(text) > _LONGEST_TEXT:
        return None
    if _NUMBER.fullmatch(text):
        number = float(text)
        return _sane(number) if number < _EPOCH else _until(number, now_epoch)
    if _STEPS.fullmatch(text):
        return _sane(_sum(text))
    return _until(_moment(text), now_epoch)


def said(message: str) -> float | None:
    """Return the seconds in prose such as "Please try again in 1.5s", "retry after 7 seconds"."""
    if (match := _SAID.search(message)) is None:
        return None
    steps, number, word = match.groups()
    if steps:
        return _sane(_sum(steps.lower()))
    word = word.lower().removesuffix("s")
    return _sane(float(number) * _SECONDS[_WORDS.get(word, "ms")])


def _sum(steps: str) -> float:
    return sum(float(number) * _SECONDS[unit] for number, unit in _ONE_STEP.findall(steps))


def _millis(text: str | None) -> float | None:
    text = (text or "").strip()
    if len(text) > _LONGEST_TEXT or not _NUMBER.fullmatch(text):
        return None
    return _sane(float(text) / 1000)


def _served_at(headers: Mapping[str, str], now_epoch: float) -> float:
    """When the server wrote the response, by its own clock: ours may differ."""
    served = _moment(headers.get("date", "").strip()[:_LONGEST_TEXT])
    return now_epoch if served is None else served


def _moment(text: str) -> float | None:
    try:
        if _HTTP_DATE.fullmatch(text):
            moment = parsedate_to_datetime(text)
        elif _ISO.match(text):
            moment = datetime.fromisoformat(text)
        else:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _until(moment: float | None, now_epoch: float | None) -> float | None:
    return None if moment is None or now_epoch is None else _sane(moment - now_epoch)


def _sane(seconds: float) -> float | None:
    return seconds if 0 < seconds <= LONGEST else None
