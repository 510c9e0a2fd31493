import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from fakes import (
    Chunks,
    MemoryJournal,
    Recorder,
    a_failure,
    a_row,
    a_success,
    in_virtual_time,
    now,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from batchinfer.dispatch.feed import MIN_WAITING, Feed
from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.lane import Lane, Seats
from batchinfer.dispatch.pool import Pool
from batchinfer.dispatch.scribe import GROUP, Scribe
from batchinfer.dispatch.work import Abandoned, Again, Done, Step, Stop, Work
from batchinfer.errors import (
    BatchinferError,
    BudgetError,
    ConfigError,
    InterruptedRunError,
    NoInputError,
    QuotaError,
    StorageError,
)
from batchinfer.events import Settled
from batchinfer.flow.pacer import Pacer
from batchinfer.intake.lines import Chunk
from batchinfer.model import Row

Attempt = Callable[[Work], Awaitable[Step]]
GRACE = 25.0


class House:
    """A pool over numbered rows with everything around it."""

    def __init__(
        self,
        attempt: Attempt,
        sizes: list[int],
        concurrency: int = 4,
        breaks_at: int | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.journal = MemoryJournal(breaks_at)
        self.told = Recorder()
        self.alive = 0
        self.most_alive = 0
        self.gate = Gate(Pacer(None, None, None, now()), now)
        feed = Feed(Chunks(sizes, seconds), self._open, lambda: None, concurrency)
        scribe = Scribe(self.journal, self._settle)
        self.pool = Pool(feed, scribe, [Lane(attempt, self.gate, Seats(concurrency))])

    def _open(self, number: int, _: bytes) -> Row:
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        return a_row(number)

    def _settle(self, event: object) -> None:
        assert isinstance(event, Settled)
        self.alive -= 1
        self.told(event)

    async def run(self, grace: float = GRACE) -> None:
        await self.pool.run(grace)

    def stop_at(self, seconds: float, signum: int = 2) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, self.pool.stop, InterruptedRunError(signum))

    @property
    def acknowledged(self) -> list[int]:
        return sorted(event.outcome.row for event in self.told.of(Settled))


def answering(seconds: float = 1.0) -> Attempt:
    async def attempt(work: Work) -> Step:
        await asyncio.sleep(seconds)
        return Done(a_success(work.row.index))

    return attempt


def test_every_row_is_settled_and_nothing_stopped_the_run() -> None:
    async def main() -> None:
        house = House(answering(), [7, 1, 12])
        await house.run()
        assert house.journal.rows == house.acknowledged == list(range(20))
        assert house.pool.reason is None

    in_virtual_time(main)


def test_an_empty_input_is_done_at_once() -> None:
    async def main() -> None:
        house = House(answering(), [])
        start = now()
        await house.run()
        assert now() - start < 1
        assert house.journal.calls == 0

    in_virtual_time(main)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_so_many_rows_are_under_way_as_are_allowed(concurrency: int) -> None:
    async def main() -> float:
        running = most = 0

        async def attempt(work: Work) -> Step:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            return Done(a_success(work.row.index))

        house = House(attempt, [100], concurrency)
        start = now()
        await house.run()
        assert most == concurrency
        return now() - start

    assert in_virtual_time(main) == pytest.approx(-(-100 // concurrency), abs=0.6)


def test_a_straggler_holds_up_nobody() -> None:
    async def main() -> float:
        async def attempt(work: Work) -> Step:
            await asyncio.sleep(50 if work.row.index == 0 else 1)
            return Done(a_success(work.row.index))

        house = House(attempt, [10] * 10, concurrency=2)
        start = now()
        await house.run()
        return now() - start

    # Fifty rows pass beside it, and two workers share the rest.
    assert in_virtual_time(main) == pytest.approx(50 + 49 / 2, abs=1.1)


def test_a_row_that_waits_holds_no_worker() -> None:
    async def main() -> float:
        async def attempt(work: Work) -> Step:
            work.attempts += 1
            if work.row.index < 50 and work.attempts == 1:
                return Again(100.0)
            await asyncio.sleep(1)
            return Done(a_success(work.row.index))

        house = House(attempt, [100], concurrency=1)
        start = now()
        await house.run()
        assert house.journal.rows == list(range(100))
        order = [outcome.row for outcome in house.journal.outcomes]
        assert order[:50] == list(range(50, 100))
        return now() - start

    assert in_virtual_time(main) == pytest.approx(150, abs=1)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), max_size=8),
    concurrency=st.integers(1, 12),
    seed=st.integers(),
    stop_at=st.none() | st.floats(0, 60),
    grace=st.sampled_from([0.0, 1.0, GRACE]),
    force_after=st.none() | st.floats(0, 5),
)
def test_each_row_is_settled_once_or_stays_whatever_happens_in_whatever_order(
    *,
    sizes: list[int],
    concurrency: int,
    seed: int,
    stop_at: float | None,
    grace: float,
    force_after: float | None,
) -> None:
    chance = random.Random(seed)
    begun: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    under_way: set[int] = set()

    async def attempt(work: Work) -> Step:
        row = work.row.index
        assert row not in under_way
        under_way.add(row)
        begun[row] += 1
        try:
            await asyncio.sleep(chance.choice([0, 0.01, 0.5, 3]))
        finally:
            under_way.discard(row)
        match chance.randrange(8):
            case 0 | 1:
                return Again(chance.choice([0, 0.3, 10]))
            case 2:
                ended[row] += 1
                return Done(a_failure(row))
            case 3 if chance.random() < 0.02:
                return Stop(QuotaError())
            case _:
                ended[row] += 1
                return Done(a_success(row))

    async def main() -> House:
        house = House(attempt, sizes, concurrency, seconds=chance.choice([0, 1]))
        if stop_at is not None:
            house.stop_at(stop_at)
            if force_after is not None:
                asyncio.get_running_loop().call_later(stop_at + force_after, house.pool.force)
        await house.run(grace)
        return house

    house = in_virtual_time(main)
    settled = Counter(house.journal.rows)
    assert max(settled.values(), default=1) == 1
    assert settled == ended
    assert house.acknowledged == house.journal.rows
    if house.pool.reason is None:
        assert sorted(settled) == list(range(sum(sizes)))
    assert house.most_alive <= MIN_WAITING + 2 * concurrency + GROUP


def test_the_rows_in_memory_are_bounded_though_all_of_them_wait() -> None:
    async def main() -> House:
        async def attempt(work: Work) -> Step:
            work.attempts += 1
            await asyncio.sleep(0.01)
            return Again(50.0) if work.attempts < 3 else Done(a_success(work.row.index))

        house = House(attempt, [100] * 20, concurrency=10)
        await house.run()
        return house

    house = in_virtual_time(main)
    assert house.journal.rows == list(range(2000))
    assert house.most_alive <= MIN_WAITING + 2 * 10 + GROUP


# ── stopping ─────────────────────────────────────────────────────────────────────────────────


def test_a_stop_lets_what_is_under_way_end_and_leaves_the_rest() -> None:
    async def main() -> None:
        house = House(answering(10.0), [100], concurrency=4)
        start = now()
        house.stop_at(15.0)
        await house.run()
        assert house.journal.rows == list(range(8))
        assert now() - start == pytest.approx(20, abs=0.1)
        assert isinstance(house.pool.reason, InterruptedRunError)

    in_virtual_time(main)


def test_a_stop_waits_no_longer_than_its_grace() -> None:
    async def main() -> None:
        house = House(answering(1000.0), [100], concurrency=4)
        start = now()
        house.stop_at(5.0)
        await house.run(grace=7.0)
        assert now() - start == pytest.approx(12, abs=0.1)
        assert house.journal.rows == []

    in_virtual_time(main)


def test_force_drops_what_is_under_way_and_keeps_what_was_answered() -> None:
    async def main() -> None:
        async def attempt(work: Work) -> Step:
            await asyncio.sleep(1 if work.row.index < 4 else 1000)
            return Done(a_success(work.row.index))

        house = House(attempt, [100], concurrency=4)
        start = now()
        house.stop_at(1.01)
        asyncio.get_running_loop().call_later(3.0, house.pool.force)
        await house.run()
        assert house.journal.rows == house.acknowledged == [0, 1, 2, 3]
        assert now() - start == pytest.approx(3, abs=0.1)

    in_virtual_time(main)


def test_a_stop_does_not_wait_for_an_input_that_is_silent() -> None:
    async def main() -> None:
        house = House(answering(), [5], seconds=1000.0)
        start = now()
        house.stop_at(2.0)
        await house.run()
        assert now() - start == pytest.approx(2, abs=0.1)

    in_virtual_time(main)


def test_the_first_reason_counts() -> None:
    async def main() -> BatchinferError | None:
        house = House(answering(10.0), [100])
        house.stop_at(1.0, signum=15)
        house.stop_at(2.0, signum=2)
        await house.run()
        return house.pool.reason

    reason = in_virtual_time(main)
    assert isinstance(reason, InterruptedRunError)
    assert reason.signum == 15


def test_an_attempt_that_finds_no_row_can_succeed_stops_the_run_and_its_row_stays() -> None:
    async def main() -> None:
        async def attempt(work: Work) -> Step:
            await asyncio.sleep(1 + work.row.index)
            return (
                Stop(BudgetError("spent"))
                if work.row.index == 2
                else Done(a_success(work.row.index))
            )

        house = House(attempt, [100], concurrency=4)
        await house.run()
        assert isinstance(house.pool.reason, BudgetError)
        assert 2 not in house.journal.rows
        assert house.journal.rows == [0, 1, 3, 4, 5]

    in_virtual_time(main)


def test_a_closed_gate_sends_rows_back_unsettled() -> None:
    async def main() -> None:
        house: House

        async def attempt(work: Work) -> Step:
            house.gate.hold(1000.0)
            return Done(a_success(0)) if await house.gate.enter(0.0) else Abandoned()

        house = House(attempt, [3])
        start = now()
        house.stop_at(2.0)
        await house.run()
        assert now() - start == pytest.approx(2, abs=0.1)
        assert house.journal.rows == []

    in_virtual_time(main)


# ── what breaks ──────────────────────────────────────────────────────────────────────────────


def test_a_disk_that_takes_nothing_stops_the_run_at_once() -> None:
    async def main() -> None:
        async def attempt(work: Work) -> Step:
            await asyncio.sleep(1 if work.row.index < 4 else 1000)
            return Done(a_success(work.row.index))

        house = House(attempt, [100], concurrency=4, breaks_at=0)
        start = now()
        await house.run()
        assert isinstance(house.pool.reason, StorageError)
        assert house.acknowledged == []
        assert house.journal.calls == 1
        assert now() - start < 2

    in_virtual_time(main)


def test_a_disk_that_fills_up_under_a_full_load_frees_every_worker() -> None:
    async def main() -> None:
        house = House(answering(0.001), [5000], concurrency=3 * GROUP, breaks_at=2)
        await house.run()
        assert isinstance(house.pool.reason, StorageError)
        assert house.acknowledged == house.journal.rows
        assert len(house.journal.commits) == 2

    in_virtual_time(main)


def test_an_input_that_cannot_be_read_further_lets_what_is_under_way_end() -> None:
    class Broken:
        def __init__(self) -> None:
            self.first = True

        async def next(self) -> Chunk | None:
            if self.first:
                self.first = False
                return Chunk(0, 0, 0, (b"0", b"1"))
            raise NoInputError("the disk is gone")

    async def main() -> None:
        house = House(answering(10.0), [])
        feed = Feed(Broken(), lambda number, _: a_row(number), lambda: None, 4)
        scribe = Scribe(house.journal, house.told)
        pool = Pool(feed, scribe, [Lane(answering(10.0), house.gate, Seats(4))])
        await pool.run(GRACE)
        assert isinstance(pool.reason, NoInputError)
        assert house.journal.rows == [0, 1]

    in_virtual_time(main)


def test_an_error_of_the_family_out_of_an_attempt_is_the_reason() -> None:
    async def main() -> None:
        async def attempt(work: Work) -> Step:
            await asyncio.sleep(1)
            raise ConfigError("a header cannot be sent")

        house = House(attempt, [10])
        await house.run()
        assert isinstance(house.pool.reason, ConfigError)
        assert house.journal.rows == []

    in_virtual_time(main)


class OopsError(Exception):
    """A bug."""


def test_a_bug_in_an_attempt_is_raised_and_what_was_answered_is_kept() -> None:
    async def main() -> None:
        async def attempt(work: Work) -> Step:
            await asyncio.sleep(1)
            if work.row.index == 9:
                raise OopsError
            return Done(a_success(work.row.index))

        house = House(attempt, [100], concurrency=4)
        with pytest.raises(OopsError):
            await house.run()
        assert set(range(8)) <= set(house.journal.rows)
        assert house.acknowledged == house.journal.rows

    in_virtual_time(main)


def test_a_bug_in_opening_a_row_is_raised_wherever_it_is_met() -> None:
    def opening(number: int, _: bytes) -> Row:
        if number == 5:
            raise OopsError
        return a_row(number)

    async def main(size: int) -> None:
        house = House(answering(), [])
        feed = Feed(Chunks([size] * 20), opening, lambda: None, 4)
        pool = Pool(
            feed, Scribe(house.journal, house.told), [Lane(answering(), house.gate, Seats(4))]
        )
        with pytest.raises(OopsError):
            await pool.run(GRACE)

    for size in (1, 2, 5, 50):
        in_virtual_time(lambda size=size: main(size))  # type: ignore[misc]


def test_a_bug_in_an_observer_is_raised() -> None:
    async def main() -> None:
        house = House(answering(0.1), [1000], concurrency=GROUP)

        def sink(_: object) -> None:
            raise OopsError

        feed = Feed(Chunks([1000]), lambda number, _: a_row(number), lambda: None, GROUP)
        pool = Pool(
            feed, Scribe(house.journal, sink), [Lane(answering(0.1), house.gate, Seats(GROUP))]
        )
        with pytest.raises(OopsError):
            await pool.run(GRACE)

    in_virtual_time(main)
