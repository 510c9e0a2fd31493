"""How a row ends: Work and a verdict to an Outcome.

Owns: filling in what every outcome carries. Refuses to know: I/O, clocks, the journal.
"""

from typing import TypedDict

import orjson
from msgspec import Struct, structs

from batchinfer.dispatch.work import Work
from batchinfer.model import (
    NO_USAGE,
    Answer,
    Dialogue,
    Failure,
    Problem,
    Reply,
    Row,
    RowId,
    Success,
    Usage,
    Verbatim,
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


def succeeded(work: Work, answer: Answer, price: Price, reply: Reply | None) -> Success:
    """Return the outcome of an answered row; `reply` is given where it is to be kept whole."""
    response = None if reply is None else one_line(reply.body)
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


def one_line(body: bytes) -> bytes:
    """Return a reply as JSON on one line: spliced if it is so already, else encoded again."""
    body = body.strip()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _mended(body)
    return orjson.dumps(value) if b"\n" in body or b"\r" in body else body


def without(reply: Reply, secrets: tuple[bytes, ...]) -> Reply:
    """Return a reply whose body does not repeat a secret: some servers echo the key they got."""
    body = reply.body
    for secret in secrets:
        if secret in body:
            body = body.replace(secret, b"***")
    return reply if body is reply.body else structs.replace(reply, body=body)
