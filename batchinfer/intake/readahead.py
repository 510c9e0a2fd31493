"""Reading ahead of the event loop: a thread turns the input into chunks, two at the most.

Owns: the thread, the bound on what is read but not taken. Refuses to know: rows.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Final

from batchinfer.errors import BatchinferError
from batchinfer.intake.lines import Chunk

AHEAD: Final = 2
"""Chunks that may wait; with READ_SIZE this bounds the memory of an input of any size."""


class ReadAhead:
    """Chunks from a blocking iterator for one task of a running loop.

    The thread is a daemon: a read of a silent pipe must not hold up the exit.
    """

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Chunk | BatchinferError | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._closed = False
        threading.Thread(target=self._read, name="batchinfer-reader", daemon=True).start()

    async def next(self) -> Chunk | None:
        """Return the next chunk, None at the end; raise what the reader met (NoInputError)."""
        got = await self._queue.get()
        self._room.release()
        if isinstance(got, BatchinferError):
            raise got
        return got

    def close(self) -> None:
        """Read no further."""
        self._closed = True
        self._room.release()

    def _read(self) -> None:
        # Whatever happens here, the loop is told: it would wait for ever, or take it for the end.
        end: BatchinferError | None = BatchinferError("the reader of the input broke")
        try:
            for chunk in self._chunks:
                self._room.acquire()
                if self._closed:
                    return
                self._hand_over(chunk)
            end = None
        except BatchinferError as error:
            end = error
        finally:
            self._hand_over(end)

    def _hand_over(self, item: Chunk | BatchinferError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._closed = True
