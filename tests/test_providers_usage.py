"""Token counts of replies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.model import NO_USAGE, Usage
from batchinfer.providers.usage import usage_of


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, NO_USAGE),
        ([], NO_USAGE),
        ("many", NO_USAGE),
        ({}, NO_USAGE),
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(10, 2)),
        ({"prompt_tokens": None, "completion_tokens": 2}, Usage(None, 2)),
        ({"prompt_tokens": "10", "completion_tokens": " 2 "}, Usage(10, 2)),
        ({"prompt_tokens": 10.0, "completion_tokens": 2.5}, Usage(10, None)),
        ({"prompt_tokens": -1, "completion_tokens": True}, NO_USAGE),
        ({"prompt_tokens": "ten", "completion_tokens": "-2"}, NO_USAGE),
        ({"prompt_tokens": 2**60, "completion_tokens": 1e300}, NO_USAGE),
        ({"input_tokens": 10, "output_tokens": 2}, Usage(10, 2)),
        ({"total_tokens": 7}, Usage(7)),
        (
            {
                "prompt_tokens": 2006,
                "completion_tokens": 300,
                "prompt_tokens_details": {"cached_tokens": 1920},
            },
            Usage(2006, 300, 1920),
        ),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, cached=5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": None}, Usage(5)),
        ({"prompt_tokens_details": {"cached_tokens": 9}}, NO_USAGE),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
            Usage(9, cached=4),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 30,
                "total_tokens": 39,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(9, 30, reasoning=20),
        ),
    ],
)
def test_counts_are_read_or_unknown(usage: object, expected: Usage) -> None:
    assert usage_of({"usage": usage}) == expected


def test_a_reply_without_usage_has_unknown_counts() -> None:
    assert usage_of({}) == NO_USAGE


@pytest.mark.parametrize(("output", "total"), [(5, 114), (30, 139), (5, None)])
def test_reasoning_that_a_server_counts_beside_the_output_is_added(
    output: int, total: int | None
) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": output,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": 100},
    }

    assert usage_of({"usage": usage}) == Usage(9, output + 100, None, 100)


_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_COUNTS = st.integers(-5, 5000) | st.sampled_from(["7", "x", 3.0, 3.5]) | _VALUES
_DETAILS = st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens"]), _COUNTS)
_NAMES = st.sampled_from(
    ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_cache_hit_tokens"]
)


@given(
    st.dictionaries(_NAMES, _COUNTS),
    st.dictionaries(
        st.sampled_from(["prompt_tokens_details", "completion_tokens_details"]),
        _DETAILS | _VALUES,
    ),
)
def test_parts_never_exceed_their_whole(counts: dict[str, Any], details: dict[str, Any]) -> None:
    usage = usage_of({"usage": counts | details})

    assert all(n is None or n >= 0 for n in (usage.input, usage.output))
    assert 0 <= (usage.cached or 0) <= (usage.input or 0)
    assert 0 <= (usage.reasoning or 0) <= (usage.output or 0)
