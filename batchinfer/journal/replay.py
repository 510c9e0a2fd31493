"""Reading sidecars back: what is intact, what a crash has torn, what is damaged.

Owns: the difference between a torn tail (everything after the last intact record: the trace of a
crash, healed in silence) and damage (something broken before an intact record: never guessed at).
Refuses to know: what a record means to a run.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from batchinfer.errors import DamagedJournalError, StorageError
from batchinfer.journal.files import (
    BLOCK,
    fsync_dir,
    lock,
    open_append,
    replace_file,
    storage,
    sync_data,
    write_all,
)
from batchinfer.journal.record import START, intact


class Entry(Struct, frozen=True):
    """An intact record: `length` bytes at `offset` of its file, without the newline."""

    offset: int
    length: int
    line: bytes


class Repaired(Struct, frozen=True):
    """How many damaged lines were moved out of each sidecar."""

    success: int
    failure: int


class Scan:
    """The intact records of a sidecar, in order; a missing file has none.

    The file is only read, in one pass up to its present end, so that a running job's sidecar can be
    looked at too. After the pass `torn` is the number of bytes of the torn tail. The iteration
    raises DamagedJournalError at the end if an intact record comes after a damaged line (records
    after the damage are not yielded), and StorageError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0

    def __iter__(self) -> Iterator[Entry]:
        broken = _Broken(self.path)
        with _reading(self.path) as fd:
            for offset, line in _lines(fd):
                if not intact(line):
                    broken.add(offset, line)
                elif broken.lines:
                    broken.in_the_middle = broken.lines
                else:
                    yield Entry(offset, len(line), line)
        self.torn = broken.tail()


def scan(path: Path) -> Scan:
    """Return the intact records of the sidecar at `path`, to be iterated once."""
    return Scan(path)


class _Broken:
    """What a pass finds that is not intact."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self.in_the_middle = 0
        self.offset = 0
        self.size = 0
        self.foreign = False

    def add(self, offset: int, line: bytes) -> None:
        if not self.lines:
            self.offset = offset
            self.foreign = offset == 0 and not _begins_as_ours(line)
        self.lines += 1
        self.size = offset + len(line) - self.offset

    def tail(self) -> int:
        """Return the torn tail's size; raise if it is no tail."""
        if self.in_the_middle:
            raise DamagedJournalError(
                f"{self.path}: {self.in_the_middle} damaged lines before intact records, "
                f"the first at byte {self.offset}; --repair moves them to {_bad(self.path).name} "
                "and sends their rows again"
            )
        if self.foreign:
            raise DamagedJournalError(_foreign(self.path))
        return self.size


