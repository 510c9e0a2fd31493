import asyncio

import pytest
from fakes import Chunks, StuckError, a_row, in_virtual_time, now

from batchinfer.dispatch.feed import MIN_WAITING, Feed
from batchinfer.dispatch.work import Work
from batchinfer.errors import NoInputError
from batchinfer.intake.lines import Chunk
from batchinfer.model import Row


class Store:
    """A feed over numbered lines, its pump running; rows in `skipped` need nothing."""

    def __init__(
        self,
        sizes: list[int],
        concurrency: int = 4,
        seconds: float = 0.0,
        skipped: range = range(0),
    ) -> None:
        self.opened: list[int] = []
        self.ends = 0
        self.skipped = skipped
        self.chunks = Chunks(sizes, seconds)
        self.feed = Feed(self.chunks, self._open, self._end, concurrency)
        self.pump = asyncio.create_task(self.feed.pump())

    def _open(self, number: int, line: bytes) -> Row | None:
        assert int(line) == number
        self.opened.append(number)
        return None if number in self.skipped else a_row(number)

    def _end(self) -> None:
        self.ends += 1

    async def take(self) -> Work:
        work = await self.feed.take()
        assert work is not None
        return work

    async def drain(self) -> list[int]:
        found = []
        while (work := await self.feed.take()) is not None:
            found.append(work.row.index)
            self.feed.done()
        await self.pump
        return found


def test_rows_come_in_the_order_of_the_input_and_then_nothing() -> None:
    async def main() -> None:
        store = Store([3, 1, 5, 1])
        assert await store.drain() == list(range(10))
        assert store.ends == 1
        assert await store.feed.take() is None

    in_virtual_time(main)


def test_an_empty_input_ends_at_once() -> None:
    async def main() -> None:
        store = Store([])
        assert await store.drain() == []
        assert store.ends == 1

    in_virtual_time(main)


def test_lines_that_need_nothing_are_passed_over() -> None:
    async def main() -> None:
        assert await Store([3, 3, 3], skipped=range(1, 7)).drain() == [0, 7, 8]
        assert await Store([3, 3], skipped=range(6)).drain() == []

    in_virtual_time(main)


def test_a_chunk_is_asked_for_only_when_the_one_before_is_used_up() -> None:
    async def main() -> None:
        store = Store([2] * 50)
        for number in range(10):
            assert (await store.take()).row.index == number
            await asyncio.sleep(1)
            assert store.chunks.taken <= number // 2 + 1
            assert len(store.opened) == number + 1
        store.feed.stop()
        await store.pump

    in_virtual_time(main)


def test_workers_wait_for_input_that_is_slow_to_come() -> None:
    async def main() -> None:
        store = Store([1, 1, 1], seconds=10.0)
        found = await asyncio.gather(*(store.feed.take() for _ in range(3)))
        assert [work.row.index for work in found if work] == [0, 1, 2]
        for _ in range(3):
            store.feed.done()
        assert await store.drain() == []

    in_virtual_time(main)


def test_a_row_that_waits_comes_first_when_its_time_is_over_and_not_before() -> None:
    async def main() -> None:
        store = Store([4])
        first = await store.take()
        store.feed.later(first, 5.0)
        second = await store.take()
        assert second.row.index == 1
        await asyncio.sleep(5.0)
        assert await store.take() is first
        for work in (first, second):
            store.feed.later(work, 0.0)
        assert [(await store.take()).row.index for _ in range(4)] == [0, 1, 2, 3]
        store.feed.stop()
        await store.pump

    in_virtual_time(main)


def test_an_idle_worker_is_woken_when_a_wait_is_over() -> None:
    async def main() -> None:
        store = Store([1])
        start = now()
        work = await store.take()
        store.feed.later(work, 30.0)
        assert await store.take() is work
        assert now() - start == pytest.approx(30.0)
        store.feed.done()
        assert await store.drain() == []

    in_virtual_time(main)


def test_a_shorter_wait_that_comes_later_is_not_overslept() -> None:
    async def main() -> None:
        store = Store([2])
        start = now()
        one, two = await store.take(), await store.take()
        idle = asyncio.create_task(store.take())
        store.feed.later(one, 30.0)
        await asyncio.sleep(1)
        store.feed.later(two, 2.0)
        assert await idle is two
        assert now() - start == pytest.approx(3.0)
        store.feed.stop()
        await store.pump

    in_virtual_time(main)


def test_the_end_comes_only_when_nothing_waits_and_nothing_is_out() -> None:
    async def main() -> None:
        store = Store([2])
        one, two = await store.take(), await store.take()
        idle = asyncio.create_task(store.feed.take())
        await asyncio.sleep(1)
        store.feed.done()
        await asyncio.sleep(1)
        assert not idle.done()
        store.feed.later(two, 1.0)
        assert await idle is two
        store.feed.done()
        assert await store.feed.take() is None
        assert one is not two
        await store.pump

    in_virtual_time(main)


@pytest.mark.parametrize("concurrency", [1, 100])
def test_a_bounded_number_of_rows_waits_before_fresh_ones_are_held_back(concurrency: int) -> None:
    async def main() -> None:
        bound = max(MIN_WAITING, 4 * concurrency)
        store = Store([2000], concurrency=concurrency)
        for number in range(bound):
            work = await store.take()
            assert work.row.index == number
            store.feed.later(work, 100.0)
        start = now()
        assert (await store.take()).row.index == 0
        assert now() - start == pytest.approx(100.0)
        assert len(store.opened) == bound
        store.feed.stop()
        await store.pump

    in_virtual_time(main)


def test_stopping_sends_everyone_home_and_leaves_the_rest() -> None:
    async def main() -> None:
        store = Store([1], seconds=5.0)
        idle = [asyncio.create_task(store.feed.take()) for _ in range(3)]
        await asyncio.sleep(1)
        store.feed.stop()
        assert await asyncio.gather(*idle) == [None] * 3
        assert await store.feed.take() is None
        assert store.ends == 0
        assert store.opened == []
        store.pump.cancel()
        await asyncio.wait([store.pump])

    in_virtual_time(main)


def test_what_was_stopped_is_not_said_to_be_read_to_its_end() -> None:
    async def main() -> None:
        store = Store([3, 3])
        await store.take()
        store.feed.stop()
        await store.pump
        store.feed.done()
        assert store.ends == 0

    in_virtual_time(main)


def test_work_for_a_worker_that_was_sent_away_meanwhile_goes_to_another() -> None:
    async def main() -> None:
        store = Store([2], seconds=5.0)
        idle = [asyncio.create_task(store.feed.take()) for _ in range(3)]
        await asyncio.sleep(1)
        idle[0].cancel()
        await asyncio.sleep(9)
        found = [work.row.index for task in idle[1:] if (work := task.result())]
        assert sorted(found) == [0, 1]
        for _ in found:
            store.feed.done()
        assert await store.drain() == []

    in_virtual_time(main)


def test_input_that_breaks_is_the_pumps_error() -> None:
    class Broken:
        async def next(self) -> Chunk | None:
            raise NoInputError("gone")

    async def main() -> None:
        feed = Feed(Broken(), lambda number, _: a_row(number), lambda: None, 1)
        with pytest.raises(NoInputError, match="gone"):
            await feed.pump()

    in_virtual_time(main)


def test_the_virtual_loop_sees_that_everyone_waits_for_ever() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        in_virtual_time(main)
