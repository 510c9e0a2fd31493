"""The configuration of a job, from every place where it may be said.

Owns: the order of precedence (flags, then `--set`, the environment, the file, a preset, the
defaults) and the wording of a refusal as a whole. Refuses to know: what the fields are for. Reads
through the functions that it is given; every failure is a ConfigError.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from batchinfer.config.address import host
from batchinfer.config.layers import (
    Layer,
    Merged,
    Table,
    assignment,
    at,
    merge,
    nested,
    parse_path,
    shown,
    without,
)
from batchinfer.config.presets import NO_ENDPOINT, PRESETS, Preset, from_environment
from batchinfer.config.rules import contradictions
from batchinfer.config.schema import Config
from batchinfer.config.shape import NOT_AVAILABLE, Mistake, mistakes
from batchinfer.errors import ConfigError

MAX_MISTAKES: Final = 20
"""So many are shown at once."""

_PROVIDER: Final = ("endpoint", "provider")
_BASE_URL: Final = ("endpoint", "base_url")
_KEY_ENV: Final = ("endpoint", "api_key_env")


def load(  # noqa: PLR0917 - one argument for each place where a configuration is said
    path: str | None,
    sets: Sequence[str],
    overrides: Mapping[str, object],
    env: Mapping[str, str],
    read: Callable[[str], bytes],
    base: str | Mapping[str, object] | None = None,
) -> Config:
    """Return the configuration of a job; its `endpoint` is set. Raises ConfigError.

    `path`: a TOML file. `sets`: `FIELD=VALUE` each. `overrides`: flags by dotted field path, those
    with None were not given. `base` is the lowest layer: a name of `presets.PRESETS`, or what an
    earlier run wrote down by `fingerprint.public`.
    """
    layers = [
        *_base_layer(base),
        *_file_layer(path, read),
        Layer("--set", nested([assignment(text) for text in sets])),
        Layer("flag", nested([(parse_path(k), v) for k, v in overrides.items() if v is not None])),
    ]
    preset = PRESETS.get(base) if isinstance(base, str) else None
    merged = _with_environment(_keeping_key_at_home(layers, preset), env)
    _refuse(mistakes(merged.values), merged)
    if at(merged.values, _PROVIDER) != "simulated" and at(merged.values, _BASE_URL) is None:
        raise ConfigError(NO_ENDPOINT)
    config = msgspec.convert(merged.values, Config, strict=True)
    _refuse(contradictions(config, merged.values, env), merged)
    return config


def _base_layer(base: str | Mapping[str, object] | None) -> Iterator[Layer]:
    if isinstance(base, str):
        yield _preset_layer(base)
    elif base is not None:
        yield Layer("the earlier run", _given(base))


def _given(table: Mapping[str, object]) -> Table:
    """Return a table without its nulls: a field without a value is one that was not given."""
    return {
        name: _given(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }


def _preset_layer(name: str) -> Layer:
    preset = PRESETS.get(name)
    if preset is None:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(f"there is no such preset{meant}; there are {', '.join(PRESETS)}")
    return Layer(f"preset {name}", {"endpoint": preset.endpoint()})


def _file_layer(path: str | None, read: Callable[[str], bytes]) -> Iterator[Layer]:
    if path is None:
        return
    values = _parsed(path, _text(path, read))
    endpoints = values.get("endpoint")
    if isinstance(endpoints, list) and endpoints:
        if len(endpoints) > 1:
            raise ConfigError(f"{path}: several [[endpoint]] are {NOT_AVAILABLE}")
        values["endpoint"] = endpoints[0]
    yield Layer(path, values)


def _text(path: str, read: Callable[[str], bytes]) -> str:
    try:
        data = read(path)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8 text") from None
    except ValueError:
        raise ConfigError("the configuration's path is not one that a file can have") from None


def _parsed(path: str, text: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        end = f"at the end, line {text.count(chr(10)) + 1}"
        reason = str(error).replace("at end of document", end)
        raise ConfigError(f"{path}: not valid TOML: {reason}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not valid TOML: a number too long or too deep a list") from None


def _keeping_key_at_home(layers: Sequence[Layer], preset: Preset | None) -> Sequence[Layer]:
    """Take the key out of a preset (the lowest layer) where another host took its place."""
    if preset is None:
        return layers
    url = at(merge(layers).values, _BASE_URL)
    if not isinstance(url, str) or host(url) == host(preset.base_url):
        return layers
    lowest, *others = layers
    return [Layer(lowest.origin, without(lowest.values, _KEY_ENV)), *others]


def _with_environment(layers: Sequence[Layer], env: Mapping[str, str]) -> Merged:
    """Merge the layers; what they leave open of the endpoint is said by the environment."""
    merged = merge(layers)
    endpoint = merged.values.get("endpoint", {})
    if not isinstance(endpoint, dict):
        return merged
    added = [
        Layer(f"environment variable {name}", {"endpoint": fields})
        for name, fields in from_environment(endpoint, env).items()
    ]
    return merge([*added, *layers])


def _refuse(found: Iterable[Mistake], merged: Merged) -> None:
    lines = [_line(mistake, merged.origin(mistake.path)) for mistake in found]
    if len(lines) == 1:
        raise ConfigError(lines[0])
    if lines:
        more = [f"and {len(lines) - MAX_MISTAKES} more"] if len(lines) > MAX_MISTAKES else []
        listed = "\n  ".join(lines[:MAX_MISTAKES] + more)
        raise ConfigError(f"{len(lines)} mistakes in the configuration:\n  {listed}")


def _line(mistake: Mistake, origin: str | None) -> str:
    where = f" ({origin})" if origin else ""
    return f"{shown(mistake.path)}{where}: {mistake.text}"
