"""Reading replies that are not quite JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.providers.jsontext import EmptyError, UnreadableError, dumps, loads


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'\n\n\r\n {"a": 1} \n', {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'["half \\ud83d pair", "\\udc97"]', ["half \ufffd pair", "\ufffd"]),
        (b'["\\ud83d\\ude00 \\ud83d"]', ["\U0001f600 \ufffd"]),
        (b'["\\\\ud83d", "\\ud83d"]', ["\\ud83d", "\ufffd"]),
        (b'["caf\xe9"]', ["caf\ufffd"]),
        (b'[NaN, Infinity, "\\ud83d"]', [None, None, "\ufffd"]),
    ],
)
def test_what_servers_get_wrong_is_tolerated(body: bytes, value: object) -> None:
    assert loads(body) == value


@pytest.mark.parametrize("body", [b"", b"\n\n\n", b" \r\n\t ", b"\xef\xbb\xbf"])
def test_nothing_but_space_is_an_empty_body(body: bytes) -> None:
    with pytest.raises(EmptyError, match="empty body"):
        loads(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b"data: {}\n\n", "not JSON"),
        (b'{"price": ' + b"9" * 8000 + b"}", "out of range"),
        (b"1e999", "out of range"),
        (b"[" * 100_000 + b"]" * 100_000, "too deeply"),
    ],
)
def test_what_cannot_be_read_says_why_and_shows_nothing(body: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason) as caught:
        loads(body)

    assert len(str(caught.value)) < 60


def test_a_value_too_deep_to_write_is_refused() -> None:
    with pytest.raises(UnreadableError, match="too deeply"):
        dumps(loads(b"[" * 900 + b"]" * 900))


@given(st.binary() | st.text().map(lambda t: json.dumps({"a": t}).encode()))
def test_what_is_read_can_be_written_as_one_line(body: bytes) -> None:
    try:
        line = dumps(loads(body))
    except UnreadableError:
        return

    assert b"\n" not in line
    line.decode()
    assert loads(line) == loads(body)
