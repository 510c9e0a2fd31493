"""What observers of a run are told, as frozen values.

Owns: the closed union Event; progress, summary and metrics are folds over it. Refuses to know:
who listens.
"""

from typing import Literal

from msgspec import Struct

from batchinfer.model import ErrorClass, Outcome, Problem


class Settled(Struct, frozen=True):
    """An outcome is acknowledged: it is on the disk."""

    outcome: Outcome


class Recalled(Struct, frozen=True):
    """An outcome read back from an earlier run's sidecar: what it took counts, its row does not.

    Which rows of the input are settled is told by Skipped: a sidecar may hold outcomes of rows
    that were removed, edited or sent again since.
    """

    outcome: Outcome


class Skipped(Struct, frozen=True):
    """A row needs no request: an earlier run settled it (`how`)."""

    how: Literal["succeeded", "failed"]
    error: ErrorClass | None = None


class Sent(Struct, frozen=True):
    """A request leaves."""


class Bounced(Struct, frozen=True):
    """An exchange ended without settling its row; the row waits `delay` seconds."""

    problem: Problem
    delay: float
    ambiguous: bool
    counts: bool


class Held(Struct, frozen=True):
    """All workers of the endpoint wait `seconds`; `reason` is safe to show."""

    seconds: float
    reason: str


class Counted(Struct, frozen=True):
    """The input has been read to its end: it has `rows` lines."""

    rows: int


Event = Settled | Recalled | Skipped | Sent | Bounced | Held | Counted
