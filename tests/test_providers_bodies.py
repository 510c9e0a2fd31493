"""Rows become request bodies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from batchinfer.errors import ConfigError
from batchinfer.model import Ask, Dialogue, Fields, Verbatim
from batchinfer.providers.base import UnsendableError
from batchinfer.providers.registry import PROVIDERS, provider

CHAT = "openai-chat"
COMPLETIONS = "openai-completions"
EMBEDDINGS = "openai-embeddings"
HELLO = b'[{"role":"user","content":"hi"}]'
URLS = {CHAT: "/v1/chat/completions", COMPLETIONS: "/v1/completions", EMBEDDINGS: "/v1/embeddings"}
BODIES = {
    CHAT: b'{"messages":%b}' % HELLO,
    COMPLETIONS: b'{"prompt":"p"}',
    EMBEDDINGS: b'{"input":"t"}',
}


def fields(**members: bytes) -> Fields:
    return Fields({name: Raw(value) for name, value in members.items()})


@pytest.mark.parametrize(
    ("name", "path"),
    [(CHAT, "chat/completions"), (COMPLETIONS, "completions"), (EMBEDDINGS, "embeddings")],
)
def test_a_provider_is_found_by_its_name(name: str, path: str) -> None:
    assert (provider(name).name, provider(name).path) == (name, path)


def test_an_unknown_provider_is_a_configuration_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r'no "openai-chatt".*openai-chat, openai-completions'):
        provider("openai-chatt")


# ── verbatim ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_a_batch_line_is_sent_byte_for_byte(name: str) -> None:
    odd = BODIES[name].replace(b":", b" :  ", 1).replace(b"}", b',"x": 0.10 }')

    assert provider(name).body(Verbatim(odd, URLS[name]), "other", {"temperature": 1}) is odd


@pytest.mark.parametrize(
    "url",
    [
        "/v1/completions",
        "v1/completions",
        "completions",
        "/completions",
        "/openai/v1/completions?x=1",
    ],
)
def test_the_url_of_a_batch_line_may_be_written_in_several_ways(url: str) -> None:
    assert provider(COMPLETIONS).body(Verbatim(b'{"prompt":"p"}', url), None, {})


@pytest.mark.parametrize("url", ["/v1/chat/completions", "/v1/embeddings", "", "/v1/xcompletions"])
def test_a_batch_line_for_another_api_is_refused(url: str) -> None:
    with pytest.raises(UnsendableError, match='sends to "/v1/completions"'):
        provider(COMPLETIONS).body(Verbatim(b'{"prompt":"p"}', url), None, {})


@pytest.mark.parametrize("body", [b"", b"nope", b"[]", b'{"messages":', b"[" * 5000])
def test_a_batch_line_whose_body_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(UnsendableError, match="the row's body"):
        provider(CHAT).body(Verbatim(body, "/v1/chat/completions"), None, {})


def test_half_a_surrogate_pair_in_a_batch_line_is_sent_as_written() -> None:
    body = b'{"messages":[{"role":"user","content":"\\ud83d"}]}'

    assert provider(CHAT).body(Verbatim(body, "/v1/chat/completions"), None, {}) == body


# ── fields ───────────────────────────────────────────────────────────────────────────────────


def test_a_rows_members_win_over_params_and_params_over_the_model() -> None:
    ask = fields(messages=HELLO, temperature=b"0.70", model=b'"mine"')
    got = provider(CHAT).body(ask, "configured", {"temperature": 0.0, "max_tokens": 5})

    assert json.loads(got)["model"] == "mine"
    assert got == (b'{"model":"mine","temperature":0.70,"max_tokens":5,"messages":' + HELLO + b"}")


def test_the_configured_model_is_used_where_the_row_names_none() -> None:
    assert provider(CHAT).body(fields(messages=HELLO), "m", {}) == (
        b'{"model":"m","messages":' + HELLO + b"}"
    )
    assert provider(CHAT).body(fields(messages=HELLO), None, {}) == b'{"messages":' + HELLO + b"}"


def test_a_rows_values_are_not_encoded_anew() -> None:
    raw = b'[ {"role" : "user", "content": "\\u00e9\\ud83d 1e400"} ]'

    assert raw in provider(CHAT).body(fields(messages=raw, seed=b"1E2"), "m", {})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (CHAT, b"1", '"messages" must be a non-empty list, but it is a number'),
        (CHAT, b"null", "but it is null"),
        (CHAT, b"true", "but it is true"),
        (CHAT, b'"hi"', "but it is a string"),
        (CHAT, b"{}", "but it is an object"),
        (CHAT, b"[ ]", "but it is empty"),
        (COMPLETIONS, b"-1", '"prompt" must be a string or a non-empty list, but it is a number'),
        (COMPLETIONS, b"[]", "but it is empty"),
        (COMPLETIONS, b'["a","b"]', '"prompt" holds 2 items'),
        (EMBEDDINGS, b"false", '"input" must be a non-empty string or list, but it is false'),
        (EMBEDDINGS, b'""', "but it is empty"),
        (EMBEDDINGS, b" []", "but it is empty"),
        (EMBEDDINGS, b'["a", "b", "c"]', '"input" holds 3 items'),
        (EMBEDDINGS, b"[[1,2],[3]]", '"input" holds 2 items'),
        (EMBEDDINGS, b'["half \\ud83d", "b"]', '"input" holds 2 items'),
    ],
)
def test_a_member_of_the_wrong_kind_is_named(name: str, value: bytes, message: str) -> None:
    member = {CHAT: "messages", COMPLETIONS: "prompt", EMBEDDINGS: "input"}[name]
    with pytest.raises(UnsendableError) as caught:
        provider(name).body(fields(**{member: value}), "m", {})

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "member", "value"),
    [
        (COMPLETIONS, "prompt", b'""'),
        (COMPLETIONS, "prompt", b'["one"]'),
        (COMPLETIONS, "prompt", b"[1,2,3]"),
        (EMBEDDINGS, "input", b"[1,2,3]"),
        (EMBEDDINGS, "input", b"[[1,2,3]]"),
        (EMBEDDINGS, "input", b'[ "one" ]'),
        (EMBEDDINGS, "input", b'["half \\ud83d"]'),
        (EMBEDDINGS, "input", b"[" * 5000 + b"]" * 5000),
        (CHAT, "messages", b"[{},{}]"),
        (CHAT, "messages", b" " * 100 + b"[{}]"),
    ],
)
def test_one_thing_to_ask_is_sent(name: str, member: str, value: bytes) -> None:
    assert value in provider(name).body(fields(**{member: value}), "m", {})


def test_a_row_without_the_apis_member_says_which() -> None:
    with pytest.raises(UnsendableError, match='the row has no "messages"'):
        provider(CHAT).body(fields(prompt=b'"x"'), "m", {})


@pytest.mark.parametrize("value", [b"true", b" true ", b"1", b'"yes"'])
def test_streaming_is_refused_wherever_it_is_asked_for(value: bytes) -> None:
    chat = provider(CHAT)
    body = b'{"messages":%b,"stream":%b}' % (HELLO, value)
    asks: list[tuple[Ask, dict[str, object]]] = [
        (fields(messages=HELLO, stream=value), {}),
        (fields(messages=HELLO), {"stream": True}),
        (Dialogue((("user", "x"),)), {"stream": True}),
        (Verbatim(body, "/v1/chat/completions"), {}),
    ]
    for ask, params in asks:
        with pytest.raises(UnsendableError, match='"stream" must be false'):
            chat.body(ask, "m", params)


def test_a_row_that_says_it_does_not_stream_is_sent() -> None:
    assert provider(CHAT).body(fields(messages=HELLO, stream=b"false", n=b"1"), "m", {})
    assert provider(CHAT).body(fields(messages=HELLO, stream=b"null", n=b"null"), "m", {})
    assert provider(CHAT).body(fields(messages=HELLO, stream=b"false"), "m", {"stream": True})


def test_several_answers_for_one_row_are_refused() -> None:
    with pytest.raises(UnsendableError, match='"n" must be 1'):
        provider(CHAT).body(fields(messages=HELLO, n=b"4"), "m", {})
    with pytest.raises(UnsendableError, match='"n" must be 1'):
        provider(CHAT).body(fields(messages=HELLO), "m", {"n": 2})


# ── dialogue ─────────────────────────────────────────────────────────────────────────────────

TALK = Dialogue((("system", "Be brief."), ("user", 'Say "é"\n')))


def test_a_dialogue_becomes_chat_messages() -> None:
    got = provider(CHAT).body(TALK, "m", {"temperature": 0.0})

    assert json.loads(got) == {
        "model": "m",
        "temperature": 0.0,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": 'Say "é"\n'},
        ],
    }
    assert b"\n" not in got


def test_a_dialogue_becomes_one_prompt_joined_by_blank_lines() -> None:
    got = provider(COMPLETIONS).body(TALK, "m", {})

    assert json.loads(got) == {"model": "m", "prompt": 'Be brief.\n\nSay "é"\n'}


def test_a_text_becomes_the_input_of_an_embedding() -> None:
    got = provider(EMBEDDINGS).body(Dialogue((("user", "a text"),)), "m", {"dimensions": 8})

    assert json.loads(got) == {"model": "m", "dimensions": 8, "input": "a text"}


@pytest.mark.parametrize(
    ("name", "turns", "message"),
    [
        (EMBEDDINGS, TALK.turns, "no system prompt"),
        (EMBEDDINGS, (("user", ""),), "one text that is not empty"),
        (EMBEDDINGS, (("user", "a"), ("user", "b")), "one text"),
        (EMBEDDINGS, (), "one text"),
        (CHAT, (), "no message to send"),
    ],
)
def test_a_dialogue_that_does_not_fit_is_refused(
    name: str, turns: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(UnsendableError, match=message):
        provider(name).body(Dialogue(turns), "m", {})


def test_half_a_surrogate_pair_in_a_text_is_sent_as_its_escape() -> None:
    for name in PROVIDERS:
        got = provider(name).body(Dialogue((("user", "half \ud83d"),)), "m", {"user": "é"})

        assert b"half \\ud83d" in got
        assert json.loads(got)["user"] == "é"


@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()), min_size=1),
    st.dictionaries(st.sampled_from(["temperature", "top_p", "stop"]), st.floats(0, 1)),
)
def test_the_same_dialogue_gives_the_same_faithful_bytes(
    turns: list[tuple[str, str]], params: dict[str, object]
) -> None:
    chat, ask = provider(CHAT), Dialogue(tuple(turns))
    got = chat.body(ask, "m", params)
    read = json.loads(got)

    assert got == chat.body(ask, "m", params)
    assert [(turn["role"], turn["content"]) for turn in read.pop("messages")] == turns
    assert read == {"model": "m", **params}


@given(st.binary())
def test_any_bytes_are_sent_unchanged_or_refused(body: bytes) -> None:
    for name, url in URLS.items():
        try:
            assert provider(name).body(Verbatim(body, url), None, {}) == body
        except UnsendableError:
            continue
