"""What goes on beside a running pool: signals that stop it, a view that is refreshed.

Owns: first signal drains, second drops what is in flight; the view's timer. Refuses to know: rows,
and what the view looks like.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from batchinfer.dispatch.pool import Pool
from batchinfer.errors import InterruptedRunError

TICK: Final = 0.2
"""Seconds between two looks of the progress view."""


class View(Protocol):
    """A way to show progress."""

    def start(self) -> None:
        """Begin to show."""

    def tick(self, now: float) -> None:
        """Look again."""

    def stop(self) -> None:
        """End."""


@contextmanager
def signals(pool: Pool) -> Iterator[None]:
    """Stop the pool at the first SIGINT or SIGTERM; drop what is in flight at the second."""
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)

    def handle(signum: int) -> None:
        if pool.reason is not None:
            pool.force()
        pool.stop(InterruptedRunError(signum))

    for signum in handled:
        loop.add_signal_handler(signum, handle, signum)
    try:
        yield
    finally:
        for signum in handled:
            loop.remove_signal_handler(signum)


@contextmanager
def shown(view: View) -> Iterator[None]:
    """Show the view and refresh it while the block runs."""
    loop = asyncio.get_running_loop()

    async def refresh() -> None:
        while True:
            view.tick(loop.time())
            await asyncio.sleep(TICK)

    view.start()
    refreshing = asyncio.create_task(refresh())
    try:
        yield
    finally:
        refreshing.cancel()
        view.tick(loop.time())
        view.stop()
