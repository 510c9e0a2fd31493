"""The bounded pool: as many workers as may be in flight, no task per row, no barrier.

Owns: the workers, stopping (drain, then force). Refuses to know: what an attempt does.
"""

import asyncio
from collections.abc import Sequence
from typing import assert_never

from batchinfer.dispatch.feed import Feed
from batchinfer.dispatch.lane import Lane
from batchinfer.dispatch.scribe import Scribe
from batchinfer.dispatch.work import Abandoned, Again, Done, Stop
from batchinfer.errors import BatchinferError, StorageError


class Pool:
    """Runs every row of the feed through a lane, whichever has a seat free, and to the scribe."""

    def __init__(self, feed: Feed, scribe: Scribe, lanes: Sequence[Lane]) -> None:
        self._feed = feed
        self._scribe = scribe
        self._lanes = lanes
        self._workers: list[asyncio.Task[None]] = []
        self._hired = [0] * len(lanes)
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
        self._send_home()

    def _send_home(self) -> None:
        for lane in self._lanes:
            lane.close()

    def force(self) -> None:
        """Drop the requests in flight too."""
        self._forced.set()

    async def run(self, grace: float) -> None:
        """Work until all rows are settled or the run was stopped, then at most `grace` s more.

        What stopped it is in `reason`; only a bug is raised.
        """
        scribe = asyncio.create_task(self._scribe.run())
        pump = asyncio.create_task(self._feed.pump())
        for task in (scribe, pump):
            task.add_done_callback(self._watch)
        for lane in self._lanes:
            lane.seats.on_more = self._hire
        self._hire()
        try:
            await self._join(grace)
        finally:
            await self._dismiss([*self._workers, pump])
            self._scribe.close()
            await asyncio.wait([scribe])
        for task in (*self._workers, pump, scribe):
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, BatchinferError):
                raise error

    def _hire(self) -> None:
        """Have as many workers as the limits allow; they stay, and rest when a limit falls."""
        for number, lane in enumerate(self._lanes):
            while self._hired[number] < lane.seats.limit and not lane.closed:
                worker = asyncio.create_task(self._work(lane, self._hired[number]))
                worker.add_done_callback(self._watch)
                self._workers.append(worker)
                self._hired[number] += 1

    async def _work(self, lane: Lane, number: int) -> None:
        while await lane.seats.mine(number) and await lane.gate.ready():
            work = await self._feed.take()
            if work is None:
                self._send_home()
                return
            step = await lane.attempt(work)
            match step:
                case Done(outcome):
                    await self._scribe.put(outcome)
                    self._feed.done()
                case Again(delay):
                    self._feed.later(work, delay)
                case Abandoned():
                    self._feed.later(work, 0.0)
                case Stop(reason, everywhere):
                    self._close(lane, reason, everywhere=everywhere)
                    self._feed.later(work, 0.0)
                case _:
                    assert_never(step)

    def _close(self, lane: Lane, reason: BatchinferError, *, everywhere: bool) -> None:
        """Go on without this endpoint; without any, or for a reason that is not its own, stop."""
        lane.close()
        if everywhere or all(other.closed for other in self._lanes):
            self.stop(reason)

    async def _join(self, grace: float) -> None:
        """Wait for the workers; once the run is stopping, for `grace` seconds or until forced."""
        everyone = asyncio.create_task(self._all())
        stopping = asyncio.create_task(self._wait(self._stopping))
        forced = asyncio.create_task(self._wait(self._forced))
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait([everyone, stopping], return_when=first)
        if not everyone.done():
            await asyncio.wait([everyone, forced], timeout=grace, return_when=first)
        await self._dismiss([everyone, stopping, forced])

    async def _all(self) -> None:
        """End with the last worker; one that breaks is noticed by `_watch`."""
        while working := [worker for worker in self._workers if not worker.done()]:
            await asyncio.wait(working)

    @staticmethod
    async def _wait(event: asyncio.Event) -> None:
        await event.wait()

    def _watch(self, task: asyncio.Task[None]) -> None:
        """Stop the run when a part of it breaks; at once where nothing could be kept, or a bug."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if isinstance(error, BatchinferError):
            keep = self.reason is not None and not isinstance(error, StorageError)
            self.reason = self.reason if keep else error
        self._wind_down()
        if isinstance(error, StorageError) or not isinstance(error, BatchinferError):
            self.force()

    @staticmethod
    async def _dismiss(tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
