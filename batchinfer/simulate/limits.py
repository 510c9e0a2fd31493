"""The provider's rate limits: exact sliding windows and the headers that tell of them.

Owns: who is admitted, how long the others must wait, OpenAI's header names and duration encoding.
Refuses to know: the clock (`now` is an argument, in seconds of any monotonic clock) and HTTP.
A refused request uses up nothing.
"""

import math
from bisect import bisect_left
from typing import Final

from msgspec import Struct

SPAN: Final = 60.0
_SECOND: Final = 1000  # milliseconds
_MINUTE: Final = 60 * _SECOND
_COMPACT: Final = 4096


class Window:
    """A log of what was admitted in the last `SPAN` seconds, never more than `limit`."""

    __slots__ = ("_expiries", "_head", "_taken", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._expiries: list[float] = []
        self._taken: list[int] = []  # running totals, so that a wait is found by bisection
        self._head = 0

    def used(self, now: float) -> int:
        """Forget what has expired; returns what the window holds at `now`."""
        expiries, head = self._expiries, self._head
        while head < len(expiries) and expiries[head] <= now:
            head += 1
        self._head = head
        return self._total() - self._before(head)

    def wait(self, now: float, amount: int) -> float:
        """Seconds until `amount` would fit: 0 where it fits now, inf where it never will."""
        excess = self.used(now) + amount - self.limit
        if excess <= 0:
            return 0.0
        if amount > self.limit:
            return math.inf
        frees = self._before(self._head) + excess
        return self._expiries[bisect_left(self._taken, frees, lo=self._head)] - now

    def take(self, now: float, amount: int) -> None:
        """Enter an admitted request; `now` must not run backwards."""
        total = self._total() + amount
        if self._head > _COMPACT and self._head > len(self._expiries) // 2:
            self._compact()
        self._expiries.append(now + SPAN)
        self._taken.append(total)

    def reset(self, now: float) -> float:
        """Seconds until the window is empty again."""
        return max(self._expiries[-1] - now, 0.0) if self._expiries else 0.0

    def _total(self) -> int:
        return self._taken[-1] if self._taken else 0

    def _before(self, index: int) -> int:
        return self._taken[index - 1] if index else 0

    def _compact(self) -> None:
        # One expired entry stays: its running total is what `_before` subtracts.
        keep = self._head - 1
        del self._expiries[:keep], self._taken[:keep]
        self._head = 1


class Excess(Struct, frozen=True):
    """Why a request was refused. `unit`: requests or tokens; `wait` in seconds, inf for never."""

    unit: str
    limit: int
    used: int
    requested: int
    wait: float


class RateLimits:
    """The limits on requests and tokens together; 0 leaves one out."""

    __slots__ = ("_windows",)

    def __init__(self, rpm: float, tpm: float) -> None:
        self._windows = [
            (unit, Window(int(limit)))
            for unit, limit in (("requests", rpm), ("tokens", tpm))
            if limit
        ]

    def admit(self, now: float, tokens: int) -> Excess | None:
        """Admit a request of so many tokens, or say what it exceeds (the longest wait)."""
        if not self._windows:
            return None
        amounts = {"requests": 1, "tokens": tokens}
        refusals = [
            Excess(unit, window.limit, window.used(now), amounts[unit], wait)
            for unit, window in self._windows
            if (wait := window.wait(now, amounts[unit]))
        ]
        if refusals:
            return max(refusals, key=lambda excess: excess.wait)
        for unit, window in self._windows:
            window.take(now, amounts[unit])
        return None

    def headers(self, now: float) -> bytes:
        """Header lines that tell the state of each limit; empty where there is none."""
        return b"".join(
            (
                f"x-ratelimit-limit-{unit}: {window.limit}\r\n"
                f"x-ratelimit-remaining-{unit}: {window.limit - window.used(now)}\r\n"
                f"x-ratelimit-reset-{unit}: {duration(window.reset(now))}\r\n"
            ).encode()
            for unit, window in self._windows
        )


def retry_headers(wait: float) -> bytes:
    """Header lines that ask for a pause of `wait` seconds, never for a shorter one."""
    if not math.isfinite(wait):
        return b""
    return (
        f"retry-after: {math.ceil(wait)}\r\nretry-after-ms: {math.ceil(wait * 1000)}\r\n".encode()
    )


def duration(seconds: float) -> str:
    """Encode as OpenAI does (Go's notation): `0s`, `12ms`, `7.66s`, `1m0s`; rounded up to ms."""
    milliseconds = math.ceil(seconds * _SECOND)
    if 0 < milliseconds < _SECOND:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, _MINUTE)
    return f"{minutes}m{rest / _SECOND:g}s" if minutes else f"{rest / _SECOND:g}s"
