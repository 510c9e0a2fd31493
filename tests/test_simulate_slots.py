import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.simulate.slots import Slots


def test_those_beyond_the_slots_wait_and_start_in_the_order_they_came() -> None:
    slots: Slots[str] = Slots(2)

    assert [slots.enter(name, 0.0) for name in "abcd"] == [True, True, False, False]
    assert (slots.running, slots.waiting) == (2, 2)
    assert slots.leave("b", 1.0) == "c"
    assert slots.leave("a", 1.0) == "d"
    assert slots.leave("c", 2.0) is None
    assert (slots.running, slots.waiting) == (1, 0)


def test_who_gives_up_in_the_queue_frees_no_slot() -> None:
    slots: Slots[str] = Slots(1)
    for name in "abc":
        slots.enter(name, 0.0)

    assert slots.leave("b", 1.0) is None
    assert (slots.running, slots.waiting) == (1, 1)
    assert slots.leave("a", 2.0) == "c"


def test_without_a_capacity_nobody_waits() -> None:
    slots: Slots[int] = Slots(0)

    assert all(slots.enter(number, 0.0) for number in range(100))
    assert (slots.running, slots.peak, slots.waiting) == (100, 100, 0)


def test_busy_seconds_are_summed_over_the_slots() -> None:
    slots: Slots[str] = Slots(2)
    slots.enter("a", 10.0)
    slots.enter("b", 11.0)
    slots.enter("c", 11.0)
    slots.leave("a", 12.0)
    slots.leave("b", 13.0)
    slots.leave("c", 15.0)

    assert slots.busy_seconds(11.5) == pytest.approx(slots.busy_seconds(99.0))
    assert slots.busy_seconds(99.0) == pytest.approx(2 + 2 + 3)


@given(capacity=st.integers(1, 4), steps=st.lists(st.integers(0, 9), max_size=60))
def test_slots_are_never_overfull_and_never_idle_while_somebody_waits(
    capacity: int, steps: list[int]
) -> None:
    slots: Slots[int] = Slots(capacity)
    started: set[int] = set()
    queued: list[int] = []
    for name, (now, step) in zip(itertools.count(), enumerate(steps), strict=False):
        present = [*started, *queued]
        if step < 5 or not present:
            (started.add if slots.enter(name, float(now)) else queued.append)(name)
        else:
            gone = present[step % len(present)]
            following = slots.leave(gone, float(now))
            started.discard(gone)
            queued = [each for each in queued if each != gone]
            if following is not None:
                assert following == queued.pop(0)
                started.add(following)
        assert slots.running == len(started) <= capacity
        assert slots.waiting == len(queued)
        assert not queued or len(started) == capacity
