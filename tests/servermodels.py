"""Inference servers in virtual time, and the closed loop of a batch client before them.

No sleep, no clock, no socket: an event at a time, seeded. A server shares its speed among the
requests that run (processor sharing, as continuous batching does), runs at most `slots` of them,
keeps the others in a first-come queue and refuses what exceeds `cap` at once.
"""

import math
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, Protocol

Speed = Callable[[int], float]
"""How much work (seconds of a lone request) all `n` running requests get done in a second."""

VLLM: Final = (
    (1, 400.0),
    (8, 2600.0),
    (16, 4900.0),
    (32, 5400.0),
    (64, 8300.0),
    (128, 11600.0),
    (256, 15600.0),
    (512, 18700.0),
    (1024, 18800.0),
)
"""Requests running → output tokens a second: the published table from 128 on, before it a
rise with the local plateau (16 → 32: +10 %) that real tables show."""


class Steerer(Protocol):
    """What decides how many requests may be in flight."""

    @property
    def limit(self) -> int: ...

    def started(self, in_flight: int) -> None: ...

    def finished(self, now: float, seconds: float, tokens: int) -> object: ...

    def refused(self, now: float, seconds: float, in_flight: int) -> object: ...


class Fixed:
    """A constant number of requests in flight."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def started(self, in_flight: int) -> None:
        """Nothing to learn."""

    def finished(self, now: float, seconds: float, tokens: int) -> None:
        """Nothing to learn."""

    def refused(self, now: float, seconds: float, in_flight: int) -> None:
        """Nothing to learn."""


def knee(capacity: int) -> Speed:
    """Linear up to `capacity` requests, flat beyond."""
    return lambda n: float(min(n, capacity))


def collapse(capacity: int) -> Speed:
    """Linear, flat from `capacity` on, and thrashing beyond twice that."""
    return lambda n: min(n, capacity) * min(1.0, 2 * capacity / n)


def concave(table: Sequence[tuple[int, float]], scale: float) -> Speed:
    """Interpolate a published table between its rows; `scale` tokens are a second of work."""
    sizes = [size for size, _ in table]
    points = [0.0] + [
        speed + (n - size) / (size2 - size) * (speed2 - speed)
        for (size, speed), (size2, speed2) in pairwise(table)
        for n in range(size, size2)
    ]
    points.append(table[-1][1])
    return lambda n: points[min(n, sizes[-1])] / scale


@dataclass(slots=True)
class Server:
    """`speed` may be swapped while it runs: requests that run go on at the new one."""

    speed: Speed
    slots: int = 1 << 30
    cap: int = 1 << 30
    now: float = 0.0
    _done: float = 0.0
    _running: list[tuple[float, float, float]] = field(default_factory=list)
    _queue: deque[tuple[float, float]] = field(default_factory=deque)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enter(self, now: float, work: float) -> bool:
        """Take a request in; False: refused."""
        self._advance(now)
        if len(self._running) + len(self._queue) >= self.cap:
            return False
        if len(self._running) < self.slots:
            heappush(self._running, (self._done + work, now, work))
        else:
            self._queue.append((now, work))
        return True

    def next_end(self) -> float:
        """When the next request ends if nothing else happens."""
        running = self._running
        if not running:
            return math.inf
        n = len(running)
        return self.now + max(0.0, running[0][0] - self._done) * n / self.speed(n)

    def end(self, now: float) -> tuple[float, float]:
        """Let the next request end at `now`: (when it came, its work)."""
        self._advance(now)
        _, came, work = heappop(self._running)
        while self._queue and len(self._running) < self.slots:
            came2, work2 = self._queue.popleft()
            heappush(self._running, (self._done + work2, came2, work2))
        return came, work

    def _advance(self, now: float) -> None:
        n = len(self._running)
        if n:
            self._done += (now - self.now) * self.speed(n) / n
        self.now = now


@dataclass(slots=True)
class Load:
    """The job before the server: mean work in seconds, its spread, the network, who knows tokens.

    `sigma`: of the log-normal work of a row. `tokens`: in a mean answer; 0 when usage is unknown.
    `demand`: rows a second that another limit (a pacer) lets through. `pause`: seconds that all
    workers rest after a refusal. `unlucky`: share of requests refused whatever the load.
    """

    work: float = 1.0
    sigma: float = 0.25
    network: float = 0.02
    tokens: int = 0
    demand: float = math.inf
    pause: float = 0.4
    unlucky: float = 0.0


@dataclass(slots=True)
class Run:
    """What happened: per completion its time and latency; refusals; (time, limit) at changes."""

    at: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    refusals: int = 0
    limits: list[tuple[float, int]] = field(default_factory=list)

    def goodput(self, since: float = 0.0, until: float = math.inf) -> float:
        """Rows a second in a span of time."""
        first = bisect_right(self.at, since)
        last = bisect_right(self.at, until)
        return (last - first) / (min(until, self.at[-1]) - since)

    def p99(self, since: float = 0.0) -> float:
        """The 99th percentile of the latencies (seconds) of what ended after `since`."""
        held = sorted(self.latency[bisect_right(self.at, since) :])
        return held[int(len(held) * 0.99)]

    def limit_at(self, time: float) -> int:
        """The limit that was in force."""
        return self.limits[bisect_right(self.limits, (time, 1 << 40)) - 1][1]

    def reaches(self, goodput: float, rows: int = 50) -> float:
        """When `rows` completions in a row first came at that goodput (seconds)."""
        pairs = zip(self.at, self.at[rows:], strict=False)
        return next((late for early, late in pairs if rows / (late - early) >= goodput), math.inf)


Event = tuple[float, Callable[[float, int], None]]
"""(seconds, what happens then, called with the time and the requests in flight), in order."""


class Client:
    """Keeps a server as busy as `steer` allows; `run` is what came of it."""

    def __init__(self, server: Server, steer: Steerer, load: Load, rng: random.Random) -> None:
        self.run = Run()
        self._server = server
        self._steer = steer
        self._load = load
        self._rng = rng
        self._mu = math.log(load.work) - load.sigma**2 / 2
        self._gap = 1 / load.demand
        self._in_flight = 0
        self._left = 0
        self._held = self._earliest = 0.0
        self._answers: deque[tuple[float, float, float]] = deque()
        self._refused: deque[tuple[float, float]] = deque()

    def work(self, rows: int, until: float, events: Iterator[Event]) -> Run:
        """Go from one happening to the next until the rows are done, or the time is over."""
        self._left, now = rows, 0.0
        event = next(events, None)
        while self._left or self._in_flight:
            self._send(now)
            end = self._server.next_end()
            answer = self._answers[0][0] if self._answers else math.inf
            refusal = self._refused[0][0] if self._refused else math.inf
            other = event[0] if event else math.inf
            now = min(end, answer, refusal, other, self._may_send())
            if now > until:
                break
            if now == end:
                came, work = self._server.end(now)
                self._answers.append((now + self._load.network, came, work))
            elif now == answer:
                self._finish(now)
            elif now == refusal:
                self._refuse(now)
            elif event and now == other:
                event[1](now, self._in_flight)
                event = next(events, None)
        return self.run

    def _may_send(self) -> float:
        waits = self._left and self._in_flight < self._steer.limit
        return max(self._held, self._earliest) if waits else math.inf

    def _send(self, now: float) -> None:
        limit, load = self._steer.limit, self._load
        if not self.run.limits or limit != self.run.limits[-1][1]:
            self.run.limits.append((now, limit))
        while self._in_flight < limit and self._may_send() <= now:
            self._in_flight += 1
            self._left -= 1
            self._earliest = max(now, self._earliest) + self._gap if self._gap else 0.0
            self._steer.started(self._in_flight)
            work = math.exp(self._rng.gauss(self._mu, load.sigma))
            unlucky = load.unlucky and self._rng.random() < load.unlucky
            if unlucky or not self._server.enter(now, work):
                self._refused.append((now + load.network, now))

    def _finish(self, now: float) -> None:
        _, came, work = self._answers.popleft()
        self._in_flight -= 1
        tokens = math.ceil(work / self._load.work * self._load.tokens)
        self._steer.finished(now, now - came, tokens)
        self.run.at.append(now)
        self.run.latency.append(now - came)

    def _refuse(self, now: float) -> None:
        _, came = self._refused.popleft()
        self._in_flight -= 1
        self._left += 1
        self.run.refusals += 1
        if came >= self._held - self._load.pause:
            self._held = now + self._load.pause * self._rng.uniform(0.5, 1.0)
        self._steer.refused(now, now - came, self._in_flight)


def drive(
    server: Server,
    steer: Steerer,
    load: Load,
    rng: random.Random,
    *,
    rows: int = 1 << 60,
    until: float = math.inf,
    events: Iterator[Event] | None = None,
) -> Run:
    """Let a client send `rows` rows, or as many as come by the time `until`."""
    return Client(server, steer, load, rng).work(rows, until, events or iter(()))
