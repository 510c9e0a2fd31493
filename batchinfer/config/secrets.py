"""Secrets: where they are read, and values that cannot be printed by mistake.

Owns: keys from the environment or a file, `${env:NAME}`, headers that carry secrets, and the rule
that a secret does not travel in the clear. Refuses to know: sockets, logs. No message made here
holds any part of a secret, nor a name that may be one.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn
from urllib.parse import urlsplit

from batchinfer.config.address import is_encrypted, is_loopback, joined
from batchinfer.config.schema import Endpoint
from batchinfer.errors import ConfigError

Env = Mapping[str, str]
Read = Callable[[str], bytes]

MAX_KEY: Final = 8192
"""Characters; the longest tokens of identity providers are below half of it."""

_KEY: Final = re.compile(r"[\x21-\x7e]+")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_BLANKS: Final = " \t\r\n"
PLACEHOLDER: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_SAFE_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_SECRET_NAME: Final = re.compile(r"(?i)auth|key|token|secret|cookie|password")
_FRAMING: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "transfer-encoding"}
)


class Secret:
    """A value that shows itself only to who asks by `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, _spec: str) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not stored")


def read_key(endpoint: Endpoint, env: Env, read: Read) -> Secret | None:
    """Return the endpoint's API key; raises ConfigError.

    None where the endpoint names no key, and for the simulated provider, which needs none.
    """
    if endpoint.provider == "simulated":
        return None
    if endpoint.api_key_env is not None:
        field = "endpoint.api_key_env"
        text = _variable(endpoint.api_key_env, field, env)
    elif endpoint.api_key_file is not None:
        field = "endpoint.api_key_file"
        text = _content(endpoint.api_key_file, env, read)
    else:
        return None
    key = text.strip(_BLANKS)
    if not _KEY.fullmatch(key) or len(key) > MAX_KEY:
        raise ConfigError(
            f"{field}: what it holds cannot be an API key: it is empty, longer than "
            f"{MAX_KEY:,} characters, or has a blank, a line break or a character outside ASCII"
        )
    return Secret(key)


def header_values(endpoint: Endpoint, env: Env, read: Read) -> dict[str, Secret]:
    """Return the headers that every request carries, the key's included; raises ConfigError.

    A secret is refused where it would cross a network in the clear. The simulated provider is
    sent none.
    """
    if endpoint.provider == "simulated":
        return {}
    key = read_key(endpoint, env, read)
    headers = {} if key is None else {"Authorization": Secret(f"Bearer {key.reveal()}")}
    for name, template in endpoint.headers.items():
        headers[name] = Secret(_header(name, template, env))
    secret = [name for name, text in endpoint.headers.items() if is_secret(name, text)]
    url = endpoint_url(endpoint, env)
    if key or secret or "${env:" in (endpoint.base_url or ""):
        _refuse_clear_text(endpoint, url)
    return headers


def endpoint_url(endpoint: Endpoint, env: Env, tail: str = "") -> str:
    """Return the base URL with its variables filled in, `tail` before its query.

    The query may be a secret: show the text only by `address.shown`.
    """
    url = interpolated(endpoint.base_url or "", "endpoint.base_url", env)
    return joined(url, tail)


def interpolated(text: str, field: str, env: Env) -> str:
    """Return `text` with each `${env:NAME}` replaced once; raises ConfigError."""
    if "${env:" in PLACEHOLDER.sub("", text):
        raise ConfigError(f"{field}: ${{env:NAME}} takes the name of one environment variable")
    return PLACEHOLDER.sub(lambda found: _variable(found[1], field, env).strip(_BLANKS), text)


def is_secret(name: str, template: str) -> bool:
    """Whether a configured header's value must not be seen."""
    return "${env:" in template or _SECRET_NAME.search(name) is not None


def secret_texts(endpoint: Endpoint, env: Env, read: Read) -> Iterator[str]:
    """Yield every text of the endpoint that must not be seen; raises ConfigError."""
    if endpoint.provider == "simulated":
        return
    key = read_key(endpoint, env, read)
    if key is not None:
        yield key.reveal()
    for name, template in endpoint.headers.items():
        if is_secret(name, template):
            value = _header(name, template, env)
            yield value
            yield value.rpartition(" ")[2]
    for text in (endpoint.base_url or "", *endpoint.headers.values()):
        for found in PLACEHOLDER.finditer(text):
            yield env.get(found[1], "").strip(_BLANKS)
    query = urlsplit(endpoint_url(endpoint, env)).query
    for member in re.split("[&;]", query):
        yield member.rpartition("=")[2]


def _variable(name: str, field: str, env: Env) -> str:
    value = env.get(name)
    if value:
        return value
    if _SAFE_NAME.fullmatch(name):
        raise ConfigError(f"{field}: the environment variable {name} is not set")
    raise ConfigError(
        f"{field}: there is no environment variable of that name. (The name is not repeated here, "
        "in case it is a key; a key belongs in a variable, and the variable's name here.)"
    )


def _content(path: str, env: Env, read: Read) -> str:
    home = env.get("HOME")
    if path.startswith("~/") and home:
        path = f"{home}{path[1:]}"
    try:
        return read(path).decode("ascii", "replace")
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise ConfigError(f"endpoint.api_key_file: {reason}") from None
    except ValueError:
        raise ConfigError("endpoint.api_key_file: this cannot be a file's path") from None


def _header(name: str, template: str, env: Env) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigError("endpoint.headers: a header's name has letters, digits and hyphens")
    field = f"endpoint.headers.{name}"
    if name.lower() in _FRAMING:
        raise ConfigError(f"{field}: this header is set by batchinfer itself")
    value = interpolated(template, field, env).strip(_BLANKS)
    if not _HEADER_VALUE.fullmatch(value):
        raise ConfigError(f"{field}: a header's value is printable ASCII on one line")
    return value


def _refuse_clear_text(endpoint: Endpoint, url: str) -> None:
    if is_encrypted(url) or is_loopback(url) or endpoint.allow_insecure_http:
        return
    raise ConfigError(
        "endpoint.base_url: a key would travel unencrypted to another machine; use https://, "
        "leave the key out, or set endpoint.allow_insecure_http = true in a network you trust"
    )
