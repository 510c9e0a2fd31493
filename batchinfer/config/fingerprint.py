"""Which configurations ask the same of a row, and what of one may be written down.

Owns: the fingerprint of a job, the configuration without secrets, and the naming of differences.
Refuses to know: files, the rows. Limits, timeouts and addresses may change between two runs of a
job; what is asked may not.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from json import dumps
from typing import Final

import msgspec

from batchinfer.config.address import shown as shown_url
from batchinfer.config.layers import FieldPath, shown
from batchinfer.config.schema import Config, Endpoint
from batchinfer.config.secrets import PLACEHOLDER

ASKED: Final[tuple[FieldPath, ...]] = (
    ("endpoint", "provider"),
    ("endpoint", "model"),
    ("request",),
)
"""What makes the body of a request, besides the row."""

SIMULATED: Final[FieldPath] = ("simulate", "api")
"""The same for the simulated provider: the wire API that it speaks."""

HIDDEN: Final = "***"

HARMLESS: Final = frozenset({"api-version", "http-referer", "user-agent", "x-title"})
"""Headers and members of a query, in lower case, that hold no secret."""

_REFERENCE: Final = re.compile(rf"(?:(?:Bearer|Basic) )?{PLACEHOLDER.pattern}")

_MAX_SHOWN: Final = 60


def fingerprint(config: Config) -> str:
    """Return 32 hexadecimal digits that are equal for jobs that ask the same of a row.

    Numbers count by value: 1 and 1.0 are equal. The order of parameters does not count.
    """
    table = public(config)
    asked = [[list(path), _plain(_at(table, path))] for path in _asked(table)]
    text = dumps(asked, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def public(config: Config) -> dict[str, object]:
    """Return the configuration as JSON values, without secrets.

    What a header or the URL's query holds becomes `***`, but for `${env:NAME}`, which names a
    secret and is none, and for what HARMLESS lists. The URL loses its userinfo.
    """
    endpoint = config.endpoint or Endpoint()
    table: dict[str, object] = msgspec.to_builtins(config)
    table["endpoint"] = msgspec.to_builtins(endpoint) | {
        "headers": {name: _safe(name, text) for name, text in endpoint.headers.items()},
        "base_url": endpoint.base_url and _safe_url(endpoint.base_url),
    }
    return table


def hidden(endpoint: Endpoint) -> list[str]:
    """Return which of `headers` and `base_url` lost something to `public`."""
    lost = {
        "headers": HIDDEN in endpoint.headers.values(),
        "base_url": HIDDEN in (endpoint.base_url or ""),
    }
    return [name for name, is_lost in lost.items() if is_lost]


def _safe(name: str, text: str) -> str:
    is_kept = name.lower() in HARMLESS or _REFERENCE.fullmatch(text)
    return text if is_kept else HIDDEN


def _safe_url(url: str) -> str:
    members = url.partition("#")[0].partition("?")[2].split("&")
    kept = [
        f"{name}={_safe(name, text)}" if equals else HIDDEN
        for name, equals, text in (member.partition("=") for member in members if member)
    ]
    return shown_url(url) + ("?" + "&".join(kept) if kept else "")


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Name the fields by which two `public` configurations ask differently of a row.

    Each line is `field: was OLD, now NEW`, harmless to a terminal.
    """
    before, after = dict(_fields(old)), dict(_fields(new))
    return [
        f"{shown(path)}: was {_short(before.get(path))}, now {_short(after.get(path))}"
        for path in {**before, **after}
        if _plain(before.get(path)) != _plain(after.get(path))
    ]


def _asked(table: Mapping[str, object]) -> tuple[FieldPath, ...]:
    is_simulated = _at(table, ("endpoint", "provider")) == "simulated"
    return (*ASKED, SIMULATED) if is_simulated else ASKED


def _fields(table: Mapping[str, object]) -> Iterator[tuple[FieldPath, object]]:
    for path in _asked(table):
        yield from _leaves(_at(table, path), path)


def _leaves(value: object, path: FieldPath) -> Iterator[tuple[FieldPath, object]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, value


def _at(table: object, path: FieldPath) -> object:
    for name in path:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _plain(value: object) -> object:
    """Return the value with every whole float as an int, so that 1 and 1.0 are written alike."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
    return value


def _short(value: object) -> str:
    if value is None:
        return "absent"
    text = dumps(value, sort_keys=True)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
