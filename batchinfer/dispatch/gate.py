"""The one door to an endpoint: rate limits and holds.

Owns: who may send now, in order of arrival; a hold stops every worker of the endpoint. Refuses to
know: rows, verdicts, how long a hold should be.
"""

import asyncio
from collections.abc import Callable, Mapping

from batchinfer.flow.headers import learn
from batchinfer.flow.pacer import Pacer
from batchinfer.providers.waits import duration


class Gate:
    """`enter` before each request; without limits and holds it costs no wait and no task switch."""

    def __init__(self, pacer: Pacer, clock: Callable[[], float]) -> None:
        self.pacer = pacer
        self.remarks: list[str] = []
        self._clock = clock
        self._held_until = float("-inf")
        self._turn = asyncio.Lock()
        self._closed = asyncio.Event()

    async def enter(self, cost: float) -> bool:
        """Wait for the turn of a request of `cost` tokens.

        False: the run is stopping, or a limit of a day is used up.
        """
        if self.pacer.unlimited and self._clock() >= self._held_until:
            return not self._closed.is_set()
        waited = self._turn.locked()
        async with self._turn:
            while not self._closed.is_set() and (wait := self._wait(cost)) > 0:
                waited = True
                await self._sleep(wait)
            if self._closed.is_set():
                return False
            return self.pacer.take(self._clock(), cost, waited=waited)

    async def ready(self) -> bool:
        """Wait while the endpoint is held, without a row in hand; False: it takes no more."""
        while not self._closed.is_set() and (wait := self._held_until - self._clock()) > 0:
            await self._sleep(wait)
        return not self._closed.is_set()

    def hold(self, seconds: float) -> None:
        """Let nobody through for so long; the longest hold counts."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def hear(self, headers: Mapping[str, str], epoch: Callable[[], float]) -> None:
        """Take in what a reply's headers tell of limits; what the user should know is a remark."""
        now = self._clock()
        if self.pacer.listens(now):
            self.remarks += self.pacer.learn(learn(headers, duration, epoch()), now)

    def close(self) -> None:
        """Turn away all who wait and all who come."""
        self._closed.set()

    def _wait(self, cost: float) -> float:
        now = self._clock()
        return max(self.pacer.wait(now, cost), self._held_until - now)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
