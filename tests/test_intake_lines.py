import io
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchinfer.intake import lines
from batchinfer.intake.lines import BOM, READ_SIZE, Chunk, chunks

WIDE = 1 << 30
BLOCKS = st.lists(st.binary(min_size=1, max_size=40) | st.sampled_from([b"\n", b"\n\n", b"\r\n"]))


def read(blocks: list[bytes], max_line: int = WIDE) -> list[Chunk]:
    left = iter(blocks)
    return list(chunks(lambda _: next(left, b""), max_line))


def lines_of(found: list[Chunk]) -> list[bytes]:
    return [line for chunk in found for line in chunk.lines]


def expected(data: bytes) -> list[bytes]:
    """What a newline ends is a line, and so is what is left after the last."""
    whole = data.removeprefix(BOM).split(b"\n")
    return whole[:-1] if not data or data.endswith(b"\n") else whole


@given(BLOCKS)
@example([b"\xef", b"\xbb", b"\xbf", b"a\nb"])
@example([BOM])
@example([b"a\r\nb\xe2\x80\xa8c\x0bd\x85\n"])
def test_lines_are_the_same_however_the_input_is_split_into_blocks(blocks: list[bytes]) -> None:
    assert lines_of(read(blocks)) == expected(b"".join(blocks))


@given(BLOCKS)
def test_chunks_follow_each_other_without_a_gap_in_bytes_and_in_numbers(
    blocks: list[bytes],
) -> None:
    found = read(blocks)
    data = b"".join(blocks)
    offset = first = 0

    for chunk in found:
        assert (chunk.offset, chunk.first) == (offset, first)
        place = data[offset : offset + chunk.length]
        mark = BOM if place.startswith(BOM) and not offset else b""
        assert mark + b"\n".join(chunk.lines) == place.removesuffix(b"\n")
        offset += chunk.length
        first += len(chunk.lines)

    assert offset == len(data)


def test_the_last_line_needs_no_newline() -> None:
    [chunk] = read([b"a\nbc"])[1:]

    assert chunk == Chunk(1, 2, 2, (b"bc",))


def test_an_empty_input_has_no_chunk() -> None:
    assert read([]) == []


def test_a_byte_order_mark_is_no_content_at_the_start_and_content_elsewhere() -> None:
    found = lines_of(read([BOM + b"a\n" + BOM + b"b\n"]))

    assert found == [b"a", BOM + b"b"]


def test_only_a_line_feed_ends_a_line() -> None:
    text = "a\r\u2028\u2029\u0085\v\f\x1c\x1d\x1eb".encode()

    assert lines_of(read([text + b"\n"])) == [text]


def test_an_empty_line_counts() -> None:
    [chunk] = read([b"a\n\n\nb\n"])

    assert chunk.lines == (b"a", b"", b"", b"b")


@given(
    before=st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    size=st.integers(0, 3 * 64),
    after=st.binary(max_size=20),
    step=st.integers(1, 200),
    marked=st.booleans(),
)
def test_a_line_over_the_bound_is_cut_to_one_byte_more_wherever_the_blocks_end(
    before: bytes, size: int, after: bytes, step: int, marked: bool
) -> None:
    data = (BOM if marked else b"") + before + b"x" * size + b"\n" + after
    left = iter([data[at : at + step] for at in range(0, len(data), step)])
    kept, lines.READ_SIZE = lines.READ_SIZE, 64  # type: ignore[misc]
    try:
        found = list(chunks(lambda _: next(left, b""), 50))
    finally:
        lines.READ_SIZE = kept  # type: ignore[misc]

    assert lines_of(found) == [line[:51] for line in expected(data)]
    assert sum(chunk.length for chunk in found) == len(data)


def test_an_endless_line_is_read_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    max_line, blocks = 1000, 400
    largest = 0

    def endless() -> Iterator[bytes]:
        for _ in range(blocks):
            yield b"x" * READ_SIZE
        yield b"\n{}\n"

    feed = endless()
    original = lines._bound

    def watching(tail: list[bytes], bound: int) -> int:
        nonlocal largest
        dropped = original(tail, bound)
        largest = max(largest, sum(map(len, tail)))
        return dropped

    monkeypatch.setattr(lines, "_bound", watching)
    seen = list(chunks(lambda _: next(feed, b""), max_line))

    assert largest <= max_line + READ_SIZE
    assert lines_of(seen) == [b"x" * (max_line + 1), b"{}"]
    assert seen[0].length == blocks * READ_SIZE + 4


def test_blocks_are_asked_for_by_the_read_size() -> None:
    asked: list[int] = []
    source = io.BytesIO(b"a\n")

    def recording(size: int) -> bytes:
        asked.append(size)
        return source.read(size)

    assert lines_of(list(chunks(recording, WIDE))) == [b"a"]
    assert asked == [READ_SIZE, READ_SIZE]
