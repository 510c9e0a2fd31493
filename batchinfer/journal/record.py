"""The sidecar line: an outcome as bytes, and back.

Owns: the members and their order, the checksum, what counts as intact. Refuses to know: files,
offsets, locks.

A line is one JSON object. Its last member `crc` is the CRC-32 of every byte before `,"crc"`, so a
cut, a zero-filled block, a flipped bit and two writers' interleaved bytes all show, and the line
is still plain JSON for other tools. Answers are spliced in as they came.
"""

import re
from binascii import Error as HexError
from binascii import unhexlify
from typing import Any, Final, TypeVar
from zlib import crc32

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, json, structs

from batchinfer.errors import DamagedJournalError
from batchinfer.model import Answer, ErrorClass, Failure, Outcome, Problem, RowId, Success, Usage

VERSION: Final = 1
START: Final = b'{"v":%d,' % VERSION
"""The first bytes of every line."""

_ANY_VERSION: Final = b'{"v":'
_SEAL: Final = b',"crc":"%08x"}'
_SEAL_LENGTH: Final = len(_SEAL % 0)
_NULL: Final = Raw(b"null")
_T = TypeVar("_T")
_S = TypeVar("_S", bound=Struct)


class DamagedRecordError(DamagedJournalError, ValueError):
    """A sidecar line is not an intact record."""


class Parts(Struct, frozen=True):
    """What the results repeat of a line: JSON text to splice, `null` where the line has none.

    Each is a view of the line's bytes, good for `b"".join` and `b"%b"`.
    """

    usage: Raw
    output: Raw = _NULL
    error: Raw = _NULL
    finish_reason: Raw = _NULL


class _Tokens(Struct, frozen=True):
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class _Error(Struct, frozen=True, rename={"error": "class"}):
    error: ErrorClass
    status: int | None
    code: str | None
    message: str


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Members in the order they are written."""

    v: int
    row: int
    id: RowId
    key: str
    attempts: int
    latency_ms: float
    usage: _Tokens
    cost_usd: float | None
    model: str | UnsetType | None = UNSET
    finish_reason: str | UnsetType | None = UNSET
    request_id: str | UnsetType | None = UNSET
    at: str
    rate_limited: int = 0
    ambiguous: int = 0
    wasted: int = 0
    output: Raw | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    error: _Error | UnsetType = UNSET


_SAME: Final = ("row", "id", "attempts", "cost_usd", "at", "rate_limited", "ambiguous", "wasted")
"""Members that lines and outcomes hold under the same name and in the same form."""

_ENCODER: Final = json.Encoder()
_LINES: Final = json.Decoder(_Line)
_PARTS: Final = json.Decoder(Parts)


def encode(outcome: Outcome, /) -> bytes:
    """Return the outcome's line, newline included.

    `output` and `response` must be valid JSON. Line breaks between their tokens become spaces, and
    halves of surrogate pairs become U+FFFD, so that every line is one line that any parser reads.
    """
    line = _of_success(outcome) if isinstance(outcome, Success) else _of_failure(outcome)
    try:
        body = _ENCODER.encode(line)[:-1]
    except UnicodeEncodeError:
        body = _ENCODER.encode(_cleaned(line))[:-1]
    return b"%b%b\n" % (body, _SEAL % crc32(body))


def _of_success(success: Success) -> _Line:
    answer, response = success.answer, success.response
    return _Line(
        v=VERSION,
        key=success.key.hex(),
        latency_ms=round(success.latency_ms, 2),
        usage=_Tokens(*structs.astuple(answer.usage)),
        model=answer.model,
        finish_reason=answer.finish_reason,
        request_id=answer.request_id,
        output=_spliced(answer.output),
        response=UNSET if response is None else _spliced(response),
        **_same(success),
    )


def _of_failure(failure: Failure) -> _Line:
    problem = failure.problem
    return _Line(
        v=VERSION,
        key=failure.key.hex(),
        latency_ms=round(failure.latency_ms, 2),
        usage=_Tokens(*structs.astuple(failure.usage)),
        error=_Error(problem.error, problem.status, problem.code, problem.message),
        **_same(failure),
    )


def _same(source: Outcome | _Line) -> dict[str, Any]:
    return {name: getattr(source, name) for name in _SAME}


_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def _spliced(value: bytes) -> Raw:
    # In valid JSON a raw line break can stand only between tokens, where a space means the same.
    if b"\n" in value:
        value = value.replace(b"\n", b" ")
    if b"\\ud" in value or b"\\uD" in value:
        value = _ESCAPE.sub(lambda found: rb"\ufffd" if found["half"] else found[0], value)
    return Raw(value)


def _cleaned(struct: _S) -> _S:
    def clean(value: object) -> object:
        if isinstance(value, Struct):
            return _cleaned(value)
        if type(value) is not str:
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    fields = struct.__struct_fields__
    return structs.replace(struct, **{name: clean(getattr(struct, name)) for name in fields})


def intact(line: bytes, /) -> bool:
    """Whether the line (without its newline) is whole: it begins as one and its checksum fits."""
    body = line[:-_SEAL_LENGTH]
    return line[-_SEAL_LENGTH:] == _SEAL % crc32(body) and body.startswith(_ANY_VERSION)


def decode(line: bytes, /) -> Outcome:
    """Return the line's outcome; members that this version does not know are passed over.

    Raises DamagedRecordError, or DamagedJournalError for a newer version's line.
    """
    found = _parsed(_LINES, line)
    usage, error = Usage(*structs.astuple(found.usage)), found.error
    same = _same(found) | {"key": _key(found.key.encode()), "latency_ms": found.latency_ms}
    if isinstance(error, _Error):
        problem = Problem(error.error, error.message, error.status, error.code)
        return Failure(problem=problem, usage=usage, **same)
    if not isinstance(found.output, Raw):
        raise DamagedRecordError
    told = (found.finish_reason, found.model, found.request_id)
    answer = Answer(bytes(found.output), usage, *(None if x is UNSET else x for x in told))
    response = bytes(found.response) if isinstance(found.response, Raw) else None
    return Success(answer=answer, response=response, **same)


def parts(line: bytes, /) -> Parts:
    """Return the pieces of a line that the results repeat. Raises like `decode`."""
    return _parsed(_PARTS, line)


def _parsed(decoder: json.Decoder[_T], line: bytes) -> _T:
    if not intact(line):
        raise DamagedRecordError
    _check_version(line)
    try:
        return decoder.decode(line)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DamagedRecordError from error


_KEY: Final = b',"key":"'
_AT: Final = b',"at":"'
_OUTPUT: Final = b',"output":'
_ERROR: Final = b',"error":{"class":"'
_ERROR_CLASSES: Final = {error.value.encode(): error for error in ErrorClass}


def peek(line: bytes, /) -> tuple[bytes, ErrorClass | None]:
    """Return the key of an intact line, and the error class if it is a failure's.

    This is the cheap look that a resume takes at millions of lines. It relies on the order of
    members: `,"key":"` with bare quotes cannot stand inside the id before it, and an output, which
    may hold anything, comes after. Raises like `decode`, but does not check the sum again.
    """
    _check_version(line)
    start = line.find(_KEY) + len(_KEY)
    key = _key(line[start : start + 32])
    at = line.find(_AT, start)  # `usage`, before it, has an `output` too
    output = line.find(_OUTPUT, at)
    error = line.find(_ERROR, at, len(line) if output < 0 else output)
    if error < 0:
        return key, None
    start = error + len(_ERROR)
    error_class = _ERROR_CLASSES.get(line[start : line.find(b'"', start)])
    if error_class is None:
        raise DamagedRecordError
    return key, error_class


def _key(digits: bytes) -> bytes:
    try:
        return unhexlify(digits)
    except HexError as error:
        raise DamagedRecordError from error


def _check_version(line: bytes) -> None:
    if line.startswith(START):
        return
    if line.startswith(_ANY_VERSION):
        raise DamagedJournalError("The sidecars were written by a newer batchinfer; update it.")
    raise DamagedRecordError
