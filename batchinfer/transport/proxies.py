"""Which proxy, if any, leads to an address: the meaning of HTTP_PROXY and its kin.

Owns: reading HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY (lower case wins, as in curl), and
what an unusable value is called. Refuses to know: HTTP clients. A proxy's user name and password
never reach a message or a repr.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from batchinfer.errors import ConfigError

_SCHEMES: Final = {"http": 80, "https": 443}
_SEPARATORS: Final = re.compile(r"[,\s]+")


class Proxy(Struct, frozen=True):
    """A proxy to connect to. `url` may carry a user name and password; `label` is host:port."""

    url: str
    label: str

    def __repr__(self) -> str:
        return f"Proxy({self.label!r})"


class ProxySetting(Struct, frozen=True):
    """The value of one environment variable, not yet judged: it matters only where it is used."""

    variable: str
    value: str

    def __repr__(self) -> str:
        return f"ProxySetting({self.variable!r})"

    def proxy(self) -> Proxy:
        """Return the proxy it names; ConfigError names the variable and what of it is safe."""
        text = self.value if "://" in self.value else f"http://{self.value}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise self._unusable("has an invalid host or port") from None
        if parts.scheme.startswith("socks"):
            raise self._unusable("is a SOCKS proxy, which is not supported")
        if parts.scheme not in _SCHEMES:
            raise self._unusable("is not an http:// or https:// address")
        if "@" in parts.path + parts.query + parts.fragment:
            raise self._unusable("has a user name or password that is not percent-encoded")
        if not host or not text.isprintable() or " " in text:
            raise self._unusable("names no host")
        return Proxy(text, f"{host}:{_SCHEMES[parts.scheme] if port is None else port}")

    def _unusable(self, why: str) -> ConfigError:
        return ConfigError(
            f"{self.variable} ({_safe(self.value)}) {why}; correct it, unset it, "
            "or list the endpoint's host in NO_PROXY"
        )


class ProxyRules(Struct, frozen=True):
    """What the environment says: a proxy for each scheme, and the hosts to reach directly."""

    by_scheme: Mapping[str, ProxySetting] = {}
    bypass: tuple[str, ...] = ()

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """Return the proxy for an address, None for a direct way; an unusable one: ConfigError."""
        setting = self.by_scheme.get(scheme)
        if setting is None or any(_covers(entry, host, port) for entry in self.bypass):
            return None
        return setting.proxy()


NO_PROXIES: Final = ProxyRules()


def rules_from(environ: Mapping[str, str]) -> ProxyRules:
    """Return the proxy rules of an environment. An empty value switches a proxy off."""
    settings = {scheme: _setting(environ, scheme) for scheme in _SCHEMES}
    _, bypass = _lookup(environ, "no_proxy")
    return ProxyRules(
        {scheme: setting for scheme, setting in settings.items() if setting is not None},
        tuple(entry.lower() for entry in _SEPARATORS.split(bypass) if entry),
    )


def _setting(environ: Mapping[str, str], scheme: str) -> ProxySetting | None:
    for name in (f"{scheme}_proxy", "all_proxy"):
        variable, value = _lookup(environ, name)
        if variable:
            return ProxySetting(variable, value) if value else None
    return None


def _lookup(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    for variable in (name, name.upper()):
        if variable in environ:
            return variable, environ[variable].strip()
    return "", ""


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether a NO_PROXY entry means this host; an entry of no known form means none."""
    if entry == "*":
        return True
    name, _, wanted_port = entry.rpartition(":")
    if name and wanted_port.isdecimal() and (":" not in name or name.endswith("]")):
        if int(wanted_port) != port:
            return False
        entry = name
    return _covers_host(entry.strip("[]"), host.lower())


def _covers_host(entry: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        suffix = entry.removeprefix("*").removeprefix(".")
        return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def _safe(value: str) -> str:
    """Return scheme and host of a proxy value: no user, password, port, path or control byte."""
    scheme, found, rest = value.rpartition("://")
    host = re.split(r"[:/?#]", rest.rpartition("@")[2], maxsplit=1)[0]
    shown = f"{scheme}://{host}" if found else host
    return ascii(shown[:100])
