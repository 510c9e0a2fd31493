import asyncio
from collections.abc import Callable

import pytest
from fakes import MemoryJournal, Recorder, a_failure, a_success, in_virtual_time, now

from batchinfer.dispatch.scribe import GROUP, LINGER, Scribe
from batchinfer.errors import StorageError
from batchinfer.events import Settled
from batchinfer.model import Failure

EACH = 20
"""Outcomes that each worker of a test hands over."""


class Desk:
    """A scribe at work, its journal, and what it has told."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.journal = MemoryJournal(breaks_at)
        self.told = Recorder()
        self.scribe = Scribe(self.journal, self.told)
        self.running = asyncio.create_task(self.scribe.run())

    async def end(self) -> None:
        self.scribe.close()
        await self.running

    @property
    def acknowledged(self) -> list[int]:
        return [event.outcome.row for event in self.told.of(Settled)]


def test_an_outcome_is_acknowledged_only_after_its_commit_has_returned() -> None:
    async def main() -> None:
        desk = Desk()
        seen: list[tuple[int, int]] = []
        commit = desk.journal.commit

        def watching(success: bytes, failure: bytes) -> None:
            seen.append((len(desk.acknowledged), success.count(b"\n") + failure.count(b"\n")))
            commit(success, failure)

        desk.journal.commit = watching  # type: ignore[method-assign]
        for row in range(10):
            await desk.scribe.put(a_success(row))
        await asyncio.sleep(1)
        await desk.scribe.put(a_success(10))
        await desk.end()

        assert seen == [(0, 10), (10, 1)]
        assert desk.acknowledged == list(range(11))
        assert [event.outcome for event in desk.told.events] == desk.journal.outcomes  # type: ignore[union-attr]

    in_virtual_time(main)


def test_successes_and_failures_go_to_their_own_files() -> None:
    async def main() -> None:
        lines: list[tuple[bytes, ...]] = []

        class Journal:
            def commit(self, *both: bytes) -> None:
                lines.append(both)

        told = Recorder()
        scribe = Scribe(Journal(), told)
        running = asyncio.create_task(scribe.run())
        for outcome in (a_success(0), a_failure(1), a_success(2)):
            await scribe.put(outcome)
        scribe.close()
        await running

        [(success, failure)] = lines
        assert [line[:13] for line in success.splitlines()] == [b'{"v":1,"row":', b'{"v":1,"row":']
        assert failure.startswith(b'{"v":1,"row":1,')
        assert [e.outcome.row for e in told.of(Settled)] == [0, 1, 2]
        assert isinstance(told.of(Settled)[1].outcome, Failure)

    in_virtual_time(main)


def test_a_lone_outcome_waits_for_company_and_no_longer() -> None:
    async def main() -> None:
        desk = Desk()
        start = now()
        await desk.scribe.put(a_success(0))
        await asyncio.sleep(LINGER - 0.001)
        assert not desk.acknowledged
        await asyncio.sleep(0.01)
        assert desk.acknowledged == [0]
        assert now() - start < LINGER + 0.02
        await desk.end()

    in_virtual_time(main)


def test_a_full_group_is_written_at_once() -> None:
    async def main() -> None:
        desk = Desk()
        start = now()
        await asyncio.gather(*(desk.scribe.put(a_success(row)) for row in range(GROUP)))
        assert now() - start < LINGER
        assert desk.acknowledged == list(range(GROUP))
        await desk.end()
        assert desk.journal.calls == 1

    in_virtual_time(main)


@pytest.mark.parametrize("workers", [1, 10, 64, 200])
def test_beside_what_workers_hold_in_their_hands_at_most_a_group_is_unsynced(workers: int) -> None:
    async def main() -> None:
        desk = Desk()
        handed, held, most, free = 0, 0, 0, 0

        async def work(first: int) -> None:
            nonlocal handed, held, most, free
            for row in range(first, first + EACH):
                handed += 1
                held += 1
                await desk.scribe.put(a_success(row))
                held -= 1
                unsynced = handed - len(desk.acknowledged)
                most, free = max(most, unsynced), max(free, unsynced - held)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(EACH * number) for number in range(workers)))
        await desk.end()

        assert desk.journal.rows == list(range(EACH * workers))
        assert free < GROUP
        assert most <= GROUP + workers

    in_virtual_time(main)


def test_closing_writes_what_is_there() -> None:
    async def main() -> None:
        desk = Desk()
        for row in range(5):
            await desk.scribe.put(a_success(row))
        start = now()
        await desk.end()

        assert desk.acknowledged == list(range(5))
        assert now() - start < LINGER

    in_virtual_time(main)


def test_closing_in_the_middle_of_a_commit_writes_the_rest_too() -> None:
    async def main() -> None:
        desk = Desk()
        puts = [asyncio.create_task(desk.scribe.put(a_success(row))) for row in range(GROUP + 9)]
        await asyncio.sleep(0)
        desk.scribe.close()
        await desk.running
        await asyncio.gather(*puts)

        assert desk.journal.rows == list(range(GROUP + 9))
        assert len(desk.acknowledged) == GROUP + 9

    in_virtual_time(main)


def test_closing_an_idle_scribe_writes_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        await asyncio.sleep(1)
        await desk.end()

        assert desk.journal.calls == 0

    in_virtual_time(main)


@pytest.mark.parametrize("breaks_at", [0, 1, 2])
def test_after_the_first_error_nothing_is_written_and_nothing_acknowledged(breaks_at: int) -> None:
    async def main() -> None:
        desk = Desk(breaks_at)
        for row in range(4):
            if desk.running.done():
                break
            await desk.scribe.put(a_success(row))
            await asyncio.sleep(1)
        with pytest.raises(StorageError, match="full"):
            await desk.running

        assert desk.acknowledged == list(range(breaks_at))
        assert desk.journal.calls == breaks_at + 1

    in_virtual_time(main)


def test_an_error_frees_the_workers_that_wait_for_room() -> None:
    async def main() -> None:
        desk = Desk(breaks_at=0)
        await asyncio.gather(*(desk.scribe.put(a_success(row)) for row in range(2 * GROUP)))

        with pytest.raises(StorageError):
            await desk.running
        assert desk.acknowledged == []

    in_virtual_time(main)


def test_a_disk_that_is_slower_than_the_workers_slows_them_down_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> list[int]:
        desk = Desk()

        async def work(first: int) -> None:
            for row in range(first, 300, 30):
                await desk.scribe.put(a_success(row))

        await asyncio.gather(*(work(number) for number in range(30)))
        await desk.end()
        assert all(len(commit) <= GROUP + 30 for commit in desk.journal.commits)
        return desk.journal.rows

    monkeypatch.setattr("fakes.VirtualLoop.COMMIT", 5.0)
    assert in_virtual_time(main) == list(range(300))


def test_commits_are_made_in_one_thread_that_is_not_the_loops() -> None:
    import threading

    threads: set[int] = set()

    class Journal:
        def commit(self, *_: bytes) -> None:
            threads.add(threading.get_ident())

    async def main(told: Callable[..., None]) -> None:
        scribe = Scribe(Journal(), told)
        running = asyncio.create_task(scribe.run())
        for row in range(3 * GROUP):
            await scribe.put(a_success(row))
        scribe.close()
        await running

    asyncio.run(main(Recorder()))
    assert len(threads) == 1
    assert threading.get_ident() not in threads
