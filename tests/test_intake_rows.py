import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchinfer.config.schema import RequestTemplate, Turn
from batchinfer.intake.rows import (
    KEY_BYTES,
    MAX_DEPTH,
    Recipe,
    Shape,
    identify,
    is_blank,
    parse,
)
from batchinfer.intake.templates import Template
from batchinfer.model import BadRow, Dialogue, Fields, Row, Verbatim
from batchinfer.providers.base import UnsendableError
from batchinfer.providers.openai_chat import OPENAI_CHAT

MAX_LINE = 10_000
NO_TEMPLATE = Template(RequestTemplate())
CHAT = Recipe(Shape.CHAT, NO_TEMPLATE, MAX_LINE)
COMPLETIONS = Recipe(Shape.COMPLETIONS, NO_TEMPLATE, MAX_LINE)
EMBEDDINGS = Recipe(Shape.EMBEDDINGS, NO_TEMPLATE, MAX_LINE)
MESSAGES = [{"role": "user", "content": "Hi"}]


def templated(shape: Shape = Shape.CHAT, **request: Any) -> Recipe:
    return Recipe(shape, Template(RequestTemplate(**request)), MAX_LINE)


def line_of(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def row_of(value: object, recipe: Recipe = CHAT) -> Row:
    row = parse(7, line_of(value), recipe)
    assert isinstance(row, Row), row
    return row


def reason(value: object, recipe: Recipe = CHAT) -> str:
    line = value if isinstance(value, bytes) else line_of(value)
    row = parse(7, line, recipe)
    assert isinstance(row, BadRow), row
    assert (row.id, row.key) == identify(line, MAX_LINE)
    return row.message


def key_of(line: bytes) -> bytes:
    return identify(line, MAX_LINE)[1]


# ── the three forms ──────────────────────────────────────────────────────────────────────────


def test_a_batch_line_keeps_the_bytes_of_its_body() -> None:
    line = b'{"custom_id":"a","method":"POST","url":"/v1/x","body":{ "b" : 1.0, "a":"\\u00e9" }}'

    row = parse(0, line, CHAT)

    assert row == Row(0, "a", key_of(line), Verbatim(b'{ "b" : 1.0, "a":"\\u00e9" }', "/v1/x"))


def test_a_batch_line_needs_no_method() -> None:
    ask = row_of({"custom_id": "a", "url": "/v1/x", "body": {}}).ask

    assert ask == Verbatim(b"{}", "/v1/x")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "GET"}, "only POST"),
        ({"method": None}, "only POST"),
        ({"body": "text"}, "body must be an object"),
        ({"body": [1]}, "body must be an object"),
        ({"url": 5}, "url a string"),
    ],
)
def test_a_batch_line_that_cannot_be_posted_is_a_bad_row(
    changed: dict[str, object], words: str
) -> None:
    value = {"custom_id": "a", "method": "POST", "url": "/v1/x", "body": {}, **changed}

    assert words in reason(value)


@pytest.mark.parametrize(
    ("recipe", "member", "asked"),
    [(CHAT, "messages", MESSAGES), (COMPLETIONS, "prompt", "Hi"), (EMBEDDINGS, "input", ["Hi"])],
)
def test_a_request_body_goes_on_without_what_is_ours(
    recipe: Recipe, member: str, asked: object
) -> None:
    ours = {"id": 3, "custom_id": "c", "metadata": {"a": 1}, "priority": 9}

    row = row_of({**ours, member: asked, "foo": [1.50]}, recipe)

    assert row.id == "c"
    assert isinstance(row.ask, Fields)
    assert {k: json.loads(bytes(v)) for k, v in row.ask.members.items()} == {
        member: asked,
        "foo": [1.5],
    }


def test_a_members_bytes_are_kept_as_they_were_written() -> None:
    row = parse(0, b'{"messages": [],"seed": 1.0E+2, "big":123456789012345678901234567890}', CHAT)

    assert isinstance(row, Row)
    assert isinstance(row.ask, Fields)
    assert bytes(row.ask.members["seed"]) == b"1.0E+2"
    assert bytes(row.ask.members["big"]) == b"123456789012345678901234567890"


@pytest.mark.parametrize("member", ["prompt", "input", "text"])
def test_a_bare_text_is_what_the_user_says(member: str) -> None:
    ask = row_of({"id": 1, member: "Hi", "note": "mine"}).ask

    assert ask == Dialogue((("user", "Hi"),))


def test_parameters_beside_a_bare_text_go_along_and_other_members_do_not() -> None:
    ask = row_of({"prompt": "Hi", "temperature": 0.50, "model": "x", "label": "mine"}).ask

    assert isinstance(ask, Dialogue)
    assert {k: json.loads(bytes(v)) for k, v in ask.members.items()} == {
        "temperature": 0.5,
        "model": "x",
    }


def test_a_bare_text_is_preceded_by_the_configured_system_message() -> None:
    recipe = templated(system="Say it in {{ lang }}.")

    ask = row_of({"prompt": "Hi", "lang": "French"}, recipe).ask

    assert ask == Dialogue((("system", "Say it in French."), ("user", "Hi")))


def test_only_a_chat_has_a_system_message() -> None:
    ask = row_of({"text": "Hi"}, templated(Shape.EMBEDDINGS, system="Be brief.")).ask

    assert ask == Dialogue((("user", "Hi"),))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, "a number"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (["a"], "a list"),
        ({"a": 1}, "an object"),
        (1.5, "a number"),
    ],
)
def test_a_bare_prompt_that_is_no_text_is_a_bad_row(value: object, kind: str) -> None:
    assert reason({"prompt": value}) == f"prompt is {kind}; it must be a string"


def test_data_is_what_the_template_is_filled_with() -> None:
    recipe = templated(system="S {{ a }}", prompt="P {{ b.c }} {{ row.a }}")

    ask = row_of({"a": 1, "b": {"c": "x"}}, recipe).ask

    assert ask == Dialogue((("system", "S 1"), ("user", "P x 1")))


def test_a_whole_dialogue_is_templated_turn_by_turn() -> None:
    recipe = templated(messages=[Turn("user", "{{ q }}?"), Turn("assistant", "{{ a }}!")])

    ask = row_of({"q": "why", "a": "so"}, recipe).ask

    assert ask == Dialogue((("user", "why?"), ("assistant", "so!")))


@pytest.mark.parametrize("member", ["messages", "prompt", "input", "text"])
def test_a_member_that_the_template_uses_is_data(member: str) -> None:
    recipe = templated(prompt=f"Sum up: {{{{ {member} }}}}")

    assert row_of({member: "long"}, recipe).ask == Dialogue((("user", "Sum up: long"),))


@pytest.mark.parametrize("shape", list(Shape))
def test_with_a_template_a_text_that_it_does_not_use_is_data_too(shape: Shape) -> None:
    recipe = templated(shape, prompt="{{ title }}")

    assert row_of({"text": "long", "title": "T"}, recipe).ask == Dialogue((("user", "T"),))


def test_a_row_without_anything_to_send_is_told_what_could_be_done() -> None:
    message = reason({"f": 1, "e": 2, "d": 3, "c": 4, "b": 5, "a": 6})

    assert "holds a, b, c, d, e and no messages" in message
    assert "template" in message
    assert "holds nothing" in reason({})


def test_a_row_that_does_not_fit_the_template_is_a_bad_row_with_its_name() -> None:
    line = line_of({"id": "n", "other": 1})

    row = parse(3, line, templated(prompt="{{ text }}"))

    assert row == BadRow(
        3, "n", key_of(line), "the template uses text, which this row does not have"
    )


# ── names ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"id": "a"}, "a"),
        ({"id": 5}, 5),
        ({"custom_id": "c", "id": "a"}, "c"),
        ({"custom_id": None, "id": "a"}, "a"),
        ({"id": True}, None),
        ({"id": 1.5}, None),
        ({"id": ["a"]}, None),
        ({}, None),
    ],
)
def test_a_name_is_a_text_or_an_integer(value: dict[str, object], name: object) -> None:
    assert row_of({**value, "prompt": "Hi"}).id == name


# ── what cannot be read ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a":1} x', "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"[1]", "the line is a list, not a JSON object"),
        (b'"a"', "the line is a string, not"),
        (b"null", "the line is null, not"),
        (b"1", "the line is a number, not"),
        (b'{"prompt":"\xff"}', "not valid UTF-8 at byte 11"),
        (b'{"prompt":"\xed\xa0\x80"}', "not valid UTF-8 at byte 11"),
        (b'{"prompt":"\\ud83d"}', "half a surrogate pair"),
        (b'{"prompt":"\\ude00 x"}', "half a surrogate pair"),
        (b'{"prompt":"\\ud83d\\u0041"}', "half a surrogate pair"),
        (b'{"prompt":"a","n":1e999}', "number too large"),
        (b'{"prompt":"a","n":' + b"9" * 5000 + b"}", "number too large"),
        (b'{"prompt":"' + b"a" * MAX_LINE + b'"}', "longer than 10,000 bytes"),
    ],
)
def test_a_line_that_cannot_be_read_is_a_bad_row_that_says_why(line: bytes, words: str) -> None:
    assert words in reason(line)


@pytest.mark.parametrize("member", [b'"messages":', b'"body":', b'"text":', b'"x":'])
@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded_by_the_line_alone_and_not_by_who_asks(
    member: bytes, opened: bytes, closed: bytes
) -> None:
    recipe = templated(prompt="x")

    def nested(levels: int) -> bytes:
        inner = b"1" if closed == b"}" else b""
        lifted = b'"custom_id":"1","url":"/v1/x",' if member == b'"body":' else b""
        return b"{" + lifted + member + opened * levels + inner + closed * levels + b"}"

    allowed = parse(0, nested(MAX_DEPTH - 1), recipe)

    assert "nested" not in getattr(allowed, "message", "")
    for levels in (MAX_DEPTH, 500, *range(960, 1001), 1500):
        assert reason(nested(levels), recipe) == "the JSON is nested too deeply"


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert isinstance(row_of({"prompt": "Hi", "x": [[]] * 2 * MAX_DEPTH}), Row)
    assert isinstance(row_of({"prompt": "[" * 2 * MAX_DEPTH}), Row)


def test_a_blank_line_is_no_row() -> None:
    assert is_blank(b"")
    assert is_blank(b" \t\r")
    assert not is_blank(b" {} ")
    assert not is_blank(b"\xc2\xa0")


# ── the key ──────────────────────────────────────────────────────────────────────────────────

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
NAMES = st.sampled_from(
    [
        "id",
        "custom_id",
        "metadata",
        "priority",
        "prompt",
        "text",
        "messages",
        "input",
        "model",
        "body",
        "url",
        "method",
        "temperature",
        "stream",
    ]
)
OBJECTS = st.dictionaries(NAMES | TEXTS, VALUES | st.just("/v1/x"), max_size=6)
RECIPES = st.sampled_from(
    [
        CHAT,
        COMPLETIONS,
        EMBEDDINGS,
        templated(prompt="{{ text }}"),
        templated(Shape.EMBEDDINGS, prompt="{{ row }}", system="{{ id }}"),
    ]
)


def written_otherwise(value: object, draw: st.DataObject) -> str:
    """The same JSON with other white space, escapes and order of members."""
    space = draw.draw(st.sampled_from(["", " ", "\t ", "\r"]))
    if isinstance(value, dict):
        items = draw.draw(st.permutations(list(value.items())))
        inner = [
            json.dumps(k, ensure_ascii=True) + space + ":" + written_otherwise(v, draw)
            for k, v in items
        ]
        return space + "{" + ("," + space).join(inner) + space + "}"
    if isinstance(value, list):
        return "[" + ",".join(space + written_otherwise(v, draw) for v in value) + space + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=draw.draw(st.booleans()))
        return text.replace("/", "\\/") if draw.draw(st.booleans()) else text
    return json.dumps(value) + space


@given(OBJECTS, st.data())
def test_the_key_is_the_same_however_the_same_row_is_written(
    value: dict[str, object], data: st.DataObject
) -> None:
    other = written_otherwise(value, data).encode()

    assert key_of(other) == key_of(line_of(value))
    assert len(key_of(other)) == KEY_BYTES


def content(value: dict[str, Any]) -> bytes:
    """What the user would call the same row."""
    return json.dumps(value, sort_keys=True).encode()


@given(OBJECTS, OBJECTS)
def test_rows_of_another_content_have_another_key(
    one: dict[str, object], other: dict[str, object]
) -> None:
    same = content(json.loads(json.dumps(one))) == content(json.loads(json.dumps(other)))

    assert (key_of(line_of(one)) == key_of(line_of(other))) == same


@given(OBJECTS, NAMES | TEXTS, VALUES)
def test_a_changed_or_added_member_changes_the_key(
    value: dict[str, object], name: str, new: object
) -> None:
    changed = {**value, name: new}
    same = content(changed) == content(value)

    assert (key_of(line_of(changed)) == key_of(line_of(value))) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":1}', b'{"a":true}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":[1,2]}', b'{"a":[2,1]}'),
        (b'{"id":1,"prompt":"x"}', b'{"id":2,"prompt":"x"}'),
        (b'{"a":123456789012345678901}', b'{"a":123456789012345678902}'),
    ],
)
def test_values_that_are_not_the_same_json_have_different_keys(one: bytes, other: bytes) -> None:
    assert key_of(one) != key_of(other)


def test_metadata_is_content_for_a_template_may_use_it() -> None:
    one, other = ({"x": 1, "metadata": {"lang": lang}} for lang in ("de", "fr"))

    assert key_of(line_of(one)) != key_of(line_of(other))


# ── any bytes at all ─────────────────────────────────────────────────────────────────────────


def with_junk(line: bytes, at: int, junk: bytes) -> bytes:
    at %= len(line) + 1
    return line[:at] + junk + line[at:]


ALMOST = st.builds(
    with_junk,
    OBJECTS.map(line_of),
    st.integers(0, 500),
    st.binary(max_size=3)
    | st.sampled_from([b"\\ud83d", b"\xff", b"\xed\xa0\x80", b"\\u0000", b"1e999", b"[" * 1200]),
)


@given(st.binary(max_size=60) | ALMOST | OBJECTS.map(line_of), RECIPES)
@example(b'{"messages":"\xff"}', CHAT)
@example(b'{"' + b"\xc3" + b'":1}', CHAT)
def test_any_bytes_give_a_row_or_a_bad_row_and_identify_says_the_same(
    line: bytes, recipe: Recipe
) -> None:
    row = parse(5, line, recipe)

    assert row.index == 5
    assert (row.id, row.key) == identify(line, recipe.max_line)
    assert isinstance(row, Row) or row.message


@given(st.binary(min_size=1, max_size=4), ALMOST, st.integers(0, 500))
def test_what_is_not_utf8_is_a_bad_row_and_reaches_no_body(
    junk: bytes, line: bytes, at: int
) -> None:
    line = with_junk(line, at, junk)
    row = parse(0, line, CHAT)
    try:
        line.decode()
    except UnicodeDecodeError:
        assert isinstance(row, BadRow)
    if isinstance(row, BadRow):
        return
    try:
        body = OPENAI_CHAT.body(row.ask, "m", {})
    except UnsendableError:
        return
    assert isinstance(msgspec.json.decode(body), dict)
    body.decode()


@pytest.mark.parametrize(
    "line",
    [
        b'{"messages":[{"role":"user","content":"a\xffb"}]}',
        b'{"messages":[],"extra":{"deep":["\xc3("]}}',
        b'{"messages":[],"extra":{"\xfe":1}}',
        b'{"custom_id":"1","url":"/v1/chat/completions","body":{"messages":["\xff"]}}',
        b'{"prompt":"Hi","stop":["\x80"]}',
        b'{"prompt":"Hi","metadata":"\x80"}',
        b'{"prompt":"Hi","model":"\xf8"}',
    ],
)
def test_a_wrong_byte_deep_inside_a_member_that_is_only_passed_on_is_seen(line: bytes) -> None:
    assert "not valid UTF-8" in reason(line)
