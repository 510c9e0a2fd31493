"""How many requests may be in flight at one endpoint (`concurrency = "auto"`).

Owns: the measuring windows, the ramp from a limit to a larger one, bringing together what goodput,
refusals and the server's own figures say. Refuses to know: sockets, clocks (`now` is monotonic
seconds, `seconds` a request's time in flight), why a row is sent.
"""

import math
from typing import Final, assert_never

from msgspec import Struct

from batchinfer.flow.climb import WORTH, Bounds, Climb, Found, Try
from batchinfer.flow.goodput import Meter
from batchinfer.flow.refusals import Refusals
from batchinfer.flow.serverload import Load, ServerLoad
from batchinfer.flow.watch import Again, Watch

USED: Final = 0.8
"""Share of the limit that must be in flight, else a window shows the demand and not the server."""
RAMP: Final = 8
"""Steps up for each request that ends. A burst of twice the requests would come back as a burst,
and a server that refuses would refuse half of it at once."""
HEADROOM: Final = 1.06
"""A little more in flight than what was found enough: what is found errs to both sides."""
QUIET: Final = 2.0
"""Seconds that a window lasts at least while the limit is held; a climb has no time for that."""
SHORTEST: Final = 0.01
"""Seconds below which a window shows little but the granularity of the clock."""
LATER: Final = 1.2
"""Answers at the next look at a window, a multiple of those at the last."""


class Decision(Struct, frozen=True):
    """The limit changed: when (monotonic seconds), from, to, why (safe to show)."""

    at: float
    old: int
    new: int
    reason: str


class Controller:
    """Tell it what happens; `limit` is how many may be in flight, and may change with any call."""

    __slots__ = (
        "_ended",
        "_least",
        "_load",
        "_look_at",
        "_meter",
        "_opened",
        "_proven",
        "_refusals",
        "_skip",
        "_stage",
        "_target",
        "limit",
    )

    def __init__(self, now: float, *, start: int = 8, most: int = 1024, least: int = 1) -> None:
        self.limit = self._target = max(least, min(start, most))
        self._least = least
        self._stage: Climb | Watch = Climb(self.limit, least)
        self._refusals = Refusals(now, most)
        self._load = ServerLoad(least, most)
        self._meter = Meter()
        self._proven = least
        self._ended = 0
        self._skip = 1
        self._open(now)

    def started(self, in_flight: int) -> None:
        """Count a request that leaves, itself among those in flight."""
        meter = self._meter
        meter.starts += 1
        meter.in_flight += in_flight

    def finished(self, now: float, seconds: float, tokens: int) -> Decision | None:
        """Count a request that ended well; `tokens` that it took the server (0: unknown)."""
        self._ended += 1
        if self._refusals.row:
            limit = self._refusals.over()
            if limit is not None:
                return self._move(now, limit, "the server is back: as before")
        if self._skip:
            self._ramp(now)
            return None
        meter = self._meter
        meter.answers += 1
        meter.seconds += seconds
        meter.squares += seconds * seconds
        if tokens:
            meter.known += 1
            meter.tokens += tokens
            meter.tokens_squares += tokens * tokens
            meter.seconds_tokens += seconds * tokens
        return self._look(now) if meter.answers >= self._look_at else None

    def hurt(self, now: float, seconds: float) -> None:
        """Count a request that the server failed: its time yields nothing, and growth waits."""
        self._meter.waste(seconds)
        self._refusals.failed(now)

    def refused(self, now: float, seconds: float, in_flight: int) -> Decision | None:
        """Count a refusal (429, 503, overload) or a read timeout; `in_flight` is without it."""
        self._meter.waste(seconds)
        if not self._refusals.weigh(now, self._ended):
            return None
        proven = min(self._proven, self._target)
        limit = self._refusals.cut(now, now - seconds, in_flight, self.limit, proven)
        if limit is None:
            return None
        return self._move(now, max(self._least, limit), "the server refuses requests: down")

    def observed(self, now: float, load: Load, in_flight: int) -> Decision | None:
        """Take in the server's own figures, while `in_flight` of the requests are ours."""
        self._load.observe(now, load, in_flight)
        bounds, text = self._bounds(now), f"{load.running} run and {load.waiting} wait there"
        if self._target > self._load.bounds(now).roof * WORTH:
            return self._move(now, self._load.bounds(now).roof, f"{text}: down")
        floor = min(bounds.floor, bounds.roof)
        return self._move(now, floor, f"{text}: up") if floor > self._target * WORTH else None

    def _ramp(self, now: float) -> None:
        if self.limit < self._target:
            self.limit = min(self._target, self.limit + RAMP)
            return
        self._skip -= 1
        if not self._skip:
            self._open(now)

    def _open(self, now: float) -> None:
        self._meter.reset()
        self._look_at = self._stage.window.first
        self._opened = now

    def _look(self, now: float) -> Decision | None:
        meter, stage, span = self._meter, self._stage, now - self._opened
        window = stage.window
        self._look_at = int(meter.answers * LATER) + 2
        held = isinstance(stage, Watch) and not stage.probing
        if span < (QUIET if held else SHORTEST):
            return None
        waits = isinstance(stage, Climb) and self._refusals.frozen(now)
        if waits or meter.depth < USED * self.limit:
            self._open(now)
            self._look_at = window.enough
            return None
        self._proven = self._target
        seen = meter.estimate(self._target, None if window.quick else span)
        full = meter.answers >= window.enough
        final = full and (seen.error <= window.error or meter.answers >= window.patience)
        bounds = self._bounds(now)
        move: Try | Found | Again | None
        if isinstance(stage, Watch):
            move = stage.judge(now, seen, bounds, final=final)
        else:
            move = stage.judge(seen, bounds.roof, final=final)
        if move is None and final:
            self._open(now)
        return None if move is None else self._apply(now, move, bounds.roof)

    def _bounds(self, now: float) -> Bounds:
        load = self._load.bounds(now)
        roof = min(load.roof, self._refusals.ceiling(now))
        return Bounds(load.floor, min(roof, self._target) if self._refusals.frozen(now) else roof)

    def _apply(self, now: float, move: Try | Found | Again, roof: int) -> Decision | None:
        match move:
            case Try(limit, reason):
                return self._go(now, limit, reason)
            case Found(best, reason):
                limit = max(best.limit, min(roof, math.ceil(best.limit * HEADROOM)))
                self._stage = Watch(now, limit, self._least, best)
                return self._go(now, limit, f"{reason}: hold {limit}")
            case Again(climb, reason):
                self._stage = climb
                return self._go(now, climb.limit, reason)
            case _:
                assert_never(move)

    def _move(self, now: float, limit: int, reason: str) -> Decision | None:
        """Change the limit for a reason that the search does not know of."""
        if isinstance(self._stage, Watch) or not self._stage.moved(limit):
            self._stage = Watch(now, limit, self._least)
        return self._go(now, limit, reason)

    def _go(self, now: float, limit: int, reason: str) -> Decision | None:
        """Let what was sent under the old limit end before the new one is measured.

        After a decrease that takes as many answers as were in flight: measured sooner, the new
        limit would be credited with the old one's queue.
        """
        old, self._target = self._target, limit
        self.limit = min(limit, self.limit)
        if limit == old == self.limit:
            self._open(now)
            return None
        self._skip = max(old, limit)
        return Decision(now, old, limit, reason)
