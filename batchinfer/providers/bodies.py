r"""Request bodies: the row's own bytes spliced between the configuration's defaults.

Owns: precedence of members, the checks that save a paid request, the refusal of what a batch row
cannot mean (streaming, several answers). Refuses to know: replies.

Half a surrogate pair in a row's text is sent as the escape the user wrote (`\ud83d`).
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from batchinfer.model import Dialogue, Fields, Verbatim
from batchinfer.providers import jsontext
from batchinfer.providers.base import UnsendableError
from batchinfer.providers.clean import clean

Turns = tuple[tuple[str, str], ...]

_ENCODE: Final = msgspec.json.Encoder().encode
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_ITEMS: Final = msgspec.json.Decoder(list[Raw]).decode
_EMPTY: Final = re.compile(rb'\s*(?:\[\s*\]|"")\s*')
_SPACE: Final = b" \t\r\n"
_TOKEN: Final = re.compile(rb"[^ \t\r\n]")
_QUOTE: Final = ord('"')
_BRACKET: Final = ord("[")
_KINDS: Final = {
    _QUOTE: "a string",
    _BRACKET: "a list",
    ord("{"): "an object",
    ord("t"): "true",
    ord("f"): "false",
    ord("n"): "null",
}


class Subject(Struct, frozen=True):
    """The member that carries what a row asks.

    `kinds`: the first bytes its JSON may have. `wanted`: the same in words. `single`: whether a
    list is one thing to ask (False: each item is, and only one fits a row). `may_be_blank`: whether
    the empty string is allowed. `of_turns` builds the member from text; raises UnsendableError.
    """

    member: str
    kinds: bytes
    wanted: str
    of_turns: Callable[[Turns], object]
    single: bool = False
    may_be_blank: bool = False


def verbatim(ask: Verbatim, path: str, subject: Subject) -> bytes:
    """Return the body unchanged, once it is known to fit the API at `path`."""
    url = ask.url.partition("?")[0].strip("/")
    if url.removeprefix("v1/") != path and not url.endswith(f"/v1/{path}"):
        raise UnsendableError(
            f'the row\'s url is "{clean(ask.url, 100)}", but the provider sends to "/v1/{path}"'
        )
    members = _members(ask.body)
    _check_subject(members, subject)
    _check_extras(members)
    return ask.body


def spliced(
    ask: Fields | Dialogue, model: str | None, params: Mapping[str, object], subject: Subject
) -> bytes:
    """Join, from weak to strong: the configured model, the configured params, the row's members."""
    own: Mapping[str, object]
    if isinstance(ask, Fields):
        _check_subject(ask.members, subject)
        own = ask.members
    else:
        own = {subject.member: subject.of_turns(ask.turns), **ask.members}
    merged = {"model": model, **params, **own} if model else {**params, **own}
    _check_extras(merged)
    try:
        return _ENCODE(merged)
    except UnicodeEncodeError:
        return _ENCODE({name: _escaped(value) for name, value in merged.items()})


def _members(data: bytes) -> Mapping[str, Raw]:
    try:
        return _MEMBERS(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = jsontext.loads(data)
        if isinstance(value, dict):
            return {name: Raw(jsontext.dumps(item)) for name, item in value.items()}
    except jsontext.UnreadableError as error:
        raise UnsendableError(f"the row's body cannot be read: {error}") from None
    raise UnsendableError("the row's body is not a JSON object")


def _check_subject(members: Mapping[str, Raw], subject: Subject) -> None:
    raw = members.get(subject.member)
    if raw is None:
        raise UnsendableError(f'the row has no "{subject.member}"')
    first = _first(raw)
    empty = _EMPTY.fullmatch(raw) is not None and not (subject.may_be_blank and first == _QUOTE)
    if empty or first not in subject.kinds:
        found = f"empty ({bytes(raw).decode()})" if empty else _KINDS.get(first, "a number")
        raise UnsendableError(f'"{subject.member}" must be {subject.wanted}, but it is {found}')
    if first == _BRACKET and not subject.single:
        _check_one(raw, subject.member)


def _check_one(raw: Raw, member: str) -> None:
    """Refuse a list of several things to ask; a list of token ids is one."""
    items = _items(raw)
    if len(items) > 1 and _first(items[0]) in b'"[{':
        raise UnsendableError(
            f'"{member}" holds {len(items)} items, but a row has one answer: give each its own row'
        )


def _items(raw: Raw) -> list[Raw]:
    """Split a list; a list that cannot be read is left to the server to complain of."""
    try:
        return _ITEMS(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = jsontext.loads(bytes(raw))
        return [Raw(jsontext.dumps(item)) for item in value] if isinstance(value, list) else []
    except jsontext.UnreadableError:
        return []


def _check_extras(members: Mapping[str, object]) -> None:
    stream = members.get("stream")
    if stream is not None and _json(stream) not in {b"false", b"null"}:
        raise UnsendableError('"stream" must be false: a batch row takes a whole answer')
    count = members.get("n")
    if count is not None and _json(count) not in {b"1", b"null"}:
        raise UnsendableError('"n" must be 1: a row has one answer')


def _json(value: object) -> bytes:
    return bytes(value).strip(_SPACE) if isinstance(value, Raw) else _ENCODE(value)


def _first(raw: Raw) -> int:
    token = _TOKEN.search(raw)
    return token.group()[0] if token else 0


def _escaped(value: object) -> object:
    return value if isinstance(value, Raw) else Raw(json.dumps(value, default=str).encode())
