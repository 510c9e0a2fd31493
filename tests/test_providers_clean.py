"""Server text, made safe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.providers.clean import clean


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain words", "plain words"),
        ("日本語 🙂", "日本語 🙂"),
        ("two\r\n lines\tand\u2028more", "two  lines and more"),
        ("\x1b[31mred\x1b[0m", "\ufffdred\ufffd"),
        ("\x1b]0;title\x07after", "\ufffdafter"),
        ("\x9b31mred\x07", "\ufffd31mred\ufffd"),
        ("abc\u202edef\u2066g\u2069", "abc\ufffddef\ufffdg\ufffd"),
        ("half \ud83d pair", "half \ufffd pair"),
    ],
)
def test_what_a_terminal_would_obey_is_replaced(text: str, safe: str) -> None:
    assert clean(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        "you sent Authorization: Bearer sk-SECRET456",
        "Authorization: Basic c2VjcmV0MTIz",
        "Incorrect API key provided: SECRET456. See https://example.com",
        "Incorrect API key provided: sk-SECRET456",
        "header x-api-key: SECRET456 refused",
        "GET /v1/models?key=SECRET123&x=1 failed",
        "gsk_SECRET456 is unknown",
    ],
)
def test_what_looks_like_a_key_is_masked(text: str) -> None:
    masked = clean(text)

    assert "***" in masked
    assert "SECRET" not in masked
    assert "c2VjcmV0MTIz" not in masked


@pytest.mark.parametrize(
    "text", ["Missing bearer authentication in header", "a risk-free task-list", "the key is wrong"]
)
def test_ordinary_words_are_not_taken_for_keys(text: str) -> None:
    assert clean(text) == text


def test_a_long_text_is_cut_to_the_limit() -> None:
    assert clean("x" * 501) == "x" * 499 + "…"
    assert clean("x" * 500) == "x" * 500


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_becomes_one_printable_line(text: str) -> None:
    safe = clean(text, 80)

    assert len(safe) <= 80
    assert len(safe.splitlines()) <= 1
    assert "\x1b" not in safe
    safe.encode()
