import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from fakes import in_virtual_time, now

from batchinfer.dispatch.gate import Gate
from batchinfer.flow.pacer import UTILISATION, Pacer

STEP: Final = 60 / (600 * UTILISATION)
"""Seconds between two requests at 600 a minute."""


def a_gate(rpm: float | None = None, tpm: float | None = None) -> Gate:
    return Gate(Pacer(rpm, tpm, None, now()), now)


async def times(gate: Gate, count: int, cost: float = 0.0) -> list[float]:
    """When each of so many tasks got through, in the order in which they came."""
    start = now()

    async def one() -> float:
        assert await gate.enter(cost)
        return now() - start

    return list(await asyncio.gather(*(one() for _ in range(count))))


def test_without_limits_and_holds_nobody_waits() -> None:
    async def main() -> None:
        gate = a_gate()
        coming = gate.enter(5.0)
        with pytest.raises(StopIteration) as ended:
            coming.send(None)
        assert ended.value.value is True

    in_virtual_time(main)


def test_requests_leave_one_after_the_other_at_the_limit_in_order_of_arrival() -> None:
    found = in_virtual_time(lambda: times_of(lambda: a_gate(rpm=600), 5))

    assert found == pytest.approx([n * STEP for n in range(5)])


async def times_of(make: Callable[[], Gate], count: int, cost: float = 0.0) -> list[float]:
    return await times(make(), count, cost)


def test_a_request_of_many_tokens_keeps_the_next_waiting() -> None:
    found = in_virtual_time(lambda: times_of(lambda: a_gate(tpm=600), 3, 10.0))

    assert found == pytest.approx([0, 10 * STEP, 20 * STEP])


def test_the_tighter_limit_counts() -> None:
    found = in_virtual_time(lambda: times_of(lambda: a_gate(rpm=600, tpm=60), 3, 1.0))

    assert found == pytest.approx([0, 10 * STEP, 20 * STEP])


@pytest.mark.parametrize("rpm", [None, 600.0])
def test_a_hold_stops_everyone_and_the_pacer_lets_them_go(rpm: float | None) -> None:
    async def main() -> list[float]:
        gate = a_gate(rpm)
        gate.hold(30.0)
        return await times(gate, 4)

    step = STEP if rpm else 0.0
    assert in_virtual_time(main) == pytest.approx([30 + n * step for n in range(4)], abs=0.06)


def test_the_longest_hold_counts_also_for_those_who_wait_already() -> None:
    async def main() -> list[float]:
        gate = a_gate()
        gate.hold(10.0)
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, gate.hold, 20.0)
        loop.call_later(6.0, gate.hold, 1.0)
        return await times(gate, 3)

    assert in_virtual_time(main) == pytest.approx([25.0] * 3)


def test_after_a_hold_the_way_is_free() -> None:
    async def main() -> list[float]:
        gate = a_gate()
        gate.hold(10.0)
        await asyncio.sleep(10.0)
        return await times(gate, 2)

    assert in_virtual_time(main) == [0.0, 0.0]


@pytest.mark.parametrize("rpm", [None, 1.0])
def test_closing_turns_away_who_waits_and_who_comes(rpm: float | None) -> None:
    async def main() -> tuple[list[bool], float]:
        gate = a_gate(rpm)
        gate.hold(1000.0)
        start = now()
        asyncio.get_running_loop().call_later(3.0, gate.close)
        entered = await asyncio.gather(*(gate.enter(1.0) for _ in range(5)))
        return [*entered, await gate.enter(1.0)], now() - start

    entered, took = in_virtual_time(main)

    assert entered == [False] * 6
    assert took == pytest.approx(3.0)


def test_a_closed_gate_without_limits_is_closed_too() -> None:
    async def main() -> bool:
        gate = a_gate()
        gate.close()
        return await gate.enter(0.0)

    assert in_virtual_time(main) is False


@pytest.mark.parametrize("cancelled", [0, 1, 3])
def test_who_gives_up_while_waiting_books_nothing_and_blocks_nobody(cancelled: int) -> None:
    async def main() -> list[float]:
        gate = a_gate(rpm=600)
        start = now()
        await gate.enter(0.0)
        through: list[float] = []

        async def one() -> None:
            assert await gate.enter(0.0)
            through.append(now() - start)

        tasks = [asyncio.create_task(one()) for _ in range(4)]
        await asyncio.sleep(STEP / 2)
        tasks[cancelled].cancel()
        await asyncio.wait(tasks)
        return through

    assert in_virtual_time(main) == pytest.approx([STEP, 2 * STEP, 3 * STEP])


@pytest.mark.parametrize("rpm", [60, 600, 6000])
@pytest.mark.parametrize("late", [0.0, 0.005, 0.02])
def test_late_timers_do_not_lower_the_rate(rpm: int, late: float) -> None:
    count = rpm // 2 + 1

    found = in_virtual_time(lambda: times_of(lambda: a_gate(rpm), count), lambda: late)

    assert 0.97 * rpm <= (count - 1) / found[-1] * 60 <= 0.985 * rpm


def test_a_long_hold_is_not_made_up_for_by_a_burst() -> None:
    async def main() -> list[float]:
        gate = a_gate(rpm=600)
        await gate.enter(0.0)
        gate.hold(300.0)
        return await times(gate, 20)

    found = in_virtual_time(main)

    assert found[0] == pytest.approx(300.0)
    assert found[-1] - found[0] >= 18 * STEP
