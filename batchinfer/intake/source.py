"""Opening the input: a file, standard input, gzip or zstd, told apart by content.

Owns: `open_input`, decompression of all members or frames, the copy that is kept of an input
which cannot be read twice. Refuses to know: lines and rows.
"""

import gzip
import os
import stat
import sys
import zlib
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, cast

from batchinfer.errors import CannotCreateError, NoInputError, StorageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STDIN: Final = "-"
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = (b"\x28\xb5\x2f\xfd", *(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60)))


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...

    def close(self) -> None: ...


class Input:
    """An open input: `read(n)` gives decompressed bytes; `fraction()` how much has been read.

    `exhausted`: it has been read to its end.
    """

    def __init__(self, path: str, raw: BinaryIO | FileIO, stream: _Readable, size: int) -> None:
        self.path = path
        self._raw = raw
        self._stream = stream
        self._size = size
        self._copy: tuple[Path, FileIO] | None = None
        self.exhausted = False

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, b"" at the end; NoInputError when it cannot be read."""
        try:
            block = self._stream.read(size) or b""
        except (OSError, EOFError, zlib.error, zstd.ZstdError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise NoInputError(
                f"cannot read {self.path} further:"
                f" {reason or 'its compressed data is cut short or damaged'};"
                " what was answered is kept, running again continues"
            ) from error
        if self._copy is not None:
            _write(*self._copy, block)
        self.exhausted = not block
        return block

    def keep(self, copy: Path) -> None:
        """Write what is read to `copy` too, for a resume and for the merge."""
        try:
            fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotCreateError(f"cannot create {copy}: {error.strerror}") from error
        self._copy = copy, FileIO(fd, "w")

    def fraction(self) -> float | None:
        """Share of the file's bytes that have been read, None for a stream."""
        return min(1.0, self._raw.tell() / self._size) if self._size else None

    @property
    def plain_size(self) -> int | None:
        """Bytes of the whole input where that is known: a file that is not compressed."""
        return self._size or None if self._stream is self._raw else None

    def close(self) -> None:
        """Close the file (standard input stays open)."""
        self._raw.close()
        self._stream.close()
        if self._copy is not None:
            self._copy[1].close()


def _write(path: Path, target: FileIO, block: bytes) -> None:
    """Write all of it; StorageError, for what is not in the copy cannot be merged later."""
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[target.write(rest) :]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is closed"
        raise StorageError(f"{path} cannot be written: {reason}") from error


def is_stream(path: str) -> bool:
    """Whether the input cannot be read twice: standard input, a pipe, a device."""
    if path == STDIN:
        return True
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def open_input(path: str) -> Input:
    """Open `path` ("-": standard input); NoInputError says why it cannot be read."""
    if path == STDIN:
        raw = FileIO(0, "r", closefd=False)
        return Input("standard input", raw, _Stream(raw), 0)
    try:
        if Path(path).is_dir():
            raise NoInputError(f"{path} is a folder, not a JSONL file")
        raw = FileIO(path, "r")
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror}") from error
    if is_stream(path):
        return Input(path, raw, _Stream(raw), 0)
    return Input(path, raw, _decompressed(raw), os.fstat(raw.fileno()).st_size)


def _decompressed(raw: FileIO) -> _Readable:
    head = os.pread(raw.fileno(), 4, 0)
    # A reader that is made and let go would close the file: it is made only for what is packed.
    return _chosen(head, BufferedReader(raw)) or raw if _is_packed(head) else raw


def _is_packed(head: bytes) -> bool:
    return head.startswith((_GZIP, *_ZSTD))


def _chosen(head: bytes, packed: "BufferedReader[RawIOBase]") -> _Readable | None:
    """Choose by the first bytes: neither magic number can begin a JSON line."""
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=packed)
    if head.startswith(_ZSTD):
        return cast("_Readable", zstd.ZstdFile(packed))
    return None


class _Stream:
    """A pipe: `read` gives what has come, so that a trickle flows; its first bytes tell its kind.

    A plain one has no buffer of its own: a thread that waits in a buffered read holds a lock, on
    which the exit would wait for ever.
    """

    def __init__(self, raw: FileIO) -> None:
        self._raw = raw
        self._begun = False
        self._opened: _Readable | None = None

    def read(self, size: int) -> bytes:
        """Return up to `size` decompressed bytes."""
        if not self._begun:
            self._begun = True
            head = self._raw.read(size) or b""
            if not _is_packed(head):
                return head
            self._opened = _chosen(head, BufferedReader(_Pushed(head, self._raw)))
        if self._opened is None:
            return self._raw.read(size) or b""
        return self._opened.read(size) or b""

    def close(self) -> None:
        """Close what unpacks it."""
        if self._opened is not None:
            self._opened.close()


class _Pushed(RawIOBase):
    """A pipe whose first bytes, already read, come again."""

    def __init__(self, head: bytes, raw: FileIO) -> None:
        self._head = head
        self._raw = raw

    def readable(self) -> bool:
        """Tell the library that reads it that it can."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer with what is there."""
        view = memoryview(buffer)
        block = self._head[: len(view)] or self._raw.read(len(view)) or b""
        self._head = self._head[len(view) :]
        view[: len(block)] = block
        return len(block)
