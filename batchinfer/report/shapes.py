"""The shapes of the merged output: one input line and what became of it, as one line of JSON.

Owns: the members of `results`, `flat` and `openai-batch` lines, and what stands for a row that has
no outcome. Refuses to know: files, and which record belongs to which row.
"""

from collections.abc import Callable
from typing import Final, Literal

import orjson
from msgspec import Raw, json

from batchinfer.errors import ConfigError
from batchinfer.journal.record import Parts, decode, parts
from batchinfer.model import Outcome, RowId, Success

InputLine = tuple[int, RowId, bytes, bytes]
"""An input line: its 0-based number, the row's id, the row's 16-byte key, the raw bytes."""

Form = Literal["results", "flat", "openai-batch"]

Shape = Callable[[InputLine, bytes | None], bytes]
"""(input line, its record if it has one) → a line of output, newline included."""

PENDING: Final = Parts(
    usage=Raw(b"null"), error=Raw(b'{"class":"pending","message":"not done yet"}')
)
"""What the results say of a row without any outcome."""

_MEMBERS: Final = json.Decoder(dict[str, Raw])


def result_line(line: InputLine, record: bytes | None) -> bytes:
    """Shape `row, id, input, output, error, finish_reason, usage`."""
    index, name, _, raw = line
    told = PENDING if record is None else parts(record)
    return (
        b'{"row":%d,"id":%b,"input":%b,"output":%b,"error":%b,"finish_reason":%b,"usage":%b}\n'
        % (
            index,
            json.encode(name),
            input_text(raw),
            one_line(bytes(told.output)),
            told.error,
            told.finish_reason,
            told.usage,
        )
    )


def flat_line(line: InputLine, record: bytes | None) -> bytes:
    """Shape the input object with `output` added, and `error` where there is no answer.

    Members of the input that have these names give way. An input line that is no JSON object
    becomes the member `input`.
    """
    told = PENDING if record is None else parts(record)
    added = {"output": Raw(one_line(bytes(told.output)))}
    if bytes(told.error) != b"null":
        added["error"] = told.error
    text = input_text(line[3])
    members = _members(text) if text.startswith(b"{") else {"input": Raw(text)}
    return json.encode({k: v for k, v in members.items() if k not in added} | added) + b"\n"


def _members(text: bytes) -> dict[str, Raw]:
    try:
        return _MEMBERS.decode(text)
    except RecursionError:
        return {"input": Raw(text)}


def openai_batch_line(line: InputLine, record: bytes | None) -> bytes:
    """Shape `id, custom_id, response{status_code, request_id, body}, error`, as OpenAI's Batch API.

    `custom_id` is the row's id, or `row-N` (N: the 0-based line). Raises ConfigError for an answer
    whose whole reply was not kept.
    """
    index, name, _, _ = line
    response, error = _batch_members(None if record is None else decode(record))
    custom = f"row-{index}" if name is None else str(name)
    return b'{"id":"batch_req_%d","custom_id":%b,"response":%b,"error":%b}\n' % (
        index,
        json.encode(custom),
        response,
        error,
    )


def _batch_members(outcome: Outcome | None) -> tuple[bytes, bytes]:
    if outcome is None:
        return b"null", json.encode({"code": "pending", "message": "not done yet"})
    if not isinstance(outcome, Success):
        problem = outcome.problem
        return b"null", json.encode({"code": problem.error.value, "message": problem.message})
    if outcome.response is None:
        raise ConfigError(
            f"row {outcome.row}: its whole reply was not kept, so it has no openai-batch line; "
            "run with [output] include_response = true, or merge as results or flat"
        )
    body = one_line(outcome.response)
    request = json.encode(outcome.answer.request_id)
    return b'{"status_code":200,"request_id":%b,"body":%b}' % (request, body), b"null"


SHAPES: Final[dict[Form, Shape]] = {
    "results": result_line,
    "flat": flat_line,
    "openai-batch": openai_batch_line,
}


def input_text(raw: bytes) -> bytes:
    """Return an input line as JSON on one line: itself, or a string of it where it is no JSON."""
    text = raw.strip(b" \t\r")
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.encode(text.decode("utf-8", "replace"))
    return one_line(text)


def one_line(text: bytes) -> bytes:
    """Keep readers that take a lone CR for a line's end from cutting valid JSON in two."""
    # In valid JSON a raw CR can stand only between tokens, where a space means the same.
    return text.replace(b"\r", b" ") if b"\r" in text else text
