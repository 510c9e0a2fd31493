"""What servers put into the body of an error, in one shape.

Owns: the many body shapes (OpenAI, flat, Anthropic, Gemini, TGI, Ollama, FastAPI, gateways) and
their normal form ServerError. Refuses to know: what is to be done about an error. Every member
may be absent or of any JSON type.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from batchinfer.providers.clean import clean

_KEPT: Final = 2_000
_LABEL: Final = 100
_COMPLAINTS: Final = 5
_NOTHING: Final[Mapping[str, object]] = {}
_LOWEST_STATUS: Final = 400
_ABOVE_STATUS: Final = 600


class ServerError(Struct, frozen=True):
    """An error body in normal form; texts are clean and bounded.

    `labels` are all the machine-readable names of the error in lower case, the most specific
    first; `retry_delay` is a wait the body states, as written.
    """

    type: str | None = None
    code: str | None = None
    message: str = ""
    metadata: Mapping[str, object] = _NOTHING
    labels: tuple[str, ...] = ()
    retry_delay: str | None = None

    @property
    def status(self) -> int | None:
        """The HTTP status that `code` stands for, if it is one."""
        code = self.code or ""
        if not (code.isascii() and code.isdigit()):
            return None
        return int(code) if _LOWEST_STATUS <= int(code) < _ABOVE_STATUS else None


NO_ERROR: Final = ServerError()


def parse_error(value: object) -> ServerError:
    """Bring a decoded error body of any shape into the normal form; never raises."""
    if isinstance(value, list):  # Gemini wraps the object into a list of one
        value = value[0] if value else None
    if isinstance(value, str):
        return ServerError(message=clean(value, _KEPT))
    if not isinstance(value, dict):
        return NO_ERROR
    source = _source(value)
    metadata = _dict(source.get("metadata")) or _dict(value.get("metadata"))
    details = [_dict(item) for item in _list(source.get("details"))]
    kind = _first(source.get("type"), value.get("error_type"), _words(source.get("status")))
    code = _text(source.get("code"))
    return ServerError(
        type=kind,
        code=code,
        message=_message(source, value, metadata),
        metadata=metadata,
        labels=tuple(_labels(source, metadata, details, (code, kind))),
        retry_delay=_first(*(item.get("retryDelay") for item in details)),
    )


def _source(value: dict[str, object]) -> Mapping[str, object]:
    """Find the object that describes the error: nested, in a list of errors, or the body itself."""
    for name in ("error", "errors"):
        inner = value.get(name)
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, dict):
            return inner
    return value


def _message(
    source: Mapping[str, object], value: Mapping[str, object], metadata: Mapping[str, object]
) -> str:
    members = ("message", "msg", "detail", "error", "title")
    words = [_prose(where.get(name)) for where in (source, value) for name in members]
    text = next((word for word in words if word), "")
    raw = metadata.get("raw")  # OpenRouter: what the provider behind it said
    return clean(f"{text}: {raw}" if text and isinstance(raw, str) else text, _KEPT)


def _prose(value: object) -> str:
    """Return a text, or the complaints of a validator (FastAPI: a list of {loc, msg}), as text."""
    complaints = value[:_COMPLAINTS] if isinstance(value, list) else [value]
    return "; ".join(text for item in complaints if (text := _complaint(item)))


def _complaint(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        where = ".".join(str(step) for step in _list(value.get("loc")) if type(step) in {str, int})
        text = value.get("msg") or value.get("message")
        return ": ".join(part for part in (where, text) if part and isinstance(part, str))
    return ""


def _labels(
    source: Mapping[str, object],
    metadata: Mapping[str, object],
    details: list[Mapping[str, object]],
    own: tuple[str | None, ...],
) -> Iterator[str]:
    named: list[object] = [metadata.get(name) for name in ("reason", "limit_source", "error_type")]
    named.append(_dict(source.get("innererror")).get("code"))
    named.append(_dict(source.get("details")).get("error_code"))
    for detail in details:
        named.append(detail.get("reason"))
        named += [_dict(item).get("quotaId") for item in _list(detail.get("violations"))]
    yield from (text.lower() for value in (*named, *own) if (text := _text(value)))


def _first(*values: object) -> str | None:
    return next((text for value in values if (text := _text(value))), None)


def _words(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text(value: object) -> str | None:
    """Return a name or number as text, clean and short; None for anything else."""
    if isinstance(value, str):
        return clean(value, _LABEL) or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return clean(f"{value:.15g}" if isinstance(value, float) else str(value), _LABEL)
    return None


def _dict(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else _NOTHING


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
