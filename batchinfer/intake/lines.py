"""Bytes to lines to chunks.

Owns: where a line ends (byte 0x0A and nothing else), the read-ahead block (Chunk), the bound on a
line's length. Refuses to know: files, JSON, what a line means. A record separator of Unicode
(U+2028, U+0085) or a lone CR is content.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

READ_SIZE: Final = 256 * 1024
"""Bytes asked of the input at a time; a chunk is what such a read completes."""

BOM: Final = b"\xef\xbb\xbf"


class Chunk(Struct, frozen=True):
    """A block of whole lines, without their ends.

    `first` is the 0-based number of its first line, `offset` and `length` its place in the
    (decompressed) input in bytes. A line over the bound is cut to one byte more than it allows.
    """

    first: int
    offset: int
    length: int
    lines: tuple[bytes, ...]


def chunks(read: Callable[[int], bytes], max_line: int) -> Iterator[Chunk]:
    """Yield the lines of an input as chunks; `read(n)` returns up to n bytes, b"" at the end."""
    first = offset = dropped = 0
    tail: list[bytes] = []
    while block := read(READ_SIZE):
        cut = block.rfind(b"\n")
        if cut < 0:
            tail.append(block)
            dropped += _bound(tail, max_line)
            continue
        whole = b"".join([*tail, block[: cut + 1]])
        tail = [block[cut + 1 :]]
        length = dropped + len(whole)
        yield (chunk := _chunk(first, offset, length, whole, max_line))
        first, offset, dropped = first + len(chunk.lines), offset + length, 0
    if rest := b"".join(tail):
        yield _chunk(first, offset, dropped + len(rest), rest + b"\n", max_line)


def _chunk(first: int, offset: int, length: int, whole: bytes, max_line: int) -> Chunk:
    if first == 0:
        whole = whole.removeprefix(BOM)
    lines = whole.split(b"\n")
    lines.pop()
    if len(whole) > max_line:
        lines = [line[: max_line + 1] for line in lines]
    return Chunk(first, offset, length, tuple(lines))


def _bound(tail: list[bytes], max_line: int) -> int:
    """Drop what a line has beyond the bound, so that it costs no memory; return how many bytes."""
    held = sum(map(len, tail))
    if held <= max_line + READ_SIZE:
        return 0
    tail[:] = [b"".join(tail)[: len(BOM) + max_line + 1]]
    return held - len(tail[0])
