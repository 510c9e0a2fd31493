"""The configuration described: the JSON Schema for editors, and a commented file to begin with.

Owns: the reading of `name: meaning` lines in docstrings of the schema, example values, the layout
of both texts. Refuses to know: how a configuration is loaded. Run as a module, it writes the
JSON Schema beside itself.
"""

import re
from collections.abc import Iterator, Mapping
from json import dumps
from pathlib import Path
from textwrap import wrap
from types import UnionType
from typing import Final, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from batchinfer.config.presets import PRESETS
from batchinfer.config.schema import Config, Price
from batchinfer.errors import ConfigError

SCHEMA_FILE: Final = Path(__file__).with_name("config.schema.json")

EXAMPLES: Final[Mapping[str, object]] = {
    "endpoint.base_url": "http://127.0.0.1:8000/v1",
    "endpoint.model": "my-model",
    "endpoint.api_key_env": "OPENAI_API_KEY",
    "endpoint.api_key_file": "api-key.txt",
    "endpoint.headers": {"X-Team": "reviews"},
    "request.system": "Answer with one word.",
    "request.prompt": "Classify: {{ text }}",
    "request.messages": [{"role": "user", "content": "Classify: {{ text }}"}],
    "request.params": {"temperature": 0.0, "max_tokens": 200},
    "limits.rpm": 600,
    "limits.tpm": 200_000,
    "limits.input_tpm": 150_000,
    "limits.output_tpm": 50_000,
    "limits.rpd": 10_000,
    "limits.tpd": 5_000_000,
    "budget.max_cost": 25.0,
    "output.prefix": "out/reviews",
    "prices.input": 0.15,
    "prices.output": 0.60,
    "prices.cached": 0.075,
}
"""What stands in the commented file for a field that has no value by default."""

_FIELD_DOC: Final = re.compile(r"^ {4}([a-z_]+): (.+)$", re.MULTILINE)
_NULL: Final = {"type": "null"}
_WIDTH: Final = 90


def summary(kind: type[Struct]) -> str:
    """Return what a table is for: the first line of its docstring."""
    return (kind.__doc__ or "").partition("\n")[0]


def meanings(kind: type[Struct]) -> dict[str, str]:
    """Return what each field of a table means, by name, from its docstring."""
    return dict(_FIELD_DOC.findall(kind.__doc__ or ""))


def json_schema() -> str:
    """Return the JSON Schema of a configuration file, as the text of `config.schema.json`."""
    _, components = msgspec.json.schema_components(
        [Config], schema_hook=_any_value, ref_template="#/$defs/{name}"
    )
    for kind in set(_tables(Config)):
        component = components[kind.__name__]
        component["description"] = summary(kind)
        properties = component["properties"]
        component["properties"] = {
            name: _without_null(property_) | _described(meanings(kind).get(name))
            for name, property_ in properties.items()
        }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **components.pop("Config"),
        "$defs": dict(sorted(components.items())),
    }
    return dumps(schema, indent=2) + "\n"


def init_text(preset: str | None = None) -> str:
    """Return a configuration file with every field, its meaning and its default.

    A line that begins with `# ` is prose; one that begins with `#` alone is a field or a table,
    to be uncommented. A preset's own fields stand uncommented. Raises ConfigError.
    """
    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"there is no such preset; there are {', '.join(PRESETS)}")
    active = PRESETS[preset].endpoint() if preset is not None else {}
    lines = [
        "# A batchinfer configuration. Each field is shown with its default, or with an example",
        "# where it has none. Remove the # before the fields that you want to set.",
    ]
    for field in fields(Config):
        lines += _table(field, active if field.name == "endpoint" else {})
    return "\n".join(lines) + "\n"


def _table(field: FieldInfo, active: Mapping[str, object]) -> Iterator[str]:
    kind = next(_structs(field.type))
    yield ""
    yield from _prose(summary(kind))
    yield '#[prices."my-model"]' if kind is Price else f"[{field.name}]"
    for inner in fields(kind):
        example = EXAMPLES.get(f"{field.name}.{inner.name}")
        note = "" if example is None or inner.name in active else " (example)"
        yield from _prose(meanings(kind)[inner.name].removesuffix(".") + note)
        if inner.name in active:
            yield f"{inner.name} = {toml(active[inner.name])}"
        else:
            yield f"#{inner.name} = {toml(inner.default if example is None else example)}"


def _prose(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _WIDTH)]


def toml(value: object) -> str:
    """Return a value as TOML writes it in one line."""
    match value:
        case bool() | int() | float() | str():
            return dumps(value)
        case list():
            return "[" + ", ".join(toml(inner) for inner in value) + "]"
        case dict():
            return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    raise TypeError(type(value).__name__)


def _described(meaning: str | None) -> dict[str, object]:
    return {} if meaning is None else {"description": meaning}


def _without_null(property_: dict[str, object]) -> dict[str, object]:
    """Take null out of a property: TOML has none, and a table's defaults stand in its fields."""
    kept = {name: value for name, value in property_.items() if name != "default"}
    default = property_.get("default")
    if not isinstance(default, dict | None):
        kept["default"] = default
    choice = kept.pop("anyOf", None)
    arms = [arm for arm in choice if arm != _NULL] if isinstance(choice, list) else []
    return kept | (arms[0] if len(arms) == 1 else {"anyOf": arms} if arms else {})


def _any_value(_: type) -> dict[str, object]:
    return {"type": ["string", "number", "boolean", "array", "object"]}


def _tables(kind: type[Struct]) -> Iterator[type[Struct]]:
    yield kind
    for field in fields(kind):
        for inner in _structs(field.type):
            yield from _tables(inner)


def _structs(kind: object) -> Iterator[type[Struct]]:
    """Yield the tables in a field's type: itself, or those of a list, a table or a choice."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    elif get_origin(kind) in {Union, UnionType, list, dict}:
        for inner in get_args(kind):
            yield from _structs(inner)


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json_schema(), encoding="utf-8")
