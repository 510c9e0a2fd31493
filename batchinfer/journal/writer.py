"""The one writer of a job's sidecars: append, sync, and only then say so.

Owns: the two descriptors and the lock, from opening to closing; that a commit is on the disk when
it returns; that nothing is written after the first failure. Refuses to know: what a line holds,
when to commit, threads (one at a time may call).
"""

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from batchinfer.errors import StorageError
from batchinfer.journal.files import fsync_dir, lock, open_append, storage, sync_data, write_all
from batchinfer.journal.replay import heal


class JournalWriter:
    """The success and failure sidecars, open for appending, locked and healed.

    `healed` is the number of bytes that torn tails had left behind. `holder` is who is believed to
    have the lock, for the message. Raises LockedError (not a byte is changed then),
    CannotCreateError, StorageError, DamagedJournalError.
    """

    def __init__(self, success: Path, failure: Path, holder: str = "") -> None:
        with contextlib.ExitStack() as opened:
            self._success = opened.enter_context(_Sidecar(success))
            lock(self._success.fd, success, holder)
            self._failure = opened.enter_context(_Sidecar(failure))
            self.healed = self._success.heal() + self._failure.heal()
            for directory in {success.parent, failure.parent}:
                with storage(directory, "synced"):
                    fsync_dir(directory)
            self._opened = opened.pop_all()
        self._failed: StorageError | None = None

    def commit(self, success: bytes, failure: bytes) -> None:
        """Append whole lines to each sidecar; when this returns they are on the disk.

        Raises StorageError at the first write or sync that fails, and again for every later call.
        """
        if self._failed is not None:
            raise self._failed
        try:
            self._success.append(success)
            self._failure.append(failure)
        except StorageError as error:
            self._failed = error
            raise

    def close(self) -> None:
        """Close both sidecars, which frees the lock. What was not committed is not written."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Sidecar:
    """One append-only file; `size` is how far it is known to be on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = open_append(path)
        self.size = 0

    def heal(self) -> int:
        cut = heal(self.fd, self.path)
        # What a killed process wrote may still be in memory only, and is about to be relied on.
        with storage(self.path, "synced"):
            sync_data(self.fd)
            self.size = os.fstat(self.fd).st_size
        return cut

    def append(self, lines: bytes) -> None:
        if not lines:
            return
        with storage(self.path, "written"):
            try:
                write_all(self.fd, lines)
            except OSError:
                self._cut_torn_line(lines)
                raise
        with storage(self.path, "synced"):
            try:
                sync_data(self.fd)
            except OSError:
                self._cut(self.size)
                raise
        self.size += len(lines)

    def _cut_torn_line(self, lines: bytes) -> None:
        """Keep the records that still fitted: they are paid for, though never acknowledged."""
        with contextlib.suppress(OSError):
            written = os.fstat(self.fd).st_size - self.size
            self._cut(self.size + lines.rfind(b"\n", 0, written) + 1)

    def _cut(self, size: int) -> None:
        # If even this fails, the next start finds the torn tail and heals it.
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self.fd)
        self.fd = -1
