"""The bounded pool: as many workers as may be in flight, no task per row, no barrier.

Owns: the workers, stopping (drain, then force). Refuses to know: what an attempt does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from batchinfer.dispatch.feed import Feed
from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.scribe import Scribe
from batchinfer.dispatch.work import Abandoned, Again, Done, Step, Stop, Work
from batchinfer.errors import BatchinferError, StorageError


class Pool:
    """Runs every row of the feed through `attempt` and its outcome to the scribe."""

    def __init__(
        self,
        feed: Feed,
        gate: Gate,
        scribe: Scribe,
        attempt: Callable[[Work], Awaitable[Step]],
        concurrency: int,
    ) -> None:
        self._feed = feed
        self._gate = gate
        self._scribe = scribe
        self._attempt = attempt
        self._concurrency = concurrency
        self._forced = asyncio.Event()
        self._stopping = asyncio.Event()
        self.reason: BatchinferError | None = None

    def stop(self, reason: BatchinferError) -> None:
        """Start nothing new; requests in flight may end. The first reason counts."""
        self.reason = self.reason or reason
        self._wind_down()

    def _wind_down(self) -> None:
        self._stopping.set()
        self._feed.stop()
        self._gate.close()

    def force(self) -> None:
        """Drop the requests in flight too."""
        self._forced.set()

    async def run(self, grace: float) -> None:
        """Work until all rows are settled or the run was stopped, then at most `grace` s more.

        What stopped it is in `reason`; only a bug is raised.
        """
        scribe = asyncio.create_task(self._scribe.run())
        pump = asyncio.create_task(self._feed.pump())
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        for task in (scribe, pump, *workers):
            task.add_done_callback(self._watch)
        try:
            await self._join(workers, grace)
        finally:
            await self._dismiss([*workers, pump])
            self._scribe.close()
            await asyncio.wait([scribe])
        for task in (*workers, pump, scribe):
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, BatchinferError):
                raise error

    async def _work(self) -> None:
        while (work := await self._feed.take()) is not None:
            step = await self._attempt(work)
            match step:
                case Done(outcome):
                    await self._scribe.put(outcome)
                    self._feed.done()
                case Again(delay):
                    self._feed.later(work, delay)
                case Abandoned():
                    self._feed.done()
                case Stop(reason):
                    self.stop(reason)
                    self._feed.done()
                case _:
                    assert_never(step)

    async def _join(self, workers: list[asyncio.Task[None]], grace: float) -> None:
        """Wait for the workers; once the run is stopping, for `grace` seconds or until forced."""
        everyone = asyncio.ensure_future(self._all(workers))
        stopping = asyncio.create_task(self._wait(self._stopping))
        forced = asyncio.create_task(self._wait(self._forced))
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait([everyone, stopping], return_when=first)
        if not everyone.done():
            await asyncio.wait([everyone, forced], timeout=grace, return_when=first)
        await self._dismiss([everyone, stopping, forced])

    @staticmethod
    async def _all(workers: list[asyncio.Task[None]]) -> None:
        """End with the last worker, or with the first that breaks."""
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)

    @staticmethod
    async def _wait(event: asyncio.Event) -> None:
        await event.wait()

    def _watch(self, task: asyncio.Task[None]) -> None:
        """Stop the run when a part of it breaks; at once where nothing could be kept, or a bug."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if isinstance(error, BatchinferError):
            self.reason = self.reason or error
        self._wind_down()
        if isinstance(error, StorageError) or not isinstance(error, BatchinferError):
            self.force()

    @staticmethod
    async def _dismiss(tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
