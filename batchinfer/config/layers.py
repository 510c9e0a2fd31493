"""Where values come from, one layer over another, and the dotted paths that name fields.

Owns: paths as text, `FIELD=VALUE`, merging, and who said what. Refuses to know: which fields exist.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from json import dumps
from typing import Final

from msgspec import Struct

from batchinfer.errors import ConfigError

FieldPath = tuple[str, ...]
Table = dict[str, object]

EXCLUSIVE: Final[tuple[tuple[FieldPath, FieldPath], ...]] = (
    (("endpoint", "api_key_env"), ("endpoint", "api_key_file")),
    (("request", "prompt"), ("request", "messages")),
)
"""Pairs of which a layer sets one; it then replaces the other in the layers below."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEY: Final = re.compile(r"""(?:[^="']|"(?:[^"\\]|\\.)*"|'[^']*')+""")


class Layer(Struct, frozen=True):
    """Values of one origin: a file's path, `--set`, a flag, a preset, an environment variable."""

    origin: str
    values: Table


class Merged(Struct, frozen=True):
    """The layers as one table; `origins` says for each leaf's path who set it."""

    values: Table
    origins: dict[FieldPath, str]

    def origin(self, path: FieldPath) -> str | None:
        """Return who set the field, or something in it; None when nobody did."""
        for known, origin in self.origins.items():
            if known[: len(path)] == path or path[: len(known)] == known:
                return origin
        return None


def shown(path: FieldPath) -> str:
    """Return a path as TOML writes it; harmless to a terminal."""
    return ".".join(part if _BARE.fullmatch(part) else dumps(part) for part in path)


def parse_path(text: str) -> FieldPath:
    """Read `a.b` or `prices."my-model".input`; raises ConfigError."""
    try:
        level: object = tomllib.loads(f"{text} = 0") if text.isprintable() else None
    except ValueError:
        level = None
    path: FieldPath = ()
    while isinstance(level, dict) and len(level) == 1:
        ((name, level),) = level.items()
        path += (name,)
    if level != 0 or not path:
        raise ConfigError(f"{dumps(text[:80])} is not the name of a field, such as limits.rpm")
    return path


def assignment(text: str) -> tuple[FieldPath, object]:
    """Read `FIELD=VALUE` (the value as TOML has it, else plain text); raises ConfigError.

    The value is not repeated in the error: it may be a secret put there by mistake.
    """
    key = _KEY.match(text)
    if key is None or text[key.end() : key.end() + 1] != "=":
        raise ConfigError("--set takes FIELD=VALUE, such as --set limits.rpm=500")
    return parse_path(key[0].strip()), _value(text[key.end() + 1 :].strip())


def _value(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


def nested(values: Iterable[tuple[FieldPath, object]]) -> Table:
    """Return the table that holds each value at its path; the last of equal paths wins."""
    table: Table = {}
    for path, value in values:
        table = _over(table, _wrapped(path, value))
    return table


def _wrapped(path: FieldPath, value: object) -> Table:
    name, *rest = path
    return {name: _wrapped(tuple(rest), value) if rest else value}


def merge(layers: Iterable[Layer]) -> Merged:
    """Lay the layers over one another, the first one lowest."""
    values: Table = {}
    origins: dict[FieldPath, str] = {}
    for layer in layers:
        for lost in _replaced(layer.values):
            values = without(values, lost)
            origins = {path: who for path, who in origins.items() if path[: len(lost)] != lost}
        values = _over(values, layer.values)
        origins |= dict.fromkeys(_leaves(layer.values), layer.origin)
    return Merged(values, origins)


def at(values: Mapping[str, object], path: FieldPath) -> object:
    """Return what stands at a path, None when nothing does."""
    level: object = values
    for name in path:
        level = level.get(name) if isinstance(level, Mapping) else None
    return level


def without(values: Table, path: FieldPath) -> Table:
    """Return the table without what stands at a path."""
    name, *rest = path
    inner = values.get(name)
    if rest and isinstance(inner, dict):
        return {**values, name: without(inner, tuple(rest))}
    return values if rest else {key: value for key, value in values.items() if key != name}


def _replaced(values: Table) -> Iterator[FieldPath]:
    for one, other in EXCLUSIVE:
        if at(values, one):
            yield other
        if at(values, other):
            yield one


def _over(lower: Table, upper: Table) -> Table:
    both = dict(lower)
    for name, value in upper.items():
        below = both.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            both[name] = _over(below, value)
        else:
            both[name] = value
    return both


def _leaves(values: Table, base: FieldPath = ()) -> Iterator[FieldPath]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*base, name))
        else:
            yield (*base, name)
