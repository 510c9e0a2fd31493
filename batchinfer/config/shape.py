"""Whether a table has the configuration's shape, and how to say that it has not.

Owns: every message about an unknown field, a missing one, a wrong type or range. Refuses to know:
where the table came from, what the fields are for. All mistakes are found, not the first only.
"""

import difflib
import math
from collections.abc import Iterator
from json import dumps
from types import UnionType
from typing import Final, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, inspect
from msgspec.structs import FieldInfo, fields

from batchinfer.config.layers import FieldPath, Table, shown
from batchinfer.config.schema import Config

LATER: Final = frozenset(
    {
        ("pack",),
        ("validate",),
        ("endpoint", "provider", "openai-responses"),
        ("endpoint", "provider", "anthropic"),
        ("endpoint", "provider", "gemini"),
        ("endpoint", "provider", "http"),
    }
)
"""Fields, and values of a field, that are planned: said apart from those that nobody knows."""

NOT_AVAILABLE: Final = "not available in this version"

_NO_KEY: Final = (
    "a key never stands in the configuration; put it in an environment variable "
    "and give that one's name as endpoint.api_key_env"
)
_PARAMETER: Final = "parameters of the request go to request.params"
HINTS: Final = {
    "api_key": _NO_KEY,
    "apikey": _NO_KEY,
    "key": _NO_KEY,
    "token": _NO_KEY,
    "temperature": _PARAMETER,
    "max_tokens": _PARAMETER,
    "top_p": _PARAMETER,
}
"""What to say of a name that many expect to be a field."""

_MAX_SHOWN: Final = 40
_INT64: Final = 2**63
_OPEN_FIELDS: Final = frozenset({("endpoint", "provider"), ("endpoint", "transport")})
"""What may be repeated of `endpoint` in a message; anything else there may hold a secret."""


_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.ListType: "a list",
    inspect.DictType: "a table",
}


class Mistake(Struct, frozen=True):
    """What is wrong with the field at `path`; `text` follows the field's name."""

    path: FieldPath
    text: str


def mistakes(values: Table) -> list[Mistake]:
    """Return all that keeps the table from being a Config."""
    return list(_in_struct(values, Config, ()))


def _look(value: object, kind: object, path: FieldPath) -> Iterator[Mistake]:
    kind = _present(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield from _in_struct(value, kind, path)
    elif get_origin(kind) is dict and isinstance(value, dict):
        for name, inner in value.items():
            yield from _look(inner, get_args(kind)[1], (*path, name))
    elif get_origin(kind) is list and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _look(inner, get_args(kind)[0], (*path, str(index)))
    elif kind is object:
        yield from _in_free(value, path)
    else:
        yield from _in_leaf(value, kind, path)


def _present(kind: object) -> object:
    """Return the type without None: TOML has no null, an absent field is left out."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    arms = [arm for arm in get_args(kind) if arm is not type(None)]
    return arms[0] if len(arms) == 1 else kind


def _in_struct(value: object, kind: type[Struct], path: FieldPath) -> Iterator[Mistake]:
    if not isinstance(value, dict):
        yield Mistake(path, f"found {_found(value, path)}, expected a table")
        return
    known = {field.name: field for field in fields(kind)}
    for name, inner in value.items():
        if name in known:
            yield from _look(inner, known[name].type, (*path, name))
        else:
            yield Mistake((*path, name), _unknown((*path, name), list(known)))
    for field in known.values():
        if _is_required(field) and field.name not in value:
            yield Mistake((*path, field.name), f"missing, expected {_expected(field.type)}")


def _is_required(field: FieldInfo) -> bool:
    return field.default is NODEFAULT and field.default_factory is NODEFAULT


def _in_free(value: object, path: FieldPath) -> Iterator[Mistake]:
    """Check what becomes JSON as it is."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _in_free(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _in_free(inner, (*path, str(index)))
    elif not isinstance(value, str | int | float) or not _is_sendable(value):
        yield Mistake(path, f"found {_found(value, path)}, expected what JSON can hold")


def _in_leaf(value: object, kind: object, path: FieldPath) -> Iterator[Mistake]:
    if isinstance(value, str) and (*path, value) in LATER:
        yield Mistake(path, f"{dumps(value)} is {NOT_AVAILABLE}; expected {_expected(kind)}")
        return
    try:
        msgspec.convert(value, type=kind, strict=True)
    except msgspec.ValidationError:
        fits = False
    else:
        fits = _is_sendable(value)
    if not fits:
        yield Mistake(path, f"found {_found(value, path)}, expected {_expected(kind)}")


def _is_sendable(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case int():
            return -_INT64 <= value < _INT64
        case str():
            return not any("\ud800" <= character <= "\udfff" for character in value)
    return True


def _found(value: object, path: FieldPath) -> str:
    match value:
        case bool() | float() | int():
            return str(value).lower()[:_MAX_SHOWN]
        case str() if path[0] == "endpoint" and path not in _OPEN_FIELDS:
            return "text"
        case str():
            return dumps(value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "...")
        case list():
            return "a list"
        case dict():
            return "a table"
    return "a date or a time"


def _expected(kind: object) -> str:
    return _words(inspect.type_info(_present(kind)))


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=types):
            return " or ".join(_words(arm) for arm in types)
        case inspect.LiteralType(values=values):
            words = ", ".join(dumps(value) for value in values)
            return f"one of {words}" if len(values) > 1 else words
        case inspect.IntType() | inspect.FloatType():
            return _WORDS[type(kind)] + _bounds(kind)
    return _WORDS[type(kind)]


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    limits = ((">", kind.gt), (">=", kind.ge), ("<", kind.lt), ("<=", kind.le))
    words = [f"{sign} {limit}" for sign, limit in limits if limit is not None]
    return " " + " and ".join(words) if words else ""


def _unknown(path: FieldPath, siblings: list[str]) -> str:
    if path in LATER:
        return NOT_AVAILABLE
    if (hint := HINTS.get(path[-1].lower())) is not None:
        return f"not a field; {hint}"
    near = _nearest(path, siblings)
    return f"not a field; did you mean {shown(near)}?" if near else "not a field"


def _nearest(path: FieldPath, siblings: list[str]) -> FieldPath | None:
    """Return the likeliest field: a close name here, the same name elsewhere, a close one there."""
    name = path[-1]
    close = difflib.get_close_matches(name, siblings, n=1, cutoff=0.8)
    if close:
        return (*path[:-1], close[0])
    everywhere = {field[-1]: field for field in reversed(list(field_paths()))}
    if name in everywhere:
        return everywhere[name]
    close = difflib.get_close_matches(name, siblings, n=1)
    if close:
        return (*path[:-1], close[0])
    close = difflib.get_close_matches(name, everywhere, n=1, cutoff=0.8)
    return everywhere[close[0]] if close else None


def field_paths(kind: type[Struct] = Config, base: FieldPath = ()) -> Iterator[FieldPath]:
    """Return the paths of all fields with a name of their own, tables left out."""
    for field in fields(kind):
        inner = _present(field.type)
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from field_paths(inner, (*base, field.name))
        else:
            yield (*base, field.name)
