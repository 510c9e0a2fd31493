"""What earlier runs of a job left: read back from its sidecars.

Owns: the fold of both sidecars into a tally and two indexes of keys. Refuses to know: the input.
"""

from collections.abc import Callable

from msgspec import Struct

from batchinfer.events import Event, Recalled
from batchinfer.intake.plan import CLASSES
from batchinfer.journal.index import KeyIndex
from batchinfer.journal.manifest import Paths
from batchinfer.journal.record import decode
from batchinfer.journal.replay import scan
from batchinfer.model import Failure


class History(Struct):
    """Keys of the successes, and of the failures with the number of their latest class."""

    succeeded: KeyIndex
    failed: KeyIndex


def recall(paths: Paths, *folds: Callable[[Event], None]) -> History:
    """Read the sidecars; each record is folded as Recalled. DamagedJournalError: see `scan`."""

    def fold(event: Event) -> None:
        for each in folds:
            each(event)

    history = History(KeyIndex(0), KeyIndex(1))
    for entry in scan(paths.success):
        outcome = decode(entry.line)
        history.succeeded.add(outcome.key)
        fold(Recalled(outcome))
    for entry in scan(paths.failure):
        outcome = decode(entry.line)
        if isinstance(outcome, Failure):
            history.failed.pop_first(outcome.key)
            history.failed.add(outcome.key, CLASSES.index(outcome.problem.error))
        fold(Recalled(outcome))
    return history
