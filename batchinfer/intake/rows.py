"""A line's bytes to a Row: which of the three forms it has, its key, what it asks.

Owns: the forms (an OpenAI batch line, a request body, data for the template), the key, the reasons
for which a line cannot be sent. Refuses to know: files, where requests go, wire formats.
"""

import re
from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Raw, Struct

from batchinfer.intake.templates import RenderError, Template
from batchinfer.model import Ask, BadRow, Dialogue, Fields, Row, RowId, Verbatim

KEY_BYTES: Final = 16

MAX_DEPTH: Final = 200
"""Levels of nesting in a line. A bound of our own: the interpreter's depends on who is calling."""

LIFTED: Final = frozenset({"id", "custom_id", "metadata", "priority"})
"""Members that are ours and stay out of a request."""

PARAMETERS: Final = frozenset(
    (
        *("best_of", "chat_template_kwargs", "dimensions", "echo", "encoding_format"),
        *("frequency_penalty", "guided_choice", "guided_json", "guided_regex", "logit_bias"),
        *("logprobs", "max_completion_tokens", "max_tokens", "min_p", "min_tokens", "model", "n"),
        *("presence_penalty", "reasoning_effort", "repetition_penalty", "response_format", "seed"),
        *("service_tier", "stop", "suffix", "temperature", "tool_choice", "tools", "top_k"),
        *("top_logprobs", "top_p", "user"),
    )
)
"""Members that go along with a bare text; anything else beside it is the user's own data."""

_TOO_DEEP: Final = "the JSON is nested too deeply"
_decode: Final = msgspec.json.Decoder().decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_canonical: Final = msgspec.json.Encoder(order="sorted").encode
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)


class Shape(Enum):
    """The member that holds the question in each wire API."""

    CHAT = "messages"
    COMPLETIONS = "prompt"
    EMBEDDINGS = "input"


class Recipe(Struct, frozen=True):
    """How this job reads a line: the wire API's shape, the template, the longest line (bytes)."""

    shape: Shape
    template: Template
    max_line: int


class _UnfitError(ValueError):
    """A line cannot be sent; the text says why."""


def parse(index: int, line: bytes, recipe: Recipe) -> Row | BadRow:
    """Read one line. Never raises: what cannot be sent is a BadRow that says why.

    >>> parse(0, b'{"id": "a", "prompt": "Hello"}', recipe).ask
    Dialogue(turns=(('user', 'Hello'),), members={})
    """
    try:
        value = _object(line, recipe.max_line)
    except _UnfitError as error:
        return BadRow(index, None, _key(line), str(error))
    name, key = _name(value), _key(_canonical(value))
    try:
        return Row(index, name, key, _ask(value, line, recipe))
    except (_UnfitError, RenderError) as error:
        return BadRow(index, name, key, str(error))


def identify(line: bytes, max_line: int) -> tuple[RowId, bytes]:
    """Return the id and the key that `parse` gives this line, without asking what it asks."""
    try:
        value = _object(line, max_line)
    except _UnfitError:
        return None, _key(line)
    return _name(value), _key(_canonical(value))


def is_blank(line: bytes) -> bool:
    """Whether a line holds white space only; such a line is no row."""
    return not line or line.isspace()


def _object(line: bytes, max_line: int) -> dict[str, object]:
    if len(line) > max_line:
        raise _UnfitError(f"the line is longer than {max_line:,} bytes (intake.max_line)")
    try:
        value = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _UnfitError(_why_not_json(line, error)) from error
    if not isinstance(value, dict):
        raise _UnfitError(f"the line is {_kind(value)}, not a JSON object")
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and depth(value) > MAX_DEPTH:
        raise _UnfitError(_TOO_DEEP)
    return value


def depth(value: object) -> int:
    """Return how deeply a JSON value is nested; a plain value is 1."""
    levels, level = 0, [value]
    while level:
        levels += 1
        inner = (
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, list | dict)
        )
        level = [item for items in inner for item in items if isinstance(item, list | dict)]
    return levels


def _why_not_json(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if isinstance(error, msgspec.ValidationError):
        return "the JSON holds a number too large to be kept exactly"
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return f"the line is not valid UTF-8 at byte {bad.start}"
    if _LONE_SURROGATE.search(line):
        return "the JSON holds half a surrogate pair (\\ud83d or the like), which is no text"
    return f"the line is not valid JSON: {error}"


def _name(value: Mapping[str, object]) -> RowId:
    for member in ("custom_id", "id"):
        name = value.get(member)
        if isinstance(name, str | int) and not isinstance(name, bool):
            return name
    return None


def _key(content: bytes) -> bytes:
    return blake2b(content, digest_size=KEY_BYTES).digest()


def _ask(value: dict[str, object], line: bytes, recipe: Recipe) -> Ask:
    if "custom_id" in value and "body" in value and "url" in value:
        return _verbatim(value, line)
    template = recipe.template
    own = recipe.shape.value
    whole = recipe.shape is Shape.CHAT and own in value and not template.uses(own)
    if not whole and template.fits(value):
        return Dialogue(template.turns(value))
    if own in value and not template.uses(own):
        members = _decode_members(line)
        return Fields({k: v for k, v in members.items() if k not in LIFTED})
    for member in ("prompt", "input", *(() if template else ("text",))):
        if member in value and not template.uses(member):
            return _bare(member, value, line, recipe)
    if not template:
        raise _UnfitError(_nothing_to_send(value, own))
    return Dialogue(template.turns(value))


def _verbatim(value: Mapping[str, object], line: bytes) -> Verbatim:
    if value.get("method", "POST") != "POST":
        raise _UnfitError(f"method is {value['method']!r}; only POST can be sent")
    if not isinstance(value["body"], dict) or not isinstance(value["url"], str):
        raise _UnfitError("body must be an object and url a string in an OpenAI batch line")
    return Verbatim(bytes(_decode_members(line)["body"]), value["url"])


def _bare(member: str, value: dict[str, object], line: bytes, recipe: Recipe) -> Dialogue:
    """Make a dialogue of a row that holds just a text (and perhaps request parameters)."""
    text = value[member]
    if not isinstance(text, str):
        raise _UnfitError(f"{member} is {_kind(text)}; it must be a string")
    system = recipe.template.system(value) if recipe.shape is Shape.CHAT else ()
    members = {}
    if not PARAMETERS.isdisjoint(value):
        members = {k: v for k, v in _decode_members(line).items() if k in PARAMETERS}
    return Dialogue((*system, ("user", text)), members)


def _nothing_to_send(value: Mapping[str, object], own: str) -> str:
    held = ", ".join(sorted(value)[:5]) or "nothing"
    return (
        f"the row holds {held} and no {own}, prompt or text; give a template"
        ' ([request] prompt = "… {{ field }} …") to make a request of it'
    )


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
