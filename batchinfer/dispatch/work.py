"""A row on its way through the pool, and what one exchange made of it.

Owns: the only mutable per-row state, and the closed union Step. Refuses to know: I/O.
"""

from msgspec import Struct

from batchinfer.errors import BatchinferError
from batchinfer.model import BadRow, Outcome, Row


class Work(Struct):
    """A row with what it has taken so far.

    `spent`: USD for replies that were not used; `began`: when its first request left (monotonic).
    """

    row: Row | BadRow
    attempts: int = 0
    rate_limited: int = 0
    ambiguous: int = 0
    wasted: int = 0
    spent: float = 0.0
    began: float | None = None


class Done(Struct, frozen=True):
    """The row is settled."""

    outcome: Outcome


class Again(Struct, frozen=True):
    """The row waits so many seconds, holding no slot."""

    delay: float


class Abandoned(Struct, frozen=True):
    """Nothing was sent, for the endpoint takes no more; another may, or the row stays pending."""


class Stop(Struct, frozen=True):
    """The endpoint can take no more rows for this reason; `everywhere`: no endpoint can."""

    reason: BatchinferError
    everywhere: bool = False


Step = Done | Again | Abandoned | Stop
