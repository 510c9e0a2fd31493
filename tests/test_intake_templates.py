from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.schema import RequestTemplate, Turn
from batchinfer.errors import ConfigError
from batchinfer.intake.templates import MAX_TEXT, RenderError, Template


def template(prompt: str = "", **request: Any) -> Template:
    return Template(RequestTemplate(prompt=prompt, **request))


def rendered(prompt: str, row: dict[str, object]) -> str:
    [(role, text)] = template(prompt).turns(row)
    assert role == "user"
    return text


def refused(prompt: str, row: dict[str, object]) -> str:
    with pytest.raises(RenderError) as caught:
        template(prompt).turns(row)
    return str(caught.value)


def test_a_template_without_turns_is_none() -> None:
    assert not template()
    assert not template(system="Be brief.")
    assert template("x")
    assert template(messages=[Turn("user", "x")])


def test_the_names_are_the_fields_that_the_turns_use() -> None:
    made = template("{{ a }} {{ b.c }} {% for x in d %}{{ x }}{% endfor %}", system="{{ s }}")

    assert made.names == {"a", "b", "d"}


def test_the_whole_row_can_be_had_under_its_name() -> None:
    assert rendered("{{ row['a b'] }}", {"a b": "x"}) == "x"
    assert rendered("{{ row }}", {"row": "mine"}) == "mine"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_value_is_put_in_as_it_is_and_never_evaluated(text: str) -> None:
    assert rendered("<{{ a }}>", {"a": text}) == f"<{text}>"


@pytest.mark.parametrize("text", ["{{ b }}", "{% raw %}", "{# x #}", "<b>&amp;</b>", "a\n"])
def test_braces_and_markup_in_a_value_are_text(text: str) -> None:
    assert rendered("{{ a }}", {"a": text, "b": "secret"}) == text


def test_a_newline_at_the_end_of_a_template_is_kept() -> None:
    assert rendered("{{ a }}\n", {"a": 1}) == "1\n"


@pytest.mark.parametrize("name", ["self", "name", "template_name", "ctx", "kwargs", "loop"])
def test_any_member_name_can_be_used(name: str) -> None:
    assert rendered(f"{{{{ {name} }}}}", {name: "x"}) == "x"


def test_a_missing_field_is_named() -> None:
    message = refused("{{ a }} {{ b }} {{ c }}", {"b": 1})

    assert message == "the template uses a, c, which this row does not have"


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("{{ a.b.c }}", "undefined value"),
        ("{{ a / 0 }}", "invalid operation"),
        ("{{ a() }}", "invalid operation"),
        ("{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}", "fuel"),
        ("{{ a.__class__.__mro__ }}", "undefined value"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "invalid operation"),
    ],
)
def test_what_a_template_cannot_do_with_a_row_is_the_rows_error(prompt: str, kind: str) -> None:
    assert kind in refused(prompt, {"a": "x"})


@pytest.mark.parametrize(
    "prompt",
    ["{% include '/etc/passwd' %}", "{{ a|nofilter }}", "{{ a is odd2 }}"],
)
def test_a_name_that_no_template_knows_is_a_mistake_of_the_configuration(prompt: str) -> None:
    with pytest.raises(ConfigError, match=r"request\.prompt"):
        refused(prompt, {"a": "x"})


def test_a_rows_own_text_is_not_repeated_in_the_reason() -> None:
    assert "secret" not in refused("{{ a / 2 }}", {"a": "secret"})


def test_a_text_beyond_all_bounds_is_refused() -> None:
    twice = "{{ a }}" * 2

    assert "characters" in refused(twice, {"a": "x" * (MAX_TEXT // 2 + 1)})
    assert len(rendered(twice, {"a": "x" * (MAX_TEXT // 2)})) == MAX_TEXT


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ({"prompt": "{{ a"}, "request.prompt"),
        ({"system": "{% if %}"}, "request.system"),
        ({"messages": [Turn("user", "x"), Turn("assistant", "{{")]}, "request.messages.1.content"),
    ],
)
def test_a_template_that_is_no_template_is_a_wrong_configuration(
    request_: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=name):
        Template(RequestTemplate(**request_))


def test_two_turns_of_one_role_are_kept_apart() -> None:
    made = template("third", messages=[Turn("user", "first"), Turn("user", "second")])

    assert [text for _, text in made.turns({})] == ["first", "second", "third"]


def test_the_system_turn_stands_alone_or_not_at_all() -> None:
    assert template().system({}) == ()
    assert template(system="S {{ a }}").system({"a": 1}) == (("system", "S 1"),)
