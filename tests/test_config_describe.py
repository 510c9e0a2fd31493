"""The JSON Schema and the commented file say what the schema says."""

import json
import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec
import pytest

from batchinfer.config.describe import (
    EXAMPLES,
    SCHEMA_FILE,
    init_text,
    json_schema,
    meanings,
    summary,
    toml,
)
from batchinfer.config.load import load
from batchinfer.config.presets import PRESETS
from batchinfer.config.schema import (
    Budget,
    Config,
    Endpoint,
    Intake,
    Limits,
    Output,
    Price,
    RequestTemplate,
    Retry,
    Simulate,
    Timeouts,
    Turn,
)
from batchinfer.config.shape import field_paths
from batchinfer.errors import ConfigError

TABLES: Final = (
    Budget,
    Endpoint,
    Intake,
    Limits,
    Output,
    Price,
    RequestTemplate,
    Retry,
    Simulate,
    Timeouts,
    Turn,
)
ALTERNATIVES: Final = ("api_key_file", "messages")


def _uncommented(text: str, *, without: tuple[str, ...]) -> str:
    dropped = re.compile(rf"#(?:{'|'.join(without)}) = ")
    lines = [line for line in text.splitlines() if not dropped.match(line)]
    return "\n".join(re.sub(r"^#(?! )", "", line) for line in lines)


def _load(text: str) -> Config:
    return load("init.toml", [], {}, {"OPENAI_API_KEY": "k"}, lambda _: text.encode())


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_field_is_documented_and_nothing_else_is(kind: type[msgspec.Struct]) -> None:
    assert meanings(kind).keys() == {field.name for field in msgspec.structs.fields(kind)}
    assert summary(kind).endswith(".")


def test_the_shipped_json_schema_is_current() -> None:
    """Written by `python -m batchinfer.config.describe`."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == json_schema()


def test_the_json_schema_describes_every_field_and_knows_no_null() -> None:
    schema = json.loads(json_schema())

    assert '"null"' not in json_schema()
    assert schema["additionalProperties"] is False
    for kind in TABLES:
        definition = schema["$defs"][kind.__name__]
        assert definition["additionalProperties"] is False
        for name, property_ in definition["properties"].items():
            assert property_["description"] == meanings(kind)[name]
            assert property_.keys() & {"type", "enum", "anyOf", "$ref"}


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_the_first_file_is_valid_and_sets_its_preset_only(preset: str | None) -> None:
    values = tomllib.loads(init_text(preset))
    expected = PRESETS[preset].endpoint() if preset else {}

    assert values.pop("endpoint") == expected
    assert all(table == {} for table in values.values())


@pytest.mark.parametrize("dropped", [ALTERNATIVES, ("api_key_env", "prompt")])
def test_the_first_file_loads_with_every_line_uncommented(dropped: tuple[str, ...]) -> None:
    config = _load(_uncommented(init_text(), without=dropped))

    assert config.limits == Limits(
        rpm=600, tpm=200_000, input_tpm=150_000, output_tpm=50_000, rpd=10_000, tpd=5_000_000
    )
    assert config.retry == Retry()
    assert config.simulate == Simulate()
    assert config.prices == {"my-model": Price(input=0.15, output=0.60, cached=0.075)}
    assert bool(config.request.prompt) is ("prompt" not in dropped)


def test_the_first_file_names_every_field() -> None:
    text = init_text()

    for path in field_paths():
        if path != ("prices",):
            assert re.search(rf"^#{path[-1]} = ", text, re.MULTILINE), path


def test_an_example_stands_for_a_field_that_exists() -> None:
    known = {".".join(path) for path in field_paths()}
    prices = {f"prices.{field.name}" for field in msgspec.structs.fields(Price)}

    assert EXAMPLES.keys() <= known | prices


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such preset"):
        init_text("gpt")


@pytest.mark.parametrize(
    "value", [True, 5, 0.25, 'a "b"\n', [1, "a"], {"a": {"b": [True]}}, [{"role": "user"}]]
)
def test_a_value_is_written_as_toml_reads_it(value: object) -> None:
    assert tomllib.loads(f"v = {toml(value)}") == {"v": value}


def test_a_value_that_toml_has_not_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError):
        toml(Path())
