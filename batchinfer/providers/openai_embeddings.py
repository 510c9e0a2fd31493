"""The embeddings API: `input` in, one vector out, in the server's own digits.

Owns: the row's member, and reading a vector without turning its numbers into floats and back.
Refuses to know: errors, usage, transport.
"""

import re
from typing import Final

import msgspec
from msgspec import Raw, Struct

from batchinfer.model import Usage, Verdict
from batchinfer.providers import jsontext, policy
from batchinfer.providers.base import UnsendableError
from batchinfer.providers.bodies import Subject, Turns
from batchinfer.providers.openai_api import OpenAiApi, Said

_NUMBERS: Final = b"0123456789+-.eE,[] \t\r\n"
_SPACE: Final = b" \t\r\n"
_BASE64: Final = re.compile(rb'"[A-Za-z0-9+/_-]+=*"')


class _Item(Struct):
    embedding: Raw


class _Reply(Struct):
    """The members that matter, with the vectors left as they are."""

    data: list[_Item]
    model: object = None
    usage: object = None
    error: object = None
    id: object = None


_DECODE: Final = msgspec.json.Decoder(_Reply).decode


def _input(turns: Turns) -> object:
    if any(role == "system" for role, _ in turns):
        raise UnsendableError("an embedding takes no system prompt")
    if len(turns) != 1 or not turns[0][1]:
        raise UnsendableError("an embedding takes one text that is not empty")
    return turns[0][1]


def _decode(body: bytes) -> object:
    try:
        reply = _DECODE(body)
    except (msgspec.DecodeError, RecursionError):
        return jsontext.loads(body)
    return msgspec.structs.asdict(reply)


def _read(said: Said) -> Verdict:
    data = said.payload.get("data")
    if not isinstance(data, list) or not data:
        return said.fail(policy.NO_ANSWER, "the reply has no embedding")
    if len(data) > 1:
        return said.fail(policy.WRONG_ANSWER, f"the reply has {len(data)} embeddings for one text")
    vector = _vector(data[0])
    if not vector:
        return said.fail(policy.NO_ANSWER, "the embedding is not a list of numbers")
    return _with_no_output(said).accept(vector)


def _vector(item: object) -> bytes | None:
    """Return the vector on one line; None unless it is all numbers, or base64."""
    if isinstance(item, _Item):
        raw = bytes(item.embedding)
    elif isinstance(item, dict):
        raw = jsontext.dumps(item.get("embedding"))
    else:
        return None
    if raw.startswith(b"[") and not raw.translate(None, _NUMBERS):
        compact = raw.translate(None, _SPACE)
        return None if compact == b"[]" else compact
    plain = jsontext.dumps(jsontext.loads(raw)) if raw.startswith(b'"') else b""  # no `\\/`
    return plain if _BASE64.fullmatch(plain) else None


def _with_no_output(said: Said) -> Said:
    """No tokens are written for a vector: where the input is known, so is the output."""
    usage = said.usage
    if usage.input is None or usage.output is not None:
        return said
    return msgspec.structs.replace(said, usage=Usage(usage.input, 0, usage.cached))


OPENAI_EMBEDDINGS: Final = OpenAiApi(
    name="openai-embeddings",
    path="embeddings",
    subject=Subject("input", b'"[', "a non-empty string or list", _input),
    read=_read,
    decode=_decode,
)
