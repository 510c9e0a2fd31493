"""What remains to do: each input row against what earlier runs settled.

Owns: the rule that a success is never sent again, that n successes of one key satisfy n such rows,
and which failures are worth another request. Refuses to know: how settled keys are stored.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from batchinfer.errors import UsageError
from batchinfer.events import Skipped
from batchinfer.model import TRANSIENT, BadRow, ErrorClass, Row, RowId

CLASSES: Final = tuple(ErrorClass)
"""Error classes by number, as an index keeps them."""


class Keys(Protocol):
    """A multiset of row keys, each with a number."""

    def pop_first(self, key: bytes) -> int | None:
        """Take out one entry of this key."""

    def peek(self, key: bytes) -> int | None:
        """Look at an entry of this key."""

    def __len__(self) -> int: ...


class Plan:
    """Decide each row in input order; `again` holds the failure classes to be sent again."""

    def __init__(self, succeeded: Keys, failed: Keys, again: frozenset[ErrorClass]) -> None:
        self._succeeded = succeeded
        self._failed = failed
        self._again = again

    def settled(self, key: bytes) -> Skipped | None:
        """Return how earlier runs settled the next row of this key, None where they did not."""
        if len(self._succeeded) and self._succeeded.pop_first(key) is not None:
            return Skipped("succeeded")
        number = self._failed.peek(key) if len(self._failed) else None
        return None if number is None else Skipped("failed", CLASSES[number])

    def decide(self, row: Row | BadRow) -> Skipped | None:
        """Return why the row needs nothing, or None when it is to be done.

        A row that could not be sent before is looked at again: a template may have been added.
        """
        skip = self.settled(row.key)
        if skip is None or skip.how == "succeeded":
            return skip
        if isinstance(row, BadRow):
            return skip if skip.error is ErrorClass.INVALID_INPUT else None
        again = skip.error in self._again or skip.error is ErrorClass.INVALID_INPUT
        return None if again else skip

    @property
    def vanished(self) -> int:
        """Successes whose rows the input, once read to its end, no longer has."""
        return len(self._succeeded)


def failures_to_retry(names: Iterable[str] | None) -> frozenset[ErrorClass]:
    """Return the classes that a run sends again: None: those that time may cure; (): all."""
    if names is None:
        return TRANSIENT
    wanted = [name.strip() for name in names if name.strip()]
    unknown = [name for name in wanted if name not in {str(c) for c in ErrorClass}]
    if unknown:
        raise UsageError(
            f"unknown failure class {', '.join(unknown)}; there are: {', '.join(ErrorClass)}"
        )
    return frozenset(ErrorClass(name) for name in wanted) or frozenset(ErrorClass)


class Names:
    """Notices ids that stand on more than one row: allowed, but seldom meant.

    Looks at the first `LIMIT` ids, so that its memory is bounded whatever the input's size.
    """

    LIMIT: Final = 100_000

    def __init__(self) -> None:
        self._seen: set[RowId] = set()
        self.repeated: RowId = None
        self.repeats = 0

    def note(self, name: RowId) -> None:
        """Take in a row's id."""
        if name is None or len(self._seen) >= self.LIMIT:
            return
        if name in self._seen:
            self.repeats += 1
            self.repeated = name if self.repeated is None else self.repeated
        self._seen.add(name)
