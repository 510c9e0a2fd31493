import base64
import json
import math
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.simulate import answers
from batchinfer.simulate.behaviour import Behaviour

PLAIN = Behaviour()
PROMPTS = st.text(st.characters(exclude_categories=["Cs"]))


def chat(content: object, behaviour: Behaviour = PLAIN, **members: object) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": content}], **members}
    answer = answers.chat(json.dumps(body).encode(), behaviour, 1_700_000_000)
    reply: dict[str, Any] = json.loads(answer.body)
    usage = reply["usage"]
    assert (answer.prompt_tokens, answer.output_tokens) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    return reply


def embed(text: object, **members: object) -> dict[str, Any]:
    body = json.dumps({"input": text, **members}).encode()
    reply: dict[str, Any] = json.loads(answers.embeddings(body, PLAIN, 0).body)
    return reply


def test_a_chat_answer_has_the_shape_of_openai_and_says_that_it_is_simulated() -> None:
    reply = chat("Classify: a fine day", model="my-model")
    choice = reply["choices"][0]

    assert reply["object"] == "chat.completion"
    assert reply["model"] == "my-model"
    assert reply["created"] == 1_700_000_000
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"].startswith("[simulated] ")
    assert choice["message"]["content"].endswith("Classify: a fine day")
    assert choice["finish_reason"] == "stop"
    assert reply["usage"]["prompt_tokens"] == 5
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert reply["usage"]["total_tokens"] == 5 + reply["usage"]["completion_tokens"]


def test_without_a_model_the_answer_is_by_simulated() -> None:
    assert chat("x")["model"] == "simulated"


@given(prompt=PROMPTS)
def test_the_same_prompt_gets_the_same_answer(prompt: str) -> None:
    assert chat(prompt) == chat(prompt)


def test_other_prompts_get_other_answers_even_where_they_begin_alike() -> None:
    first, second = (chat("word " * 100 + end)["choices"] for end in ("one", "two"))

    assert first != second


def test_the_system_message_is_part_of_the_prompt() -> None:
    replies = [
        answers.chat(
            json.dumps(
                {
                    "messages": [
                        {"role": "system", "content": system},
                        {"role": "user", "content": "hello"},
                    ]
                }
            ).encode(),
            PLAIN,
            0,
        ).body
        for system in ("be brief", "be long!")
    ]

    assert replies[0] != replies[1]
    assert all(b"begins: hello" in reply for reply in replies)


@given(prompt=PROMPTS, room=st.integers(1, 60))
def test_an_answer_keeps_within_the_tokens_it_may_have(prompt: str, room: int) -> None:
    whole = chat(prompt)["usage"]["completion_tokens"]
    reply = chat(prompt, max_tokens=room)
    choice = reply["choices"][0]

    short = 3  # tokens of the least that an answer says
    assert reply["usage"]["completion_tokens"] == (whole if whole <= room else min(room, short))
    assert len(choice["message"]["content"].encode()) <= 4 * room
    assert choice["finish_reason"] == ("stop" if min(whole, short) <= room else "length")


def test_the_smaller_of_the_two_token_limits_counts() -> None:
    reply = chat("hello", max_tokens=9, max_completion_tokens=2)

    assert reply["usage"]["completion_tokens"] == 2
    assert reply["choices"][0]["finish_reason"] == "length"


def test_a_truncated_answer_is_shorter_and_says_so_each_time() -> None:
    behaviour = Behaviour(truncate_rate=1.0)
    replies = [chat("hello", behaviour) for _ in range(3)]

    assert all(reply == replies[0] for reply in replies)
    assert replies[0]["choices"][0]["finish_reason"] == "length"
    assert (
        0 < replies[0]["usage"]["completion_tokens"] < chat("hello")["usage"]["completion_tokens"]
    )


def test_truncation_strikes_its_share_of_the_prompts() -> None:
    behaviour = Behaviour(truncate_rate=0.3)
    reasons = [chat(f"p{n}", behaviour)["choices"][0]["finish_reason"] for n in range(1000)]

    assert reasons.count("length") == pytest.approx(300, rel=0.2)


def test_content_in_parts_is_understood_and_other_parts_count_too() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    reply = chat([{"type": "text", "text": "what is this?"}, picture])

    assert reply["choices"][0]["message"]["content"].split("begins: ")[1].startswith("what is")
    assert reply["usage"]["prompt_tokens"] > 13 / 4 + 10


def test_a_message_without_content_is_understood() -> None:
    assert chat(None)["usage"]["prompt_tokens"] == 1


def test_each_of_several_prompts_gets_its_own_choice() -> None:
    body = json.dumps({"prompt": ["one", "two"], "model": "m"}).encode()
    answer = answers.completions(body, PLAIN, 7)
    reply = json.loads(answer.body)

    assert reply["object"] == "text_completion"
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert [choice["text"].split()[-1] for choice in reply["choices"]] == ["one", "two"]
    assert all(choice["text"].startswith("[simulated] ") for choice in reply["choices"])
    assert reply["usage"]["completion_tokens"] == answer.output_tokens


def test_a_prompt_alone_is_answered_as_in_a_list() -> None:
    alone, listed = (
        json.loads(answers.completions(json.dumps({"prompt": prompt}).encode(), PLAIN, 0).body)
        for prompt in ("one", ["one"])
    )

    assert alone == listed


@given(text=PROMPTS, dimensions=st.integers(1, 300))
def test_an_embedding_is_a_unit_vector_that_the_text_determines(text: str, dimensions: int) -> None:
    vector = embed(text, dimensions=dimensions)["data"][0]["embedding"]

    assert len(vector) == dimensions
    assert math.hypot(*vector) == pytest.approx(1.0, abs=1e-5)
    assert vector == embed(text, dimensions=dimensions)["data"][0]["embedding"]


def test_embeddings_come_by_index_with_eight_dimensions_unless_asked() -> None:
    reply = embed(["one", "two", "one"])
    vectors = [each["embedding"] for each in reply["data"]]

    assert [each["index"] for each in reply["data"]] == [0, 1, 2]
    assert vectors[0] == vectors[2] != vectors[1]
    assert {len(vector) for vector in vectors} == {8}
    assert reply["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


def test_base64_embeddings_hold_the_same_vector() -> None:
    packed = embed("one", encoding_format="base64")["data"][0]["embedding"]
    vector = embed("one")["data"][0]["embedding"]

    assert struct.unpack("<8f", base64.b64decode(packed)) == pytest.approx(vector, abs=1e-6)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"{}", "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": ["hi"]}', "messages"),
        (b'{"messages": [{"role": "user", "content": 5}]}', "content"),
        (b'{"messages": [{"role": "user"}], "max_tokens": 0}', "max_tokens"),
        (b'{"messages": [{"role": "user"}], "stream": true}', "stream"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "truncated"),
        (b'{"messages": [{"role": "user", "content": "\\ud800 and more"}]}', "surrogate"),
        (b'{"messages": [{"role": "user", "content": "\\udc00 and more"}]}', "surrogate"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "UTF-8"),
    ],
)
def test_a_body_that_is_not_understood_is_refused_by_the_name_of_its_field(
    body: bytes, named: str
) -> None:
    with pytest.raises(msgspec.DecodeError, match=named):
        answers.chat(body, PLAIN, 0)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BODIES = JSON_VALUES.map(
    lambda part: json.dumps({"messages": [{"role": "user", "content": [{"x": part}]}]}).encode()
)


@given(body=BODIES | st.binary())
def test_any_body_is_answered_or_refused(body: bytes) -> None:
    try:
        answer = answers.chat(body, PLAIN, 0)
    except msgspec.DecodeError:
        return

    assert json.loads(answer.body)["choices"]
