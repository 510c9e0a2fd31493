"""One endpoint's share of the pool: its attempt, its gate, its seats.

Owns: how many may be in flight at an endpoint now, and whether the endpoint still takes part.
Refuses to know: why a limit changes, what an attempt does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.work import Step, Work


class Seats:
    """Worker number i works while i is below the limit, and rests otherwise."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.closed = False
        self.on_more: Callable[[], None] = lambda: None
        self._resting: dict[int, asyncio.Future[None]] = {}

    async def mine(self, number: int) -> bool:
        """Wait until worker `number` may work; False when no more work is to be done."""
        while number >= self.limit and not self.closed:
            rest = asyncio.get_running_loop().create_future()
            self._resting[number] = rest
            await rest
        return not self.closed

    def set(self, limit: int) -> None:
        """Change the limit; who sits above it rests after its present request."""
        more = limit > self.limit
        self.limit = limit
        if more:
            self._wake([number for number in self._resting if number < limit])
            self.on_more()

    def close(self) -> None:
        """Send everybody home."""
        self.closed = True
        self._wake(list(self._resting))

    def _wake(self, numbers: list[int]) -> None:
        for number in numbers:
            rest = self._resting.pop(number)
            if not rest.done():
                rest.set_result(None)


class Lane:
    """An endpoint in the pool."""

    def __init__(
        self, attempt: Callable[[Work], Awaitable[Step]], gate: Gate, seats: Seats
    ) -> None:
        self.attempt = attempt
        self.gate = gate
        self.seats = seats

    @property
    def closed(self) -> bool:
        """Whether the endpoint takes no part any more."""
        return self.seats.closed

    def close(self) -> None:
        """Turn away all who wait at this endpoint; requests in flight may end."""
        self.seats.close()
        self.gate.close()
