"""Token counts of OpenAI-compatible replies.

Owns: the names of the counts and the habits of servers (strings, nulls, reasoning counted beside
the output). Refuses to know: prices. An odd count is unknown (None), never zero and never a
reason to lose an answer.
"""

from collections.abc import Mapping
from typing import Final

from batchinfer.model import NO_USAGE, Usage

_MOST: Final = 2**53
_MOST_DIGITS: Final = 15
_NONE: Final[Mapping[str, object]] = {}


def usage_of(payload: Mapping[str, object]) -> Usage:
    """Read the `usage` member of a reply: `cached` is part of `input`, `reasoning` of `output`."""
    usage = payload.get("usage")
    if not isinstance(usage, dict) or not usage:
        return NO_USAGE
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    output = _first(usage, "completion_tokens", "output_tokens")
    total = _count(usage.get("total_tokens"))
    if prompt is None and output is None:
        prompt = total  # Voyage counts nothing else
    return Usage(
        prompt,
        _with_reasoning(
            output, (prompt or 0) + (output or 0), total, reasoning := _reasoning(usage)
        ),
        _cached(usage, prompt),
        reasoning if output is not None else None,
    )


def _cached(usage: Mapping[str, object], prompt: int | None) -> int | None:
    cached = _count(_part(usage, "prompt_tokens_details").get("cached_tokens"))
    if cached is None:
        cached = _count(usage.get("prompt_cache_hit_tokens"))
    return None if cached is None or prompt is None else min(cached, prompt)


def _reasoning(usage: Mapping[str, object]) -> int | None:
    return _count(_part(usage, "completion_tokens_details").get("reasoning_tokens"))


def _with_reasoning(
    output: int | None, known: int, total: int | None, reasoning: int | None
) -> int | None:
    """Add the reasoning to the output of servers that count it beside it (xAI)."""
    if output is None or not reasoning:
        return output
    beside = reasoning > output or total == known + reasoning
    return output + reasoning if beside else output


def _part(usage: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = usage.get(name)
    return part if isinstance(part, dict) else _NONE


def _first(usage: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        if (count := _count(usage.get(name))) is not None:
            return count
    return None


def _count(value: object) -> int | None:
    if type(value) is int:
        return value if 0 <= value < _MOST else None
    if isinstance(value, float):
        return int(value) if 0 <= value < _MOST and value.is_integer() else None
    if isinstance(value, str) and len(value) <= _MOST_DIGITS:
        digits = value.strip()
        return int(digits) if digits.isascii() and digits.isdigit() else None
    return None
