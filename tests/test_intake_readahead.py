import asyncio
import threading
from collections.abc import Iterator

import pytest

from batchinfer.errors import BatchinferError, Exit, NoInputError
from batchinfer.intake.lines import Chunk
from batchinfer.intake.readahead import AHEAD, ReadAhead


def chunk(number: int) -> Chunk:
    return Chunk(number, number, 1, (b"x",))


async def drained(ahead: ReadAhead) -> list[int]:
    found = []
    while (got := await ahead.next()) is not None:
        found.append(got.first)
    return found


def reader() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "batchinfer-reader"]


def wait_until_gone() -> None:
    for thread in reader():
        thread.join(10)
        assert not thread.is_alive()


def test_every_chunk_comes_in_order_and_then_the_end() -> None:
    async def main() -> list[int]:
        return await drained(ReadAhead(iter([chunk(n) for n in range(50)])))

    assert asyncio.run(main()) == list(range(50))
    wait_until_gone()


def test_no_more_is_read_than_two_chunks_ahead() -> None:
    read: list[int] = []
    reached = threading.Event()

    def source() -> Iterator[Chunk]:
        for number in range(20):
            read.append(number)
            if len(read) == AHEAD + 1:
                reached.set()
            yield chunk(number)

    async def main() -> list[int]:
        ahead = ReadAhead(source())
        await asyncio.to_thread(reached.wait, 10)
        counts = [len(read)]
        for taken in range(1, 5):
            assert await ahead.next() is not None
            await asyncio.sleep(0.01)
            assert len(read) <= taken + AHEAD + 1
        counts.append(len(await drained(ahead)))
        return counts

    assert asyncio.run(main()) == [AHEAD + 1, 16]
    assert len(read) == 20
    wait_until_gone()


def test_what_the_reader_meets_is_raised_after_the_chunks_before_it() -> None:
    def source() -> Iterator[Chunk]:
        yield chunk(0)
        raise NoInputError("the disk is gone")

    async def main() -> None:
        ahead = ReadAhead(source())
        assert await ahead.next() == chunk(0)
        with pytest.raises(NoInputError, match="the disk is gone"):
            await ahead.next()

    asyncio.run(main())
    wait_until_gone()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_reader_is_never_taken_for_the_end_of_the_input() -> None:
    def source() -> Iterator[Chunk]:
        yield chunk(0)
        raise RuntimeError

    async def main() -> BatchinferError:
        ahead = ReadAhead(source())
        assert await ahead.next() == chunk(0)
        with pytest.raises(BatchinferError, match="reader") as caught:
            await ahead.next()
        return caught.value

    assert asyncio.run(main()).exit_code is Exit.BUG
    wait_until_gone()


def test_after_closing_nothing_more_is_read() -> None:
    read: list[int] = []

    def source() -> Iterator[Chunk]:
        for number in range(1000):
            read.append(number)
            yield chunk(number)

    async def main() -> None:
        ahead = ReadAhead(source())
        await ahead.next()
        ahead.close()

    asyncio.run(main())
    wait_until_gone()
    assert len(read) <= AHEAD + 3


def test_a_reader_that_is_still_waiting_does_not_outlive_its_loop_loudly() -> None:
    silent = threading.Event()

    def source() -> Iterator[Chunk]:
        silent.wait(10)
        yield chunk(0)
        yield chunk(1)

    async def main() -> None:
        ahead = ReadAhead(source())
        assert all(thread.daemon for thread in reader())
        del ahead

    asyncio.run(main())
    silent.set()
    wait_until_gone()
