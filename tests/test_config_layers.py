"""Paths, assignments and the merging of layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.layers import (
    Layer,
    assignment,
    at,
    merge,
    nested,
    parse_path,
    shown,
    without,
)
from batchinfer.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("limits.rpm=500", ("limits", "rpm"), 500),
        ("limits.rpm = 5e2", ("limits", "rpm"), 500.0),
        ("output.include_response=true", ("output", "include_response"), True),
        ('prices."my-model.v1".input=1', ("prices", "my-model.v1", "input"), 1),
        ("prices.'a=b'.input=1", ("prices", "a=b", "input"), 1),
        ("endpoint.model=org/name", ("endpoint", "model"), "org/name"),
        ("endpoint.model='4'", ("endpoint", "model"), "4"),
        ("request.prompt=a=b {{ c }}", ("request", "prompt"), "a=b {{ c }}"),
        ("request.prompt=", ("request", "prompt"), ""),
        ("request.prompt=1\nb = 2", ("request", "prompt"), "1\nb = 2"),
        ("request.params={temperature=0}", ("request", "params"), {"temperature": 0}),
    ],
)
def test_an_assignment_takes_a_toml_value_or_else_plain_text(
    text: str, path: tuple[str, ...], value: object
) -> None:
    assert assignment(text) == (path, value)


@pytest.mark.parametrize("text", ["", "sk-SECRET", "=sk-SECRET", '"a=sk-SECRET', "a b=sk-SECRET"])
def test_what_is_no_assignment_is_refused_without_repeating_its_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assignment(text)

    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("text", ["", ".", "a.", "a..b", "a\nb", "a = 1\nb", "\x1b[31m", "[a]"])
def test_what_names_no_field_is_refused_in_printable_words(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_path(text)

    assert str(caught.value).isprintable()


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=4))
def test_a_shown_path_is_printable_and_of_one_line(path: list[str]) -> None:
    assert shown(tuple(path)).isascii()
    assert shown(tuple(path)).isprintable() or "\x7f" in "".join(path)


@given(st.lists(st.from_regex(r"[a-z -~]{1,6}", fullmatch=True), min_size=1, max_size=4))
def test_a_shown_path_is_read_back_as_itself(path: list[str]) -> None:
    assert parse_path(shown(tuple(path))) == tuple(path)


def test_a_later_layer_wins_field_by_field() -> None:
    merged = merge(
        [
            Layer("low", {"a": {"x": 1, "y": 1}, "b": 1}),
            Layer("high", {"a": {"y": 2}, "c": {}}),
        ]
    )

    assert merged.values == {"a": {"x": 1, "y": 2}, "b": 1, "c": {}}
    assert merged.origin(("a", "x")) == "low"
    assert merged.origin(("a", "y")) == "high"
    assert merged.origin(("b", "inner")) == "low"
    assert merged.origin(("d",)) is None


def test_merging_changes_no_layer() -> None:
    low: dict[str, object] = {"a": {"x": 1}}
    merge([Layer("low", low), Layer("high", {"a": {"x": 2}})])

    assert low == {"a": {"x": 1}}


def test_of_fields_that_exclude_each_other_the_higher_layer_keeps_its_own() -> None:
    merged = merge(
        [
            Layer("low", {"endpoint": {"api_key_env": "A"}, "request": {"messages": [1]}}),
            Layer("high", {"endpoint": {"api_key_file": "f"}, "request": {"prompt": "p"}}),
        ]
    )

    assert merged.values == {"endpoint": {"api_key_file": "f"}, "request": {"prompt": "p"}}
    assert merged.origin(("endpoint", "api_key_env")) is None


def test_of_equal_paths_the_last_wins() -> None:
    assert nested([(("a", "b"), 1), (("a", "c"), 2), (("a", "b"), 3)]) == {"a": {"b": 3, "c": 2}}


def test_what_is_not_there_is_none_and_is_left_out_without_complaint() -> None:
    table: dict[str, object] = {"a": {"b": 1, "c": 2}, "d": 3}

    assert at(table, ("a", "b")) == 1
    assert at(table, ("d", "b")) is None
    assert without(table, ("a", "b")) == {"a": {"c": 2}, "d": 3}
    assert without(table, ("d", "b")) == table
    assert without(table, ("x",)) == table
