"""Reading sidecars back: what is intact, what a crash has torn, what is damaged.

Owns: the difference between a torn tail (everything after the last intact record: the trace of a
crash, healed in silence) and damage (something broken before an intact record: never guessed at).
A last line that is broken but ends with a newline is a torn tail: blocks of an unsynced write may
reach the disk in any order. Refuses to know: what a record means to a run.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import orjson
from msgspec import Struct

from batchinfer.errors import DamagedJournalError
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

    The file is only read, in one pass up to its present end, so a running job's sidecar can be
    looked at too. After the pass, `torn` is the size of the torn tail in bytes. The pass ends with
    DamagedJournalError if an intact record comes after a damaged line (nothing after the damage is
    yielded), or if the file is not a sidecar; StorageError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0

    def __iter__(self) -> Iterator[Entry]:
        start = end = broken = damaged = edited = 0
        head = b""
        for offset, line, ended in _lines(self.path):
            if not intact(line):
                if not broken:
                    start, head = offset, line
                broken += 1
                edited += ended and _is_whole(line)
                end = offset + len(line) + ended
            elif broken:
                damaged = broken
            else:
                yield Entry(offset, len(line), line)
        if broken and not damaged and not start and not _ours(head):
            raise DamagedJournalError(_foreign(self.path))
        if damaged or edited:
            raise DamagedJournalError(_damage(self.path, damaged or edited, start))
        self.torn = end - start


def scan(path: Path) -> Scan:
    """Return the intact records of the sidecar at `path`, to be iterated over."""
    return Scan(path)


def heal(fd: int, path: Path) -> int:
    """Make the sidecar end with an intact record and a newline; return the bytes cut off.

    To be called with the lock held and before the first append, which would be glued to the tail.
    Only the tail is read. Raises StorageError, or DamagedJournalError for a file not ours.
    """
    with storage(path, "healed"):
        size = os.fstat(fd).st_size
        end = _end_of_intact(fd, size, path)
        if end == size and size:
            write_all(fd, b"\n")
        if end >= size:
            return 0
        kept = end + 1 if end else 0
        _refuse_edited(fd, kept, size, path)
        if kept < size:
            os.ftruncate(fd, kept)
        return size - kept


def _refuse_edited(fd: int, kept: int, size: int, path: Path) -> None:
    """Raise where whole JSON lines stand in the tail: an edit leaves such, a crash does not."""
    tail = os.pread(fd, min(size - kept, 8 * BLOCK), kept)
    edited = sum(_is_whole(line) for line in tail.split(b"\n")[:-1])
    if edited:
        raise DamagedJournalError(_damage(path, edited, kept))


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _end_of_intact(fd: int, size: int, path: Path) -> int:
    """Return where the last intact record ends, before its newline; 0 if there is none."""
    window = BLOCK
    while size:
        start = max(0, size - window)
        end = size
        text = os.pread(fd, size - start, start)
        if len(text) < size - start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        lines = text.split(b"\n")
        if start:
            del lines[0]  # its beginning is outside the window
        for line in reversed(lines):
            if intact(line):
                return end
            end -= len(line) + 1
        if not _ours(os.pread(fd, len(START), 0)):
            raise DamagedJournalError(_foreign(path))
        if not start:
            break
        window *= 2
    return 0


def repair(success: Path, failure: Path, holder: str = "") -> Repaired:
    """Move the damaged lines of both sidecars to `NAME.bad` beside them.

    The rows of the lines moved out of `success` will be sent, and paid, again. `holder`: as for
    `lock`. Raises LockedError, CannotCreateError, StorageError.
    """
    fd = open_append(success)
    try:
        lock(fd, success, holder)
        # The success sidecar comes last: once it is replaced, the lock on the old one is void.
        moved = quarantine(failure)
        return Repaired(success=quarantine(success), failure=moved)
    finally:
        os.close(fd)


def quarantine(path: Path) -> int:
    """Move a sidecar's damaged lines, a torn tail included, to `NAME.bad`; return their number.

    The caller holds the lock. The sidecar is replaced whole, after the bad lines are on the disk.
    """
    damaged = sum(not intact(line) for _, line, _ in _lines(path))
    if damaged:
        _append(_bad(path), (line for _, line, _ in _lines(path) if not intact(line)))
        replace_file(path, (line + b"\n" for _, line, _ in _lines(path) if intact(line)))
    return damaged


def _append(path: Path, lines: Iterator[bytes]) -> None:
    fd = open_append(path)
    try:
        for line in lines:
            with storage(path, "written"):
                write_all(fd, line + b"\n")
        with storage(path, "synced"):
            sync_data(fd)
            fsync_dir(path.parent)
    finally:
        os.close(fd)


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Yield offset, bytes and whether a newline follows, of each line; only 0x0A ends one."""
    with storage(path, "read"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            yield from _split(fd)
        finally:
            os.close(fd)


def _split(fd: int) -> Iterator[tuple[int, bytes, bool]]:
    offset = 0
    unfinished: list[bytes] = []
    while block := os.read(fd, BLOCK):
        *lines, rest = block.split(b"\n")
        if lines:
            lines[0] = b"".join((*unfinished, lines[0]))
            unfinished = []
        for line in lines:
            yield offset, line, True
            offset += len(line) + 1
        unfinished.append(rest)
    if tail := b"".join(unfinished):
        yield offset, tail, False


def _ours(head: bytes) -> bool:
    """Whether a broken first line may be what a crash has left of a record."""
    return START.startswith(head[: len(START)].rstrip(b"\0"))


def _bad(path: Path) -> Path:
    return path.with_name(f"{path.name}.bad")


def _damage(path: Path, lines: int, offset: int) -> str:
    count = "1 damaged line" if lines == 1 else f"{lines} damaged lines"
    return (
        f"{path}: {count} that no crash leaves, the first at byte {offset}; "
        f"--repair moves the damage to {_bad(path).name} and sends those rows again"
    )


def _foreign(path: Path) -> str:
    return (
        f"{path}: is not a sidecar of this version of batchinfer, and was left as it is; "
        "move it away or choose another output prefix"
    )
