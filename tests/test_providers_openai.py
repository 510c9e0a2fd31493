"""What a reply of status 200 means, for the three OpenAI-compatible APIs."""

import base64
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.model import (
    Accept,
    Answer,
    ErrorClass,
    Fault,
    FaultKind,
    Halt,
    Problem,
    Reject,
    Reply,
    Retry,
    Usage,
    Verdict,
)
from batchinfer.providers.registry import PROVIDERS, provider

E = ErrorClass
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
SPENT = Usage(10, 2)


def judge(body: object, name: str = "openai-chat", **headers: str) -> Verdict:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return provider(name).judge(
        Reply(200, {k.replace("_", "-"): v for k, v in headers.items()}, data), 0.0
    )


def chat(message: object, finish: object = "stop", **more: object) -> dict[str, object]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "c-1", "model": "m-1", "choices": [choice], "usage": USAGE, **more}


def said(content: object, finish: object = "stop", **more: object) -> dict[str, object]:
    return chat({"role": "assistant", "content": content, **more}, finish)


def problem(verdict: Verdict) -> Problem:
    assert not isinstance(verdict, Accept)
    return verdict.problem


def output(body: object, name: str = "openai-chat") -> Any:
    verdict = judge(body, name)
    assert isinstance(verdict, Accept), verdict
    assert b"\n" not in verdict.answer.output
    return json.loads(verdict.answer.output)


# ── chat: answers ────────────────────────────────────────────────────────────────────────────


def test_a_normal_reply_is_accepted_with_all_that_stands_around_it() -> None:
    assert judge(said("ok: é\n")) == Accept(
        Answer('"ok: é\\n"'.encode(), SPENT, "stop", "m-1", "c-1")
    )


@pytest.mark.parametrize("name", ["x_request_id", "request_id"])
def test_the_request_id_of_the_headers_comes_before_the_bodys(name: str) -> None:
    verdict = judge(said("ok"), **{name: "req-9"})

    assert isinstance(verdict, Accept)
    assert verdict.answer.request_id == "req-9"


def test_blank_lines_before_the_reply_are_accepted() -> None:
    assert output(b"\n" * 20 + json.dumps(said("ok")).encode()) == "ok"


def test_names_of_another_type_are_unknown_and_odd_ones_are_cleaned() -> None:
    body = said("ok", finish=None) | {"model": ["m"], "id": "a\x1b[31m\n" + "b" * 900}
    verdict = judge(body)

    assert isinstance(verdict, Accept)
    assert verdict.answer.model is None
    assert verdict.answer.finish_reason is None
    assert (verdict.answer.request_id or "").startswith("a\ufffd bbb")
    assert len(verdict.answer.request_id or "") <= 200


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (" ", " "),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "thinking", "thinking": []}, {"type": "text", "text": "b"}], "b"),
        ([{"type": "image", "url": "u"}], [{"type": "image", "url": "u"}]),
        (["odd"], ["odd"]),
        ({"label": 1}, {"label": 1}),
    ],
)
def test_content_of_every_shape_becomes_the_output(content: object, expected: object) -> None:
    assert output(said(content)) == expected


@pytest.mark.parametrize("content", [None, "", "I will look it up"])
def test_a_message_that_calls_tools_is_kept_whole(content: str | None) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.50}'}}]
    message = {"role": "assistant", "content": content, "tool_calls": calls}

    assert output(chat(message, "tool_calls")) == message


def test_half_a_surrogate_pair_in_an_answer_becomes_the_replacement_character() -> None:
    body = json.dumps(said("half \ud83d pair")).encode()
    assert b"\\ud83d" in body

    assert output(body) == "half \ufffd pair"


def test_a_huge_integer_inside_the_content_is_only_text() -> None:
    assert output(said('{"price": ' + "9" * 8000)) == '{"price": ' + "9" * 8000


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"prompt_tokens": None, "completion_tokens": 2}, Usage(None, 2)),
        ({"prompt_tokens": "10", "completion_tokens": "2"}, SPENT),
        ("none", Usage()),
    ],
)
def test_an_answer_is_kept_whatever_its_usage_says(usage: object, expected: Usage) -> None:
    verdict = judge(said("ok") | {"usage": usage})

    assert isinstance(verdict, Accept)
    assert verdict.answer.usage == expected


# ── chat: failures ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"", b"\n\n\n\n\n", b" \r\n"])
def test_an_empty_body_is_asked_again(body: bytes) -> None:
    for name in PROVIDERS:
        verdict = judge(body, name)

        assert isinstance(verdict, Retry)
        assert verdict.problem.error is E.BAD_RESPONSE
        assert verdict.problem.message == "empty body"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>SECRETPAGE", "it is not JSON"),
        (b'{"choices": [', "it is not JSON"),
        (b'["SECRETPAGE"]', "it is JSON, but not an object"),
        (b'{"a": ' + b"9" * 8000 + b"}", "it holds a number out of range"),
        (b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_body_that_cannot_be_read_is_described_not_shown(body: bytes, reason: str) -> None:
    for name in PROVIDERS:
        verdict = judge(body, name, content_type="text/html")

        assert isinstance(verdict, Retry)
        assert verdict.problem.error is E.BAD_RESPONSE
        assert verdict.problem.message == (
            f"the body cannot be read: {reason} (content type text/html, {len(body)} bytes)"
        )


def test_an_answer_nested_too_deeply_to_write_is_asked_again() -> None:
    deep = b'{"choices":[{"message":{"content":' + b"[" * 600 + b"]" * 600 + b"}}]}"

    assert isinstance(judge(deep), Retry)


@pytest.mark.parametrize(
    "body",
    [{}, {"choices": None}, {"choices": []}, {"choices": [None]}, {"choices": {}}, chat(None)],
)
def test_a_reply_without_a_choice_is_asked_a_few_times(body: object) -> None:
    verdict = judge(body)

    assert isinstance(verdict, Retry)
    assert (verdict.problem.error, verdict.attempts) == (E.BAD_RESPONSE, 3)


@pytest.mark.parametrize("content", ["", None, [], [{"type": "text", "text": ""}]])
def test_an_empty_answer_is_asked_once_more_and_its_tokens_are_kept(content: object) -> None:
    verdict = judge(said(content, tool_calls=[]))

    assert isinstance(verdict, Retry)
    assert (verdict.problem.message, verdict.attempts) == ("empty answer", 2)
    assert verdict.usage == SPENT


@pytest.mark.parametrize("content", ['{"label": "po', '{"label":"x"}', "", None])
def test_a_cut_answer_fails_at_once_as_truncated_and_its_tokens_are_kept(content: object) -> None:
    verdict = judge(said(content, "length"))

    assert isinstance(verdict, Reject)
    assert verdict.problem.error is E.TRUNCATED
    assert "max_tokens" in verdict.problem.message
    assert verdict.usage == SPENT


@pytest.mark.parametrize(
    ("body", "kind", "error"),
    [
        (said("half", "content_filter"), Reject, E.REFUSED),
        (said(None, refusal="I cannot help with that"), Reject, E.REFUSED),
        (said("half", "insufficient_system_resource"), Retry, E.OVERLOAD),
        (said("half", "abort"), Retry, E.OVERLOAD),
        (said("half", "error"), Retry, E.SERVER_ERROR),
    ],
)
def test_a_finish_that_is_no_success_is_not_stored(
    body: object, kind: type[Verdict], error: ErrorClass
) -> None:
    verdict = judge(body)

    assert isinstance(verdict, kind)
    assert problem(verdict).error is error
    assert isinstance(verdict, Retry | Reject)
    assert verdict.usage == SPENT


def test_a_refusal_is_told_in_the_servers_words() -> None:
    verdict = judge(said(None, refusal="I cannot\nhelp"))

    assert isinstance(verdict, Reject)
    assert verdict.problem.message == "I cannot help"


@pytest.mark.parametrize(
    ("error", "kind", "cls", "status"),
    [
        ({"code": 429, "message": "upstream limited"}, Retry, E.RATE_LIMIT, 429),
        ({"code": "502", "message": "Network connection lost."}, Retry, E.SERVER_ERROR, 502),
        ({"code": 503}, Retry, E.OVERLOAD, 503),
        ({"code": 400, "message": "bad image"}, Reject, E.INVALID_REQUEST, 400),
        ({"code": 401}, Halt, E.AUTH, 401),
        ({"code": "insufficient_quota"}, Halt, E.QUOTA, 500),
        ({"code": "rate_limit_exceeded"}, Retry, E.RATE_LIMIT, 429),
        ({"type": "invalid_request_error"}, Reject, E.INVALID_REQUEST, 400),
        ({"metadata": {"error_type": "provider_unavailable"}}, Retry, E.SERVER_ERROR, 502),
        ("something broke", Retry, E.SERVER_ERROR, 500),
    ],
)
def test_an_error_inside_a_success_is_judged_by_its_own_code(
    error: object, kind: type[Verdict], cls: ErrorClass, status: int
) -> None:
    choice = {"finish_reason": "error", "error": error, "message": {"content": "half"}}
    for name in PROVIDERS:
        verdict = judge({"error": error, "choices": [choice]}, name)

        assert isinstance(verdict, kind)
        assert problem(verdict).error is cls
        assert problem(verdict).status == status
    for name in ("openai-chat", "openai-completions"):
        verdict = judge({"choices": [choice], "usage": USAGE}, name)

        assert isinstance(verdict, kind)
        assert not isinstance(verdict, Retry | Reject) or verdict.usage == SPENT


def test_an_inner_error_keeps_its_message_and_its_wait() -> None:
    bad = judge({"error": {"code": 400, "message": "bad image"}})
    slow = judge({"error": {"code": 429, "message": "try again in 1.5s"}})

    assert isinstance(bad, Reject)
    assert bad.problem.message == "bad image"
    assert isinstance(slow, Retry)
    assert (slow.after, slow.counts) == (1.5, False)


@pytest.mark.parametrize("error", [None, {}, "", False])
def test_an_empty_error_member_is_no_error(error: object) -> None:
    assert output(said("ok") | {"error": error}) == "ok"


def test_flat_and_anthropic_errors_inside_a_success_are_seen() -> None:
    flat = judge({"object": "error", "message": "queue timeout", "code": 503})
    typed = judge({"type": "error", "message": "x"})

    assert isinstance(flat, Retry)
    assert flat.problem.error is E.OVERLOAD
    assert isinstance(typed, Retry)


# ── completions ──────────────────────────────────────────────────────────────────────────────


def test_the_text_of_a_completion_is_the_output() -> None:
    body = {"choices": [{"text": " ok", "finish_reason": "stop"}], "usage": USAGE, "id": "c-2"}

    assert judge(body, "openai-completions") == Accept(Answer(b'" ok"', SPENT, "stop", None, "c-2"))


@pytest.mark.parametrize(
    ("choice", "kind", "error"),
    [
        ({"text": ""}, Retry, E.BAD_RESPONSE),
        ({"text": None}, Retry, E.BAD_RESPONSE),
        ({"text": 7}, Retry, E.BAD_RESPONSE),
        ({"text": "cut", "finish_reason": "length"}, Reject, E.TRUNCATED),
        ({"text": "x", "finish_reason": "content_filter"}, Reject, E.REFUSED),
    ],
)
def test_a_completion_that_is_no_answer_is_not_stored(
    choice: object, kind: type[Verdict], error: ErrorClass
) -> None:
    verdict = judge({"choices": [choice]}, "openai-completions")

    assert isinstance(verdict, kind)
    assert problem(verdict).error is error


# ── embeddings ───────────────────────────────────────────────────────────────────────────────


def test_a_vector_keeps_the_servers_digits() -> None:
    body = (
        b'{"object":"list","model":"e","id":"x","usage":{"prompt_tokens":4,"total_tokens":4},'
        b'"data":[{"object":"embedding","index":0,"embedding":[\n 0.10, -1e-07,\n 2 ]}]}'
    )

    assert judge(body, "openai-embeddings") == Accept(
        Answer(b"[0.10,-1e-07,2]", Usage(4, 0), None, "e", "x")
    )


def test_a_vector_in_base64_is_kept_as_a_string() -> None:
    text = base64.b64encode(bytes(range(256))).decode()
    body = {"data": [{"embedding": text}]}

    assert output(body, "openai-embeddings") == text
    assert output(json.dumps(body).replace("/", "\\/").encode(), "openai-embeddings") == text


def test_a_vector_in_a_reply_that_is_not_quite_json_is_read() -> None:
    body = b'{"note":"\\ud83d","data":[{"embedding":[1.5,2]}],"usage":{"total_tokens":3}}'
    verdict = judge(body, "openai-embeddings")

    assert isinstance(verdict, Accept)
    assert json.loads(verdict.answer.output) == [1.5, 2]
    assert verdict.answer.usage == Usage(3, 0)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, Retry),
        ([], Retry),
        ({}, Retry),
        ([None], Retry),
        ([{}], Retry),
        ([{"embedding": []}], Retry),
        ([{"embedding": None}], Retry),
        ([{"embedding": [1.0, None]}], Retry),
        ([{"embedding": "not base64!"}], Retry),
        ([{"embedding": {"a": 1}}], Retry),
        ([{"embedding": [1.0]}, {"embedding": [2.0]}], Reject),
    ],
)
def test_anything_but_one_vector_of_numbers_is_no_answer(data: object, kind: type[Verdict]) -> None:
    verdict = judge({"data": data, "usage": {"total_tokens": 3}}, "openai-embeddings")

    assert isinstance(verdict, kind)
    assert problem(verdict).error is E.BAD_RESPONSE
    assert isinstance(verdict, Retry | Reject)
    assert verdict.usage == Usage(3)


# ── whatever comes ───────────────────────────────────────────────────────────────────────────

_NAMES = st.sampled_from(
    [
        "choices",
        "message",
        "content",
        "error",
        "code",
        "finish_reason",
        "usage",
        "data",
        "text",
        "embedding",
        "tool_calls",
        "refusal",
        "type",
        "object",
        "id",
        "model",
        "prompt_tokens",
    ]
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.sampled_from(["error", "length", "stop", "abort", "text", 429, 503, 400])
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=20,
)
_BODIES = st.binary() | _VALUES.map(lambda v: json.dumps(v).encode())
_CHOICES = st.fixed_dictionaries(
    {"choices": st.lists(st.dictionaries(_NAMES, _VALUES), max_size=2)}
)
_VECTORS = st.fixed_dictionaries({"data": st.lists(st.dictionaries(_NAMES, _VALUES), max_size=2)})
_SHAPED = (_CHOICES | _VECTORS).map(lambda v: json.dumps(v).encode())
_HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "retry-after",
            "retry-after-ms",
            "date",
            "content-type",
            "location",
            "x-request-id",
            "x-ratelimit-type",
            "x-error-message",
        ]
    ),
    st.text(max_size=30),
)
_STATUSES = st.just(200) | st.integers(100, 599)


@given(_STATUSES, _HEADERS, _BODIES | _SHAPED, st.sampled_from(sorted(PROVIDERS)))
def test_no_reply_whatever_breaks_the_judgement(
    status: int, headers: dict[str, str], body: bytes, name: str
) -> None:
    verdict = provider(name).judge(Reply(status, headers, body), 1e9)

    if isinstance(verdict, Accept):
        assert b"\n" not in verdict.answer.output
        json.loads(verdict.answer.output.decode())
    else:
        assert len(verdict.problem.message) <= 600
        assert not {unicodedata.category(c) for c in verdict.problem.message} & {"Cc", "Cs"}


@pytest.mark.parametrize("name", ["error", "choices", "usage", "data", "message", "detail"])
@pytest.mark.parametrize("depth", [300, 1_000, 100_000])
def test_no_depth_of_nesting_breaks_the_judgement(name: str, depth: int) -> None:
    for left, right in ((b"[", b"]"), (b'{"error":', b"}")):
        body = b'{"%b":%b1%b}' % (name.encode(), left * depth, right * depth)
        for api in PROVIDERS.values():
            assert not isinstance(api.judge(Reply(200, {}, body), 0.0), Accept)
            assert not isinstance(api.judge(Reply(400, {}, body), 0.0), Accept)


@given(st.text(min_size=1))
def test_every_text_a_model_can_write_comes_through_unchanged(text: str) -> None:
    assert output(said(text)) == text
    assert output({"choices": [{"text": text}]}, "openai-completions") == text


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_vector_comes_through_unchanged(vector: list[float]) -> None:
    assert output({"data": [{"embedding": vector}]}, "openai-embeddings") == vector


def test_the_same_exchange_is_always_judged_alike() -> None:
    reply = Reply(503, {"retry-after": "2"}, b"")

    assert {type(api.judge(reply, 0.0)) for api in PROVIDERS.values()} == {Retry}
    assert {type(api.judge(Fault(FaultKind.RESET, "x"), 0.0)) for api in PROVIDERS.values()} == {
        Retry
    }
