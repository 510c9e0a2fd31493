"""Work for the pool: rows whose wait is over first, then fresh rows in input order.

Owns: the window of rows in memory (one chunk, the waiting rows, those in flight), handing work to
idle workers, knowing when all is done. Refuses to know: requests, outcomes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final, Protocol

from batchinfer.dispatch.work import Work
from batchinfer.intake.lines import Chunk
from batchinfer.model import BadRow, Row

MIN_WAITING: Final = 1024


class Chunks(Protocol):
    """Where chunks come from."""

    async def next(self) -> Chunk | None:
        """Return the next chunk, None at the end of the input."""


class Feed:
    """Hands out Work one by one.

    `open_row` turns a line into a row, or None: nothing to do; `on_end` is told once all are read.
    """

    def __init__(
        self,
        chunks: Chunks,
        open_row: Callable[[int, bytes], Row | BadRow | None],
        on_end: Callable[[], None],
        concurrency: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks = chunks
        self._open_row = open_row
        self._on_end = on_end
        self._fresh: Iterator[Work] = iter(())
        self._consumed = asyncio.Event()
        self._waiting: list[tuple[float, int, Work]] = []
        self._max_waiting = max(MIN_WAITING, 4 * concurrency)
        self._idle: deque[asyncio.Future[Work | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._serial = 0
        self._out = 0
        self._ended = False
        self._stopped = False

    async def pump(self) -> None:
        """Bring in chunk after chunk, the next one when the last is used up."""
        while not self._stopped and (chunk := await self._chunks.next()) is not None:
            self._consumed.clear()
            self._fresh = self._rows(chunk)
            self._serve()
            await self._consumed.wait()
        if not self._stopped:
            self._on_end()
        self._ended = True
        self._serve()

    async def take(self) -> Work | None:
        """Return the next piece of work, waiting for it; None when there will be none."""
        work = self._next()
        if work is None and not self._over():
            waiter: asyncio.Future[Work | None] = self._loop.create_future()
            self._idle.append(waiter)
            self._set_timer()
            work = await waiter
        return work

    def done(self) -> None:
        """Give back a piece of work that is settled or stays pending."""
        self._out -= 1
        if self._over():
            self._serve()

    def later(self, work: Work, delay: float) -> None:
        """Give back a piece of work that is to be handed out again after `delay` seconds."""
        self._out -= 1
        self._serial += 1
        heappush(self._waiting, (self._loop.time() + delay, self._serial, work))
        self._serve()

    def stop(self) -> None:
        """Hand out nothing more; what waits stays pending."""
        self._stopped = True
        self._consumed.set()
        self._serve()

    def _rows(self, chunk: Chunk) -> Iterator[Work]:
        for number, line in enumerate(chunk.lines, chunk.first):
            row = self._open_row(number, line)
            if row is not None:
                yield Work(row)

    def _next(self) -> Work | None:
        if self._stopped:
            return None
        work = None
        if self._waiting and self._waiting[0][0] <= self._loop.time():
            work = heappop(self._waiting)[2]
        elif len(self._waiting) < self._max_waiting:
            work = next(self._fresh, None)
            if work is None:
                self._consumed.set()
        self._out += work is not None
        return work

    def _over(self) -> bool:
        return self._stopped or (self._ended and not self._waiting and not self._out)

    def _serve(self) -> None:
        """Wake idle workers: one for each piece of work, all when there will be none."""
        while self._idle:
            work = self._next()
            if work is None and not self._over():
                break
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(work)
            elif work is not None:
                self.later(work, 0.0)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._idle:
            self._timer = self._loop.call_at(self._waiting[0][0], self._serve)
