"""What a base URL may look like, and what of it may be shown.

Owns: the reading of URLs for the whole package's configuration. Refuses to know: where a URL came
from, who will open it. No text made here holds a URL's userinfo or query.
"""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

OPENAI: Final = "https://api.openai.com/v1"
"""The default of the openai-* providers."""

_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_TAILS: Final = ("/chat/completions", "/completions", "/embeddings")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        return None
    return parts


def problem(url: str) -> str | None:
    """Say what is wrong with a base URL without showing it; None when nothing is."""
    parts = _split(url) if _PRINTABLE.fullmatch(url) else None
    if parts is None:
        return "not a URL; it has a blank, a character outside ASCII or a wrong port"
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
    if not parts.hostname:
        return "there is no host in it"
    if parts.username is not None or parts.password is not None:
        return "must hold no user or password; use endpoint.api_key_env or endpoint.headers"
    if parts.fragment:
        return "must hold no #fragment"
    tail = next((t for t in _TAILS if parts.path.rstrip("/").endswith(t)), None)
    return f"must end before {tail}, which is added to it" if tail else None


def host(url: str | None) -> str | None:
    """Return the host of a URL in lower case; None when it has none."""
    parts = _split(url or "")
    return parts.hostname if parts else None


def is_encrypted(url: str) -> bool:
    """Whether what is sent there cannot be read on the way."""
    parts = _split(url)
    return parts is not None and parts.scheme == "https"


def is_loopback(url: str) -> bool:
    """Whether the URL's host is this machine."""
    name = host(url) or ""
    try:
        address = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def shown(url: str) -> str:
    """Return the URL without userinfo, query and fragment."""
    plain = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, separator, rest = plain.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def joined(url: str, tail: str) -> str:
    """Return the URL with `tail` (such as `/models`) after its path and before its query."""
    plain, question, query = url.partition("?")
    return f"{plain.rstrip('/')}{tail}{question}{query}"
