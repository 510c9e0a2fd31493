"""Bytes on the disk: whole writes, syncs, the lock, atomic replacement of a whole file.

Owns: the system calls of every file that a run leaves behind, and which error each failure is.
Refuses to know: what the bytes mean.
"""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from batchinfer.errors import BatchinferError, CannotCreateError, LockedError, StorageError

PRIVATE: Final = 0o600
BLOCK: Final = 1 << 20

_DISK_TROUBLE: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE}
)
"""Failures to open or rename that say something about the disk and not about the path."""

_NO_DIRECTORY_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP})
"""What file systems answer that cannot sync a directory; there is nothing better to do there."""


@contextlib.contextmanager
def storage(path: Path, done: str) -> Iterator[None]:
    """Turn an OSError of the block into a StorageError: `path` cannot be `done`."""
    try:
        yield
    except OSError as error:
        raise StorageError(_sentence(path, done, error)) from error


@contextlib.contextmanager
def creation(path: Path, done: str) -> Iterator[None]:
    """Turn an OSError of the block into CannotCreateError, or StorageError if the disk is ill."""
    try:
        yield
    except OSError as error:
        kind: type[BatchinferError] = (
            StorageError if error.errno in _DISK_TROUBLE else CannotCreateError
        )
        raise kind(_sentence(path, done, error)) from error


def _sentence(path: Path, done: str, error: OSError) -> str:
    return f"{path}: cannot be {done}: {error.strerror or 'unknown system error'}"


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: a full disk shows first as a short write. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_data(fd: int) -> None:
    """Return when the file's bytes and length are on the disk. Raises OSError."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def fsync_dir(directory: Path) -> None:
    """Return when the directory's names are on the disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(fd)


def open_append(path: Path) -> int:
    """Open, or create for this user alone, a regular file to read and append to.

    Raises CannotCreateError (also for a symbolic link, a pipe or a device) or StorageError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with creation(path, "opened for writing"):
        fd = os.open(path, flags, PRIVATE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise CannotCreateError(f"{path}: is not a regular file")
    return fd


def lock(fd: int, path: Path, holder: str = "") -> None:
    """Take the lock of the file `fd`, opened at `path`, at once or not at all.

    The kernel frees it when the last copy of `fd` is closed, however the process dies. `holder`
    says who is believed to have it ("pid 12 on host a"). Raises LockedError, CannotCreateError.
    """
    try:
        with creation(path, "locked"):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except CannotCreateError as error:
        if isinstance(error.__cause__, BlockingIOError):
            who = f" ({holder})" if holder else ""
            raise LockedError(f"{path}: another process is at work on it{who}") from None
        raise
    # Whoever held the lock may have put another file in this one's place.
    if not _is_at(path, fd):
        raise LockedError(f"{path}: another process has just replaced it; run again")


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def replace_file(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace the file at `path`, or create it: the old whole file or the new whole file.

    When this returns, the new one is on the disk. When it raises, or `chunks` does, the old one is
    untouched. A process that dies on the way leaves a hidden temporary file beside it, which the
    next replacement removes. Raises CannotCreateError, StorageError, LockedError.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    fd = _create_temporary(temporary)
    try:
        for block in _blocks(chunks):
            with storage(path, "written"):
                write_all(fd, block)
        with storage(path, "synced"):
            os.fsync(fd)
        with creation(path, "replaced"):
            temporary.replace(path)
    finally:
        if _is_at(temporary, fd):
            with contextlib.suppress(OSError):
                temporary.unlink()
        os.close(fd)
    with storage(path, "synced"):
        fsync_dir(path.parent)


def _create_temporary(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with creation(path, "created"):
        try:
            fd = os.open(path, flags, PRIVATE)
        except FileExistsError:
            _remove_stale(path)
            fd = os.open(path, flags, PRIVATE)
    try:
        lock(fd, path)
    except BatchinferError:
        os.close(fd)
        raise
    return fd


def _remove_stale(path: Path) -> None:
    fd = open_append(path)
    try:
        lock(fd, path)
        path.unlink()
    finally:
        os.close(fd)


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Gather small chunks, so that a line costs no system call of its own."""
    gathered: list[bytes] = []
    size = 0
    for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= BLOCK:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
