"""Providers' rate limits in virtual time, and backlogged clients before them.

No sleep, no clock, no socket: an event at a time, seeded. A limit is a fixed window, slices, a
sliding log or a token bucket; a server has one for requests, one for tokens, or both.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from batchinfer.config.schema import Config
from batchinfer.flow.headers import learn
from batchinfer.flow.pacer import Pacer
from batchinfer.flow.retry import RetryPolicy
from batchinfer.providers.waits import duration

SETTLING: Final = 60.0
"""Seconds after the start that do not count."""

Make = Callable[[float, random.Random], "Enforced"]
"""A limit of so many units a minute."""


class Enforced(Protocol):
    """How a provider counts."""

    def wait(self, now: float, amount: float) -> float:
        """Seconds until it would fit: 0 where it fits now."""

    def take(self, now: float, amount: float) -> None: ...

    def give_back(self, now: float, at: float, amount: float) -> None: ...

    def left(self, now: float) -> tuple[float, float]:
        """What is left, and the seconds until all of it is free."""


class Fixed:
    """`most` units in each stretch of `span` seconds; the stretches begin at `phase`."""

    def __init__(self, most: float, span: float, phase: float) -> None:
        self.most, self.span, self.phase = most, span, phase
        self._index, self._used = -1, 0.0

    def _roll(self, now: float) -> None:
        index = math.floor((now - self.phase) / self.span)
        if index != self._index:
            self._index, self._used = index, 0.0

    def wait(self, now: float, amount: float) -> float:
        self._roll(now)
        if self._used + amount <= self.most:
            return 0.0
        return (self._index + 1) * self.span + self.phase - now

    def take(self, now: float, amount: float) -> None:
        self._roll(now)
        self._used += amount

    def give_back(self, now: float, at: float, amount: float) -> None:
        self._roll(now)
        if math.floor((at - self.phase) / self.span) == self._index:
            self._used -= amount

    def left(self, now: float) -> tuple[float, float]:
        self._roll(now)
        return max(0.0, self.most - self._used), (self._index + 1) * self.span + self.phase - now


class Sliding:
    """`most` units in any `span` seconds, by a log of each."""

    def __init__(self, most: float, span: float = 60.0) -> None:
        self.most, self.span = most, span
        self._log: deque[list[float]] = deque()
        self._used = 0.0

    def _roll(self, now: float) -> None:
        while self._log and self._log[0][0] <= now - self.span:
            self._used -= self._log.popleft()[1]

    def wait(self, now: float, amount: float) -> float:
        self._roll(now)
        excess = self._used + amount - self.most
        for at, held in self._log:
            if excess <= 0:
                return 0.0
            excess -= held
            if excess <= 0:
                return at + self.span - now
        return 0.0 if excess <= 0 else self.span

    def take(self, now: float, amount: float) -> None:
        self._roll(now)
        self._used += amount
        self._log.append([now, amount])

    def give_back(self, now: float, at: float, amount: float) -> None:
        self._roll(now)
        for entry in self._log:
            if entry[0] == at:
                entry[1] -= amount
                self._used -= amount
                return

    def left(self, now: float) -> tuple[float, float]:
        self._roll(now)
        last = self._log[-1][0] + self.span - now if self._log else 0.0
        return max(0.0, self.most - self._used), last


class Bucket:
    """A token bucket of `cap` units, full at first, filled at `per_minute`."""

    def __init__(self, per_minute: float, cap: float) -> None:
        self._rate, self.cap = per_minute / 60, cap
        self._level, self._at = cap, 0.0

    def _roll(self, now: float) -> None:
        self._level = min(self.cap, self._level + (now - self._at) * self._rate)
        self._at = now

    def wait(self, now: float, amount: float) -> float:
        self._roll(now)
        return max(0.0, (amount - self._level) / self._rate - 1e-9)

    def take(self, now: float, amount: float) -> None:
        self._roll(now)
        self._level -= amount

    def give_back(self, now: float, at: float, amount: float) -> None:  # noqa: ARG002  # Enforced
        self._roll(now)
        self._level = min(self.cap, self._level + amount)

    def left(self, now: float) -> tuple[float, float]:
        self._roll(now)
        return max(0.0, self._level), (self.cap - self._level) / self._rate


def fixed(span: float = 60.0) -> Make:
    """A window of `span` seconds at a random phase: the minute, 10 s slices, 1 s slices."""
    return lambda rate, luck: Fixed(rate * span / 60, span, -span * luck.random())


def sliding() -> Make:
    return lambda rate, _: Sliding(rate)


def bucket(seconds: float) -> Make:
    """A bucket that holds so many seconds' worth."""
    return lambda rate, _: Bucket(rate, rate * seconds / 60)


@dataclass
class Row:
    """A body of `size` bytes, what it will use, and what it asks for at most."""

    size: int
    inward: int = 0
    outward: int = 0
    most: int = 0


@dataclass
class Server:
    """`told`: the headers of a reply, as a function of the server and the time."""

    requests: Enforced | None = None
    tokens: Enforced | None = None
    reserves: bool = False
    rejects_count: bool = False
    told: Callable[["Server", float], Mapping[str, str]] = lambda _, __: {}
    accepted: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)
    billed: list[tuple[float, float]] = field(default_factory=list)

    def admit(self, now: float, row: Row) -> float:
        """Take a request in, and return 0; or the seconds after which it should come again."""
        amount = float(row.inward + (row.most if self.reserves else row.outward))
        limits = [(self.requests, 1.0), (self.tokens, amount)]
        wait = max(limit.wait(now, units) for limit, units in limits if limit)
        if wait > 0:
            self.rejected.append(now)
            if self.rejects_count and self.requests:
                self.requests.take(now, 1.0)
            return wait
        for limit, units in limits:
            if limit:
                limit.take(now, units)
        self.accepted.append(now)
        self.billed.append((now, float(row.inward + row.outward)))
        return 0.0

    def finish(self, now: float, at: float, row: Row) -> None:
        if self.reserves and self.tokens:
            self.tokens.give_back(now, at, float(row.most - row.outward))

    def used(self, per_minute: float, until: float, *, tokens: bool = False) -> float:
        """The share of the allowance that was used, once settled."""
        moments = self.billed if tokens else [(at, 1.0) for at in self.accepted]
        total = sum(units for at, units in moments if SETTLING <= at < until)
        return total / (per_minute / 60 * (until - SETTLING))

    def refused(self, since: float = 0.0) -> float:
        """The share of requests that were refused."""
        bad = sum(at >= since for at in self.rejected)
        good = sum(at >= since for at in self.accepted)
        return bad / max(1, bad + good)


def openai_headers(per_minute: float) -> Callable[[Server, float], Mapping[str, str]]:
    """Headers of a limit on requests that is told as `per_minute`."""

    def told(server: Server, now: float) -> Mapping[str, str]:
        assert server.requests is not None
        left, reset = server.requests.left(now)
        return {
            "x-ratelimit-limit-requests": f"{per_minute:.0f}",
            "x-ratelimit-remaining-requests": f"{math.floor(left)}",
            "x-ratelimit-reset-requests": f"{math.ceil(reset * 1000)}ms",
        }

    return told


@dataclass
class Client:
    """An endless backlog before a pacer; `passing`: rows that may pass one that waits."""

    pacer: Pacer
    rows: Iterator[Row]
    passing: int = 0
    held_until: float = 0.0
    waited: bool = False
    dead: bool = False
    sent: list[float] = field(default_factory=list)
    _line: deque[tuple[Row, float]] = field(default_factory=deque)
    _passed: int = 0
    _episode: int = 0
    _rest_until: float = -math.inf

    def leave(self, now: float) -> tuple[Row, float] | float:
        """Take the next row that may leave, with its cost; or the seconds to wait."""
        if self.held_until > now:
            return self.held_until - now
        while len(self._line) <= self.passing:
            row = next(self.rows)
            body = b'{"max_tokens": %d}' % row.most
            self._line.append((row, self.pacer.expect(body + b" " * (row.size - len(body)))))
        first = math.inf
        for place in range(1 + self.passing - self._passed):
            row, cost = self._line[place]
            wait = self.pacer.wait(now, cost)
            if wait <= 0:
                del self._line[place]
                self._passed = self._passed + 1 if place else 0
                assert self.pacer.take(now, cost, waited=self.waited)
                self.waited = False
                self.sent.append(now)
                return row, cost
            first = min(first, wait)
        return first

    def refuse(self, sent_at: float, now: float, after: float, luck: float) -> None:
        """Do what an attempt does about a 429."""
        self.pacer.refused(sent_at, now, after)
        if sent_at >= self._rest_until:
            self._episode += 1
        pause = POLICY.pause(self._episode, after, luck)
        self.held_until = max(self.held_until, now + pause)
        self._rest_until = max(self._rest_until, now + pause)


POLICY: Final = RetryPolicy.of(Config())


class World:
    """Clients before one server. `late`: seconds by which timers are overslept."""

    def __init__(
        self, server: Server, seed: int, *, latency: float = 1.0, late: float = 0.002
    ) -> None:
        self.server = server
        self.luck = random.Random(seed)
        self.now = 0.0
        self._latency, self._late = latency, late
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count()

    def add(self, client: Client) -> None:
        self._at(self.now, self._send, client)

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Have something done at a time."""
        self._at(moment, do)

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] < until:
            self.now, _, do, args = heappop(self._heap)
            do(*args)
        self.now = until

    def _at(self, moment: float, do: Callable[..., None], *args: Any) -> None:
        heappush(self._heap, (moment, next(self._number), do, args))

    def _way(self) -> float:
        """Seconds of the way there: log-normal, 50 ms in the middle."""
        return 0.05 * math.exp(0.5 * self.luck.gauss(0, 1))

    def _send(self, client: Client) -> None:
        while not client.dead:
            found = client.leave(self.now)
            if isinstance(found, float):
                client.waited = True
                late = self.luck.random() * self._late
                self._at(self.now + max(found, 1e-6) + late, self._send, client)
                return
            self._at(self.now + self._way(), self._arrive, client, self.now, *found)

    def _arrive(self, client: Client, sent_at: float, row: Row, cost: float) -> None:
        wait = self.server.admit(self.now, row)
        told = self.server.told(self.server, self.now)
        if wait > 0:
            self._at(self.now + self._way(), self._reject, client, sent_at, wait, told)
            return
        took = self._latency * math.exp(0.4 * self.luck.gauss(0, 1))
        self._at(self.now + took, self._finish, client, self.now, row, cost, told)

    def _reject(self, client: Client, sent_at: float, wait: float, told: Mapping[str, str]) -> None:
        if client.dead:
            return
        client.refuse(sent_at, self.now, float(math.ceil(wait)), self.luck.random())
        self._hear(client, told)

    def _finish(
        self, client: Client, at: float, row: Row, cost: float, told: Mapping[str, str]
    ) -> None:
        self.server.finish(self.now, at, row)
        if client.dead:
            return
        client._episode = 0
        client.pacer.settle(row.size, cost, row.inward, row.outward)
        self._hear(client, told)

    def _hear(self, client: Client, told: Mapping[str, str]) -> None:
        if client.pacer.listens(self.now):
            client.pacer.learn(learn(told, duration, 1.7e9 + self.now), self.now)


def plain() -> Iterator[Row]:
    """Rows of which only the number counts."""
    while True:
        yield Row(size=400)


def chats(seed: int, *, bytes_per_token: float = 4.0, most: int = 1024) -> Iterator[Row]:
    """Log-normal prompts of about 300 tokens and answers of about 200."""
    luck = random.Random(seed)
    while True:
        inward = max(1, round(luck.lognormvariate(math.log(300) - 0.125, 0.5)))
        outward = min(most, max(1, round(luck.lognormvariate(math.log(200) - 0.18, 0.6))))
        yield Row(max(24, round(inward * bytes_per_token)), inward, outward, most)
