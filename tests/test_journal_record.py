import json
import string
from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.errors import DamagedJournalError
from batchinfer.journal import record
from batchinfer.journal.record import DamagedRecordError, decode, encode, intact, parts, peek
from batchinfer.model import Answer, ErrorClass, Failure, Problem, Success, Usage

AT = "2025-01-31T12:00:00.000Z"
KEY = bytes(range(16))

texts = st.text(st.characters(exclude_categories=["Cs"]))
tokens = st.none() | st.integers(0, 10**9)
usages = st.builds(Usage, tokens, tokens, tokens, tokens)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
spliced = st.builds(
    lambda value, escaped: json.dumps(value, ensure_ascii=escaped).encode(), values, st.booleans()
)
endings = {
    "row": st.integers(0, 10**10),
    "id": st.none() | st.integers() | texts,
    "key": st.binary(min_size=16, max_size=16),
    "attempts": st.integers(0, 99),
    "latency_ms": st.integers(0, 10**8).map(lambda hundredths: round(hundredths / 100, 2)),
    "cost_usd": st.none() | st.floats(0, 1e6),
    "at": st.just(AT),
    "rate_limited": st.integers(0, 9),
    "ambiguous": st.integers(0, 9),
    "wasted": st.integers(0, 9),
}
optional = st.none() | texts
answers = st.builds(Answer, spliced, usages, optional, optional, optional)
successes = st.builds(Success, answer=answers, response=st.none() | spliced, **endings)
problems = st.builds(
    Problem, st.sampled_from(ErrorClass), texts, st.none() | st.integers(100, 599), optional
)
failures = st.builds(Failure, problem=problems, usage=usages, **endings)


def success(
    output: bytes = b'"yes"',
    row_id: str | int | None = "a",
    finish_reason: str | None = "stop",
    response: bytes | None = None,
) -> Success:
    answer = Answer(output, Usage(3, 1), finish_reason, "m", "r-1")
    return Success(
        row=7,
        id=row_id,
        key=KEY,
        attempts=1,
        latency_ms=1.0 / 3.0,
        cost_usd=0.5,
        at=AT,
        answer=answer,
        response=response,
    )


def failure(message: str = "no", error: ErrorClass = ErrorClass.TIMEOUT) -> Failure:
    return Failure(
        row=7,
        id="a",
        key=KEY,
        attempts=5,
        latency_ms=2.0,
        cost_usd=None,
        at=AT,
        problem=Problem(error, message, 504, "slow"),
    )


def sealed(body: bytes) -> bytes:
    return body + b',"crc":"%08x"}' % crc32(body)


@given(successes | failures)
def test_an_outcome_comes_back_as_it_was(outcome: Success | Failure) -> None:
    line = encode(outcome)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert intact(line[:-1])
    assert decode(line[:-1]) == outcome


@given(successes | failures)
def test_a_peek_sees_what_decoding_sees(outcome: Success | Failure) -> None:
    error = outcome.problem.error if isinstance(outcome, Failure) else None

    assert peek(encode(outcome)[:-1]) == (outcome.key, error)


@given(successes | failures)
def test_parts_are_the_members_of_the_line(outcome: Success | Failure) -> None:
    line = encode(outcome)[:-1]
    found, whole = parts(line), orjson.loads(line)

    assert orjson.loads(b"".join((found.usage,))) == whole["usage"]
    for name in ("output", "error", "finish_reason"):
        assert json.loads(bytes(getattr(found, name))) == json.loads(line).get(name)


def test_a_success_has_its_members_in_the_published_order() -> None:
    assert encode(success()) == (
        sealed(
            b'{"v":1,"row":7,"id":"a","key":"000102030405060708090a0b0c0d0e0f","attempts":1,'
            b'"latency_ms":0.33,"usage":{"input":3,"output":1,"cached":null,"reasoning":null},'
            b'"cost_usd":0.5,"model":"m","finish_reason":"stop","request_id":"r-1",'
            b'"at":"2025-01-31T12:00:00.000Z","output":"yes"'
        )
        + b"\n"
    )


def test_a_failure_has_its_error_in_place_of_the_output() -> None:
    assert encode(failure()) == (
        sealed(
            b'{"v":1,"row":7,"id":"a","key":"000102030405060708090a0b0c0d0e0f","attempts":5,'
            b'"latency_ms":2.0,"usage":{"input":null,"output":null,"cached":null,"reasoning":null},'
            b'"cost_usd":null,"at":"2025-01-31T12:00:00.000Z",'
            b'"error":{"class":"timeout","status":504,"code":"slow","message":"no"}'
        )
        + b"\n"
    )


def test_unknown_answer_facts_are_written_as_null() -> None:
    line = orjson.loads(encode(success(finish_reason=None)))

    assert line["finish_reason"] is None


def test_an_answer_is_spliced_byte_for_byte() -> None:
    output = '{"b" : 1.50, "a":"é\\u00e9\u2028/"}'.encode()

    assert b'"output":' + output + b',"response":[1 ],"crc"' in encode(
        success(output, None, "s", b"[1 ]")
    )


def test_line_breaks_between_tokens_become_spaces() -> None:
    line = encode(success(b'{\n  "a": "x\\ny"\n}'))

    assert line.count(b"\n") == 1
    assert orjson.loads(line)["output"] == {"a": "x\ny"}


@pytest.mark.parametrize(
    ("spliced", "value"),
    [
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\uD83D\uDE00"', "\U0001f600"),
        (rb'"a\ud83d"', "a\ufffd"),
        (rb'"\ude00b"', "\ufffdb"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\\ud83d"', r"\ud83d"),
        (rb'"\\\ud83d\n"', "\\\ufffd\n"),
        (rb'"\ud83d\u0041"', "\ufffdA"),
    ],
)
def test_half_a_surrogate_pair_in_an_answer_leaves_a_line_that_strict_parsers_read(
    spliced: bytes, value: str
) -> None:
    line = encode(success(spliced))

    assert orjson.loads(line)["output"] == value
    assert orjson.loads(bytes(parts(line[:-1]).output)) == value


def test_half_a_surrogate_pair_in_a_text_becomes_the_replacement_character() -> None:
    found = decode(encode(failure("cut \ud83d"))[:-1])
    named = decode(encode(success(row_id="\ude00x"))[:-1])

    assert isinstance(found, Failure)
    assert found.problem.message == "cut \ufffd"
    assert found.problem.error is ErrorClass.TIMEOUT
    assert named.id == "\ufffdx"


@given(texts, texts)
def test_no_id_or_answer_can_pretend_to_be_a_member(name: str, text: str) -> None:
    trap = '","key":"ffffffffffffffffffffffffffffffff","error":{"class":"auth"'
    output = json.dumps({"x": 1, "error": {"class": text + trap}, "key": "f" * 32}).encode()

    assert peek(encode(success(output, name + trap))[:-1]) == (KEY, None)
    assert peek(encode(failure(text + ',"output":' + trap))[:-1]) == (KEY, ErrorClass.TIMEOUT)


@pytest.mark.parametrize("outcome", [success(), failure()])
def test_every_single_flipped_bit_is_noticed(outcome: Success | Failure) -> None:
    line = encode(outcome)[:-1]
    for at in range(len(line)):
        for bit in range(8):
            flipped = line[:at] + bytes([line[at] ^ 1 << bit]) + line[at + 1 :]

            assert not intact(flipped)


@given(successes | failures, st.data())
def test_a_part_of_a_record_is_not_intact(outcome: Success | Failure, data: st.DataObject) -> None:
    line = encode(outcome)[:-1]
    end = data.draw(st.integers(0, len(line) - 1))
    start = data.draw(st.integers(1, len(line)))

    assert not intact(line[:end])
    assert not intact(line[start:])
    assert not intact(line[:end] + b"\0" * (len(line) - end))


def test_a_checksum_of_nothing_is_not_a_record() -> None:
    assert not intact(sealed(b""))
    assert not intact(b"")


@given(successes, failures, st.data())
def test_interleaved_records_are_not_intact(
    one: Success, other: Failure, data: st.DataObject
) -> None:
    inner, outer = encode(one)[:-1], encode(other)[:-1]
    at = data.draw(st.integers(1, len(outer)))

    assert not intact(outer[:at] + inner + outer[at:])


@given(st.binary() | st.text(string.printable).map(str.encode))
def test_foreign_bytes_are_a_value_error_of_the_damage_family(line: bytes) -> None:
    for read in (decode, parts):
        with pytest.raises(DamagedRecordError) as caught:
            read(line)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, DamagedJournalError)


@pytest.mark.parametrize("line", [b"", b"{}", b'{"v":1,"key":"00"}', b'{"v":1,"row":1}'])
def test_a_peek_at_no_record_is_damage(line: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        peek(line)


@pytest.mark.parametrize(
    "body",
    [
        b'{"v":1,"row":1',
        b'{"v":1,"row":"x","usage":{}',
        b'{"v":1,"usage":' + b"[" * 100_000,
        encode(success())[:-1].partition(b',"output"')[0],
        encode(success())[:-1].replace(b'"0001', b'"xy01').partition(b',"crc"')[0],
    ],
)
def test_a_sealed_line_that_is_no_record_is_damage(body: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        decode(sealed(body))


def test_an_unknown_error_class_is_damage() -> None:
    line = encode(failure())[:-1].replace(b'"timeout"', b'"unheard"')

    with pytest.raises(DamagedRecordError):
        peek(line)


def test_members_of_other_versions_are_passed_over() -> None:
    body = encode(success())[:-1].partition(b',"crc"')[0].replace(b'"row":7', b'"row":7,"new":[1]')

    assert decode(sealed(body)) == decode(encode(success())[:-1])
    assert bytes(parts(sealed(body)).output) == b'"yes"'


@pytest.mark.parametrize("read", [decode, parts, peek])
def test_a_line_of_a_newer_version_says_so(read: object) -> None:
    body = encode(success())[:-1].partition(b',"crc"')[0].replace(b'{"v":1,', b'{"v":2,')

    assert callable(read)
    with pytest.raises(DamagedJournalError, match="newer batchinfer"):
        read(sealed(body))


def test_the_version_stands_first() -> None:
    assert encode(success()).startswith(record.START)
