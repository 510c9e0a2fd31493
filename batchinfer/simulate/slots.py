"""The queue before the simulated GPU.

Owns: who works, who waits, and for how long slots were busy. Refuses to know: what the work is,
timers, the clock (`now` is an argument, in seconds).
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket", bound=Hashable)


class Slots(Generic[Ticket]):
    """`capacity` places to work (0: as many as come) and a first-come queue before them."""

    __slots__ = ("_at", "_busy", "_waiting", "capacity", "peak", "running")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.running = 0
        self.peak = 0
        self._waiting: OrderedDict[Ticket, None] = OrderedDict()
        self._busy = 0.0
        self._at = 0.0

    @property
    def waiting(self) -> int:
        """How many are in the queue."""
        return len(self._waiting)

    def enter(self, ticket: Ticket, now: float) -> bool:
        """Give the ticket a slot, or a place in the queue: whether it may start."""
        if self.capacity and self.running >= self.capacity:
            self._waiting[ticket] = None
            return False
        self._run(self.running + 1, now)
        return True

    def leave(self, ticket: Ticket, now: float) -> Ticket | None:
        """Take the ticket out, done or given up; the one that may start in its place."""
        if ticket in self._waiting:
            del self._waiting[ticket]
            return None
        if self._waiting:
            return self._waiting.popitem(last=False)[0]
        self._run(self.running - 1, now)
        return None

    def busy_seconds(self, now: float) -> float:
        """Sum the seconds worked so far over the slots."""
        return self._busy + self.running * (now - self._at)

    def _run(self, running: int, now: float) -> None:
        self._busy = self.busy_seconds(now)
        self._at = now
        self.running = running
        self.peak = max(self.peak, running)
