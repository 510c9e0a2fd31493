"""How a row ends: Work and a verdict to an Outcome.

Owns: filling in what every outcome carries. Refuses to know: I/O, clocks, the journal.
"""

from typing import TypedDict

import orjson
from msgspec import Struct, structs

from batchinfer.dispatch.work import Work
from batchinfer.intake.rows import MAX_DEPTH, depth
from batchinfer.model import (
    NO_USAGE,
    Accept,
    Answer,
    Dialogue,
    Failure,
    Problem,
    Row,
    RowId,
    Success,
    Usage,
    Verbatim,
    Verdict,
)
from batchinfer.providers import jsontext


class Price(Struct, frozen=True):
    """What the last exchange cost (USD, None: unknown), how long it took, and when it ended."""

    cost_usd: float | None
    latency_ms: float
    at: str


class _Common(TypedDict):
    row: int
    id: RowId
    key: bytes
    attempts: int
    latency_ms: float
    cost_usd: float | None
    at: str
    rate_limited: int
    ambiguous: int
    wasted: int


def succeeded(work: Work, answer: Answer, price: Price, response: bytes | None) -> Success:
    """Return the outcome of an answered row; `response` is the whole reply, to be kept."""
    return Success(**_common(work, price), answer=answer, response=response)


def failed(work: Work, problem: Problem, price: Price, usage: Usage = NO_USAGE) -> Failure:
    """Return the outcome of a row that ends this run failed."""
    return Failure(**_common(work, price), problem=problem, usage=usage)


def _common(work: Work, price: Price) -> _Common:
    return {
        "row": work.row.index,
        "id": work.row.id,
        "key": work.row.key,
        "attempts": work.attempts,
        "latency_ms": price.latency_ms,
        "cost_usd": price.cost_usd,
        "at": price.at,
        "rate_limited": work.rate_limited,
        "ambiguous": work.ambiguous,
        "wasted": work.wasted,
    }


def names_model(row: Row) -> bool:
    """Whether the row chose its own model, so that a wrong one is its own fault."""
    match row.ask:
        case Verbatim():
            return True
        case Dialogue(members=members):
            return "model" in members
        case fields:
            return "model" in fields.members


def _mended(body: bytes) -> bytes:
    """Keep what only a tolerant reader accepts as the value that was read, else as a string."""
    try:
        return jsontext.dumps(jsontext.loads(body))
    except jsontext.UnreadableError:
        return orjson.dumps(body.decode("utf-8", "replace"))


def one_line(body: bytes, keys: tuple[bytes, ...] = ()) -> bytes:
    """Return a reply as JSON on one line: spliced if it is so already, else encoded again.

    What is nested too deeply to be read back is kept as a string, and no key is kept at all.
    """
    body = body.strip()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return masked(_mended(body), keys)
    if depth(value) > MAX_DEPTH:
        return masked(orjson.dumps(body.decode()), keys)
    encoded = orjson.dumps(value)
    hidden = masked(encoded, keys)
    return hidden if hidden is not encoded or b"\n" in body or b"\r" in body else body


def masked(text: bytes, keys: tuple[bytes, ...]) -> bytes:
    """Return JSON as we encode it without these texts: some servers echo the key they got."""
    for key in keys:
        if key in text:
            text = text.replace(key, b"***")
    return text


def hushed(verdict: Verdict, secrets: tuple[str, ...], keys: tuple[bytes, ...]) -> Verdict:
    """Return a verdict that repeats no secret; in an answer, only what looks like a key is one."""
    match verdict:
        case Accept(answer):
            name = answer.request_id
            if not any(key in answer.output or key.decode() in (name or "") for key in keys):
                return verdict
            output = masked(answer.output, keys)
            request_id = name and masked(name.encode(), keys).decode()
            return Accept(structs.replace(answer, output=output, request_id=request_id))
        case _:
            problem = verdict.problem
            message, code = problem.message, problem.code or ""
            for secret in secrets:
                message, code = message.replace(secret, "***"), code.replace(secret, "***")
            return structs.replace(
                verdict, problem=structs.replace(problem, message=message, code=code or None)
            )
