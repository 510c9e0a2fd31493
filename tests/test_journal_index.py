from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batchinfer.journal.index import KeyIndex

# Few different bytes: equal keys, equal buckets and needles across entry borders are common.
keys = st.lists(st.sampled_from(b"\0\1"), min_size=10, max_size=10).map(
    lambda some: bytes(some) + b"......"
)
VALUES = st.integers(0, 2**24 - 1)


class AgainstADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = KeyIndex(3)
        self.model: dict[bytes, deque[int]] = {}

    @rule(key=keys, value=VALUES | st.sampled_from([0, 1, 256, 257, 65536]))
    def add(self, key: bytes, value: int) -> None:
        self.index.add(key, value)
        self.model.setdefault(key, deque()).append(value)

    @rule(key=keys)
    def pop(self, key: bytes) -> None:
        values = self.model.get(key)

        assert self.index.pop_first(key) == (values.popleft() if values else None)

    @rule(key=keys)
    def look(self, key: bytes) -> None:
        values = self.model.get(key)

        assert self.index.peek(key) == (values[0] if values else None)
        assert (key in self.index) == bool(values)

    @invariant()
    def as_many(self) -> None:
        assert len(self.index) == sum(map(len, self.model.values()))


TestAgainstADict = AgainstADict.TestCase


@given(st.lists(st.tuples(keys, VALUES)))
def test_equal_keys_come_out_first_in_first_out(entries: list[tuple[bytes, int]]) -> None:
    index = KeyIndex(3)
    for key, value in entries:
        index.add(key, value)

    assert [index.pop_first(key) for key, _ in entries] == [
        value
        for position, (key, _) in enumerate(entries)
        for value in [
            [v for k, v in entries if k == key][[k for k, _ in entries[:position]].count(key)]
        ]
    ]
    assert len(index) == 0


def test_without_numbers_it_is_a_multiset() -> None:
    index = KeyIndex()
    key = bytes(16)
    index.add(key)
    index.add(key)

    assert [index.pop_first(key) for _ in range(3)] == [0, 0, None]


def test_a_number_too_wide_is_refused_and_nothing_is_added() -> None:
    index = KeyIndex(1)

    with pytest.raises(OverflowError):
        index.add(bytes(16), 256)
    assert bytes(16) not in index
    assert len(index) == 0


def test_the_numbers_of_a_row_cost_only_their_width() -> None:
    index = KeyIndex(10)
    for number in range(20_000):
        index.add(b"ab" + number.to_bytes(14, "little"), number)

    [bucket] = index._buckets.values()
    assert len(bucket) == 20_000 * 18
