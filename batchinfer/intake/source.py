"""Opening the input: a file, standard input, gzip or zstd, told apart by content.

Owns: `open_input`, decompression of all members or frames, the copy that is kept of an input
which cannot be read twice. Refuses to know: lines and rows.
"""

import gzip
import os
import stat
import sys
import zlib
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from batchinfer.errors import CannotCreateError, NoInputError, StorageError

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


def _chosen(head: bytes, packed: "BufferedReader[FileIO]") -> _Readable | None:
    """Choose by the first bytes: neither magic number can begin a JSON line."""
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=packed)
    if head.startswith(_ZSTD):
        return cast("_Readable", zstd.ZstdFile(packed))
    return None


class _Stream:
    """A pipe: `read` gives what has come, so that a trickle flows; the first read looks at it."""

    def __init__(self, raw: FileIO) -> None:
        self._packed = BufferedReader(raw)
        self._opened: _Readable | None = None

    def read(self, size: int) -> bytes:
        """Return up to `size` decompressed bytes."""
        if self._opened is None:
            self._opened = _chosen(self._packed.peek(4)[:4], self._packed) or self
        if self._opened is self:
            return self._packed.read1(size)
        return self._opened.read(size) or b""

    def close(self) -> None:
        """Let go of the pipe."""
        if self._opened is not None and self._opened is not self:
            self._opened.close()
        self._packed.close()
