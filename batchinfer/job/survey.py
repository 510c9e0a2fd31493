"""Looking at a job from outside: each input row against the sidecars, exactly as a resume would.

Owns: the read-only pass that `stats`, `merge` and `verify` share. Refuses to know: requests. It
never changes a byte and needs no lock, so a running job can be looked at.
"""

from collections.abc import Iterator
from pathlib import Path

from batchinfer.events import Counted
from batchinfer.intake.lines import chunks
from batchinfer.intake.plan import Plan
from batchinfer.intake.rows import identify, is_blank
from batchinfer.intake.source import open_input
from batchinfer.job.history import recall
from batchinfer.job.target import Target
from batchinfer.model import RowId
from batchinfer.report.tally import Tally

InputLine = tuple[int, RowId, bytes, bytes]
"""0-based line number, id, key, the line's bytes."""


def input_lines(path: str, max_line: int) -> Iterator[InputLine]:
    """Yield the rows of the input in order; blank lines are no rows. NoInputError."""
    source = open_input(path)
    try:
        for chunk in chunks(source.read, max_line):
            for number, line in enumerate(chunk.lines, chunk.first):
                if not is_blank(line):
                    yield number, *identify(line, max_line), line
    finally:
        source.close()


def survey(target: Target, max_line: int) -> Tally:
    """Return the tally of a job: what its runs took, and how each row of the input stands."""
    tally = Tally()
    history = recall(target.paths, tally.fold)
    plan = Plan(history.succeeded, history.failed, frozenset())
    rows = 0
    for _, _, key, _ in input_lines(target.again, max_line):
        rows += 1
        skip = plan.settled(key)
        if skip is not None:
            tally.fold(skip)
    tally.fold(Counted(rows))
    return tally


def weight(target: Target) -> int:
    """Return the bytes that a survey has to read."""
    files = (target.again, target.paths.success, target.paths.failure)
    return sum(Path(file).stat().st_size for file in files if Path(file).exists())
