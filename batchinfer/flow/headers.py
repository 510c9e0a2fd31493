"""What a server tells of its rate limits in the headers of a reply.

Owns: the names and habits of the providers' rate-limit headers, and which of them make no sense.
Refuses to know: clocks, what is done about a limit, and how a duration is written: the reader of
durations is an argument (`Seconds`; that of the providers' waits knows all their encodings).
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from batchinfer.flow.ledger60 import DAY, MINUTE


class Unit(StrEnum):
    """What a limit counts; `tokens` are input and output together."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT = "input"
    OUTPUT = "output"


class Quota(Struct, frozen=True):
    """One limit as told; None where the server did not say.

    `window` is the seconds that `limit` is for. `reset`: seconds until all of it is free again.
    """

    unit: Unit
    window: float | None
    limit: float | None
    remaining: float | None
    reset: float | None

    @property
    def per_minute(self) -> float | None:
        """The limit of a minute; None where the window is unknown, or longer than that."""
        if self.limit is None or self.window is None or self.window > MINUTE:
            return None
        return self.limit * MINUTE / self.window


Told = tuple[Quota, ...]
Seconds = Callable[[str, float], float | None]
"""A duration or a moment as text, and Unix seconds now → seconds from now; None: no sense."""

HOUR: Final = 3600.0
BY_RESET: Final = 0.0
"""Stands for a window that the name does not tell: a minute with most, a day with some."""
UNKNOWN: Final = -1.0

_R, _T, _I, _O = Unit.REQUESTS, Unit.TOKENS, Unit.INPUT, Unit.OUTPUT

FAMILIES: Final[tuple[tuple[str, Unit, float], ...]] = (
    # OpenAI, Azure, xAI, GitHub Models, and Groq, whose `requests` are those of a day
    ("x-ratelimit-{}-requests", _R, BY_RESET),
    ("x-ratelimit-{}-tokens", _T, BY_RESET),
    ("x-ratelimit-{}-project-tokens", _T, BY_RESET),
    ("x-ratelimit-{}-tokens_usage_based", _T, BY_RESET),
    # Anthropic; its `tokens` repeat whichever limit is the tightest, and are left out
    ("anthropic-ratelimit-requests-{}", _R, MINUTE),
    ("anthropic-ratelimit-input-tokens-{}", _I, MINUTE),
    ("anthropic-ratelimit-output-tokens-{}", _O, MINUTE),
    # Cerebras, and Mistral's tokens
    ("x-ratelimit-{}-requests-minute", _R, MINUTE),
    ("x-ratelimit-{}-requests-hour", _R, HOUR),
    ("x-ratelimit-{}-requests-day", _R, DAY),
    ("x-ratelimit-{}-tokens-minute", _T, MINUTE),
    ("x-ratelimit-{}-tokens-hour", _T, HOUR),
    ("x-ratelimit-{}-tokens-day", _T, DAY),
    # Mistral
    ("x-ratelimit-{}-req-minute", _R, MINUTE),
    ("x-ratelimit-{}-req-10-second", _R, 10.0),
    ("x-ratelimitbysize-{}-minute", _T, MINUTE),
    # Fireworks: of what time is not said
    ("x-ratelimit-{}-tokens-prompt", _I, UNKNOWN),
    ("x-ratelimit-{}-tokens-generated", _O, UNKNOWN),
)
"""A name with a place for limit, remaining or reset; what it counts; seconds of its window."""

TOGETHER: Final = "x-tokenlimit-limit"
PER_SECOND: Final[tuple[tuple[str, Unit, float], ...]] = (
    ("x-ratelimit-{}", _R, 1.0),
    ("x-tokenlimit-{}", _T, 1.0),
)
"""Names that mean a second where the reply has the header TOGETHER, and anything elsewhere."""

SLACK: Final = 1.02
"""A reset that is rounded up may lie this much beyond its window."""
DAY_LIKE: Final = 0.2
"""How far what a reset comes to may be from a day: some are rounded to whole seconds."""

_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)


def learn(headers: Mapping[str, str], seconds: Seconds, now_epoch: float) -> Told:
    """Return the limits that a reply's headers (keyed in lower case) tell of.

    A limit of zero or less, a negative rest and a rest beyond the limit are nonsense: left out.
    """
    families = FAMILIES + PER_SECOND if TOGETHER in headers else FAMILIES
    found = (_quota(headers, family, seconds, now_epoch) for family in families)
    return tuple(quota for quota in found if quota is not None)


def _quota(
    headers: Mapping[str, str],
    family: tuple[str, Unit, float],
    seconds: Seconds,
    now_epoch: float,
) -> Quota | None:
    name, unit, window = family
    limit = _number(headers.get(name.format("limit")))
    remaining = _number(headers.get(name.format("remaining")))
    if limit is None and remaining is None:
        return None
    if limit is not None and (limit <= 0 or (remaining or 0) > limit):
        return None
    reset = _reset(headers, name, seconds, now_epoch)
    if window == BY_RESET:
        period = _number(headers.get(name.format("renewalperiod")))
        told = period or _window(limit, remaining, reset)
    else:
        told = None if window == UNKNOWN else window
    return Quota(unit, told, limit, remaining, reset)


def _window(limit: float | None, remaining: float | None, reset: float | None) -> float | None:
    """Tell the window by the reset, which is how long what was used takes to come back.

    Without a reset nothing is known. A reset of more than a minute, or one at whose pace the whole
    limit would take a day, is not a minute's.
    """
    if reset is None:
        return None
    used = 0.0 if limit is None or remaining is None else limit - remaining
    whole = reset * limit / used if limit and used else 0.0
    if abs(whole - DAY) <= DAY_LIKE * DAY:
        return DAY
    return MINUTE if reset <= MINUTE * SLACK else None


def _reset(
    headers: Mapping[str, str], name: str, seconds: Seconds, now_epoch: float
) -> float | None:
    text = headers.get(name.format("reset"))
    if text is None:  # Azure has been seen to misspell it
        text = headers.get(name.format("reset").replace("ratelimit", "rate-limit"))
    if text is None:
        return None
    return seconds(text, now_epoch) or (0.0 if _is_zero(text) else None)


def _is_zero(text: str) -> bool:
    """Whether it says that nothing was used, as `0`, `0s` and `0m0.0s` do."""
    return bool(re.fullmatch(r"(?:0+(?:\.0*)?(?:ms|[hms])?)+", text.strip()))


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    return float(text) if _NUMBER.fullmatch(text) else None
