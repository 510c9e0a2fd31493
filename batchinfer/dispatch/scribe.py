"""Outcomes to the journal in groups, off the event loop; told to observers once they are synced.

Owns: the group (64 records or 50 ms), the bound on answers that are received but not synced, and
the order write ▸ sync ▸ acknowledge. Refuses to know: files, and who observes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from batchinfer.events import Event, Settled
from batchinfer.journal.record import encode
from batchinfer.model import Outcome, Success

GROUP: Final = 64
"""Records that are synced together at the latest, and that may be received but not synced."""

LINGER: Final = 0.05
"""Seconds a record may wait for company."""


class Journal(Protocol):
    """What the scribe writes to."""

    def commit(self, success: bytes, failure: bytes, /) -> None:
        """Append and sync; StorageError when the disk does not take it."""


class Scribe:
    """One per run; `put` from workers, `run` as a task, `close` when all workers are done."""

    def __init__(self, journal: Journal, sink: Callable[[Event], None]) -> None:
        self._journal = journal
        self._sink = sink
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batchinfer-journal")
        self._batch: list[tuple[Outcome, bytes]] = []
        self._in_commit = 0
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False

    async def put(self, outcome: Outcome) -> None:
        """Hand over an outcome; waits while too much is unsynced, so that the bound holds."""
        self._batch.append((outcome, encode(outcome)))
        self._some.set()
        if len(self._batch) + self._in_commit >= GROUP:
            self._many.set()
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Write until closed; raises StorageError at the first failure and writes no more."""
        try:
            while not (self._closing and not self._batch):
                await self._some.wait()
                if not self._closing and len(self._batch) < GROUP:
                    await self._linger()
                await self._commit()
        finally:
            self._room.set()
            self._thread.shutdown(wait=False)

    @property
    def unsynced(self) -> int:
        """Outcomes handed over that are not known to be on the disk."""
        return len(self._batch) + self._in_commit

    def close(self) -> None:
        """Write what is there and end `run`."""
        self._closing = True
        self._some.set()
        self._many.set()

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER):
                await self._many.wait()
        except TimeoutError:
            return

    async def _commit(self) -> None:
        batch, self._batch = self._batch, []
        if not self._closing:
            self._some.clear()
            self._many.clear()
        if not batch:
            return
        self._in_commit = len(batch)
        success = b"".join(line for outcome, line in batch if isinstance(outcome, Success))
        failure = b"".join(line for outcome, line in batch if not isinstance(outcome, Success))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._journal.commit, success, failure)
        for outcome, _ in batch:
            self._sink(Settled(outcome))
        self._in_commit = 0
        if len(self._batch) < GROUP:
            self._room.set()
