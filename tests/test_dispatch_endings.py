import json

import pytest
from fakes import a_bad_row, a_row
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from batchinfer.dispatch.endings import Price, failed, hushed, names_model, one_line, succeeded
from batchinfer.dispatch.work import Work
from batchinfer.model import (
    NO_USAGE,
    Accept,
    Answer,
    Dialogue,
    ErrorClass,
    Failure,
    Halt,
    Problem,
    Row,
    Success,
    Usage,
    Verbatim,
)

PRICE = Price(0.5, 12.5, "2026-01-01T00:00:00.000Z")
ANSWER = Answer(b'"yes"', Usage(3, 2), "stop", "m", "req-1")
TOOK = {"attempts": 2, "rate_limited": 3, "ambiguous": 1, "wasted": 40}


def test_an_answered_row_carries_what_it_took() -> None:
    row = a_row(7)

    assert succeeded(Work(row, **TOOK), ANSWER, PRICE, None) == Success(
        row=7,
        id="r7",
        key=row.key,
        latency_ms=12.5,
        cost_usd=0.5,
        at=PRICE.at,
        answer=ANSWER,
        **TOOK,  # type: ignore[arg-type]
    )


def test_a_failed_row_carries_what_it_took_and_why() -> None:
    row, problem = a_bad_row(7), Problem(ErrorClass.TIMEOUT, "slow", 504, "x")

    assert failed(Work(row, **TOOK), problem, PRICE, Usage(9)) == Failure(
        row=7,
        id=None,
        key=row.key,
        latency_ms=12.5,
        cost_usd=0.5,
        at=PRICE.at,
        problem=problem,
        usage=Usage(9),
        **TOOK,
    )
    assert failed(Work(row), problem, PRICE).usage == NO_USAGE


def test_a_whole_reply_is_kept_where_it_is_given() -> None:
    assert succeeded(Work(a_row(1)), ANSWER, PRICE, b'{"a": 1}').response == b'{"a": 1}'


def test_a_reply_nested_beyond_reading_is_kept_as_a_string() -> None:
    deep = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"

    assert json.loads(one_line(deep)) == deep.decode()


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"a": 1.50, "b":"\\u00e9"}', b'{"a": 1.50, "b":"\\u00e9"}'),
        (b'{\n "a": 1\r\n}', b'{"a":1}'),
        (b'{"a": NaN}', b'{"a":null}'),
        (b'{"a": "\xff"}', '{"a":"�"}'.encode()),
        (b"<html>\xff</html>\n", '"<html>�</html>"'.encode()),
        (b"", b'""'),
    ],
)
def test_a_reply_becomes_one_line_of_json(body: bytes, line: bytes) -> None:
    assert one_line(body) == line


@given(st.binary())
def test_any_reply_becomes_one_line_of_json(body: bytes) -> None:
    line = one_line(body)

    json.loads(line)
    assert b"\n" not in line
    assert b"\r" not in line


@pytest.mark.parametrize(
    ("row", "own"),
    [
        (a_row(1, members={"model": "x"}), True),
        (a_row(1), False),
        (Row(1, None, b"", Dialogue((), {"model": Raw(b'"x"')})), True),
        (Row(1, None, b"", Dialogue(())), False),
        (Row(1, None, b"", Verbatim(b'{"model":"x"}', "/v1/x")), True),
    ],
)
def test_a_row_may_choose_its_own_model(row: Row, own: bool) -> None:
    assert names_model(row) is own


def test_a_secret_that_the_server_repeats_is_blotted_out_of_its_message() -> None:
    halt = Halt(
        Problem(ErrorClass.AUTH, "bad key sk-secret, sk-secret and hush-hush", 401, "sk-secret")
    )

    assert hushed(halt, ("sk-secret", "hush-hush"), ()) == Halt(
        Problem(ErrorClass.AUTH, "bad key ***, *** and ***", 401, "***")
    )


def test_a_key_is_blotted_out_of_an_answer_and_its_names() -> None:
    answer = Answer(b'"it is sk-1234567"', Usage(1, 1), "stop", "m", "req-sk-1234567")
    verdict = hushed(Accept(answer), ("sk-1234567",), (b"sk-1234567",))

    assert isinstance(verdict, Accept)
    assert (verdict.answer.output, verdict.answer.request_id) == (b'"it is ***"', "req-***")


def test_a_word_that_serves_as_a_key_stays_in_answers() -> None:
    accept = Accept(ANSWER)

    assert hushed(accept, ("yes",), ()) is accept
