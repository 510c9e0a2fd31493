"""The merge: sidecars, which are in the order of completion, back into the order of the input.

Owns: which record is a row's (the first success, else the latest failure), the streaming merge,
the proof that a results file is what it should be. Refuses to know: how the input is read, what
the lines of an output look like. Memory is an index of some 25 bytes a record.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from msgspec import DecodeError, Raw, Struct, json

from batchinfer.journal.files import replace_file, storage
from batchinfer.journal.index import KeyIndex
from batchinfer.journal.record import parts, peek
from batchinfer.journal.replay import scan
from batchinfer.model import RowId
from batchinfer.report.shapes import PENDING, SHAPES, Form, InputLine, input_text, one_line

MAX_PROBLEMS: Final = 20
"""Problems that a proof names; it counts the others."""

_LENGTH_BITS: Final = 32
_PLACE_BYTES: Final = 10
"""A record's place: six bytes of offset and four of length."""


class MergeCounts(Struct, frozen=True):
    """Rows by what became of them: rows = succeeded + failed + pending.

    `surplus`: successes in the sidecar that no input line asks for (rows removed or edited since).
    """

    rows: int
    succeeded: int
    failed: int
    pending: int
    surplus: int


class Proof(Struct, frozen=True):
    """What `verify` found; no problems: proved. `checked`: whether there was a results file."""

    counts: MergeCounts
    checked: bool
    problems: list[str]


class Records:
    """The records of a job's two sidecars, by row key; to be used in a `with`.

    Raises DamagedJournalError or StorageError on entering, StorageError later.
    """

    def __init__(self, success: Path, failure: Path) -> None:
        self._success = success
        self._failure = failure
        self._answers = KeyIndex(_PLACE_BYTES)
        self._problems = KeyIndex(_PLACE_BYTES)
        self._fds: dict[Path, int] = {}
        self._rows = self._succeeded = self._failed = 0

    def __enter__(self) -> Self:
        for key, place in _places(self._success):
            self._answers.add(key, place)
        for key, place in _places(self._failure):
            self._problems.pop_first(key)
            self._problems.add(key, place)
        for path, index in ((self._success, self._answers), (self._failure, self._problems)):
            if len(index):
                with storage(path, "read"):
                    self._fds[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for fd in self._fds.values():
            os.close(fd)

    def take(self, key: bytes) -> bytes | None:
        """Return the record of the input's next row of this key, None where it has none.

        Equal rows are a multiset: each success is taken once; those left share the last failure.
        """
        self._rows += 1
        place = self._answers.pop_first(key)
        if place is not None:
            self._succeeded += 1
            return self._read(self._success, place)
        place = self._problems.peek(key)
        if place is None:
            return None
        self._failed += 1
        return self._read(self._failure, place)

    @property
    def counts(self) -> MergeCounts:
        """What has been taken so far."""
        done = self._succeeded + self._failed
        return MergeCounts(
            self._rows, self._succeeded, self._failed, self._rows - done, len(self._answers)
        )

    def _read(self, path: Path, place: int) -> bytes:
        length = place & ((1 << _LENGTH_BITS) - 1)
        with storage(path, "read"):
            return os.pread(self._fds[path], length, place >> _LENGTH_BITS)


def _places(path: Path) -> Iterator[tuple[bytes, int]]:
    for entry in scan(path):
        yield peek(entry.line)[0], entry.offset << _LENGTH_BITS | entry.length


def merge(
    lines: Iterable[InputLine],
    success: Path,
    failure: Path,
    target: Path | BinaryIO,
    form: Form = "results",
) -> MergeCounts:
    """Write one line of output for each input line, in input order, failures and pending included.

    A file at `target` is replaced whole or, on any error, left as it was. Raises
    DamagedJournalError, StorageError, CannotCreateError; ConfigError if the records do not hold
    what `form` needs.
    """
    shape = SHAPES[form]
    with Records(success, failure) as records:
        output = (shape(line, records.take(line[2])) for line in lines)
        if isinstance(target, Path):
            replace_file(target, output)
        else:
            target.writelines(output)
        return records.counts


# ── the proof ────────────────────────────────────────────────────────────────────────────────


class _Found(Struct, frozen=True):
    row: int
    id: RowId
    input: Raw
    output: Raw
    error: Raw


_FOUND: Final = json.Decoder(_Found)


def verify(lines: Iterable[InputLine], success: Path, failure: Path, results: Path) -> Proof:
    """Prove the sidecars intact and, where there is a results file, that it says what they say.

    That is: one line for each input line, in input order, with its input, the answer or error of
    its record, and nothing more. Raises DamagedJournalError, StorageError.
    """
    problems: list[str] = []
    unnamed = 0
    with Records(success, failure) as records, ExitStack() as stack:
        found = _lines_of(results, stack)
        for problem in _differences(lines, records, found, results):
            if len(problems) < MAX_PROBLEMS:
                problems.append(problem)
            else:
                unnamed += 1
        if unnamed:
            problems.append(f"and {unnamed} more")
        return Proof(records.counts, found is not None, problems)


def _lines_of(path: Path, stack: ExitStack) -> Iterator[bytes] | None:
    with storage(path, "read"):
        try:
            return iter(stack.enter_context(closing(path.open("rb"))))
        except FileNotFoundError:
            return None


def _differences(
    lines: Iterable[InputLine], records: Records, found: Iterator[bytes] | None, path: Path
) -> Iterator[str]:
    for line in lines:
        record = records.take(line[2])
        if found is None:
            continue
        problem = _difference(line, record, _next(found, path))
        if problem:
            yield f"row {line[0]}: {problem}"
    if found is not None and (more := sum(1 for _ in found)):
        yield f"lines of results after the last row's: {more}"


def _next(found: Iterator[bytes], path: Path) -> bytes | None:
    with storage(path, "read"):
        return next(found, None)


def _difference(line: InputLine, record: bytes | None, result: bytes | None) -> str | None:
    """Say how a line of the results is not what it should be; None if it is."""
    if result is None:
        return "the results end before it"
    try:
        found = _FOUND.decode(result)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return "its line is not a line of results"
    index, name, _, raw = line
    told = PENDING if record is None else parts(record)
    checks = (
        (result.endswith(b"\n"), "its line is cut short"),
        (found.row == index, f"its line is that of row {found.row}"),
        (found.id == name, "its line has another id"),
        (bytes(found.input) == input_text(raw), "its line has another input"),
        (
            bytes(found.output) == one_line(bytes(told.output)),
            "its output is not that of its record",
        ),
        (bytes(found.error) == bytes(told.error), "its error is not that of its record"),
    )
    return next((problem for holds, problem in checks if not holds), None)
