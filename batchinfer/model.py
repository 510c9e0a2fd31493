"""The values that flow through a run: what a row asks, what came back, what was decided.

Owns: the words (Row, Reply, Fault, Verdict, Outcome, Event) as frozen, slotted values and closed
unions, to be matched exhaustively. Refuses to know: files, sockets, clocks, providers.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Raw, Struct


class Verbatim(Struct, frozen=True):
    """An OpenAI batch line: `body` (JSON bytes) is sent as it is. `url` names the wire API."""

    body: bytes
    url: str


class Fields(Struct, frozen=True):
    """A request body for the configured provider: raw JSON values by member name."""

    members: dict[str, Raw]


class Dialogue(Struct, frozen=True):
    """Text for the provider's own shape: (role, content) pairs; `members` are raw parameters."""

    turns: tuple[tuple[str, str], ...]
    members: dict[str, Raw] = {}


Ask = Verbatim | Fields | Dialogue
RowId = str | int | None
"""A row's own name, as the user wrote it."""


class Row(Struct, frozen=True):
    """One input line that can be sent.

    `index` is the 0-based input line, `key` the 16-byte identity (hash of the canonical content).
    """

    index: int
    id: RowId
    key: bytes
    ask: Ask


class BadRow(Struct, frozen=True):
    """One input line that cannot be sent; `message` says why in the user's terms."""

    index: int
    id: RowId
    key: bytes
    message: str


class Reply(Struct, frozen=True):
    """A whole HTTP response. `headers` is keyed in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class FaultKind(StrEnum):
    """Where an exchange broke."""

    CONNECT = "connect"
    TLS = "tls"
    CONNECT_TIMEOUT = "connect_timeout"
    READ_TIMEOUT = "read_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    RESET = "reset"
    PROTOCOL = "protocol"
    TOO_LARGE = "too_large"


NEVER_SENT: Final = frozenset({FaultKind.CONNECT, FaultKind.TLS, FaultKind.CONNECT_TIMEOUT})
"""Faults after which the server cannot have billed anything; all others are ambiguous."""


class Fault(Struct, frozen=True):
    """An exchange without a whole response. `detail` is our own text, safe to show."""

    kind: FaultKind
    detail: str

    @property
    def ambiguous(self) -> bool:
        """Whether the server may have done, and billed, the work."""
        return self.kind not in NEVER_SENT


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one exchange; None where the server did not say.

    `input` includes `cached`, and `output` includes `reasoning`, whatever the wire API's own habit.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    @property
    def total(self) -> int:
        """Known input and output tokens together."""
        return (self.input or 0) + (self.output or 0)


NO_USAGE: Final = Usage()


class ErrorClass(StrEnum):
    """Why a row, or an attempt, failed. The words of sidecars, `stats` and `--retry-failed`."""

    INVALID_INPUT = "invalid_input"
    INVALID_REQUEST = "invalid_request"
    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    SERVER_ERROR = "server_error"
    BAD_RESPONSE = "bad_response"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    SCHEMA = "schema"
    TOO_LARGE = "too_large"
    DEADLINE = "deadline"


TRANSIENT: Final = frozenset(
    {
        ErrorClass.RATE_LIMIT,
        ErrorClass.OVERLOAD,
        ErrorClass.TIMEOUT,
        ErrorClass.CONNECTION,
        ErrorClass.SERVER_ERROR,
        ErrorClass.BAD_RESPONSE,
        ErrorClass.DEADLINE,
    }
)
"""Failures that the same request may survive another day: a plain resume sends them again."""


class Problem(Struct, frozen=True):
    """What went wrong with one exchange. `status` and `code` are the server's, if any."""

    error: ErrorClass
    message: str
    status: int | None = None
    code: str | None = None


class Answer(Struct, frozen=True):
    """An accepted answer. `output` is one JSON value on one line, ready to be spliced."""

    output: bytes
    usage: Usage
    finish_reason: str | None
    model: str | None
    request_id: str | None


class Accept(Struct, frozen=True):
    """The reply is the row's answer."""

    answer: Answer


class Retry(Struct, frozen=True):
    """Ask again later.

    `after`: seconds the server asked to wait, a floor (None: own back-off).
    `counts`: False where the wait is the endpoint's and not the row's fault (rate limits).
    `attempts`: at most so many attempts for this problem, below the policy's (None: the policy's).
    """

    problem: Problem
    after: float | None = None
    counts: bool = True
    attempts: int | None = None
    usage: Usage = NO_USAGE


class Reject(Struct, frozen=True):
    """The same request can never succeed; the row fails."""

    problem: Problem
    usage: Usage = NO_USAGE


class Halt(Struct, frozen=True):
    """No row can succeed (key, quota, model); the run stops and nothing is marked failed.

    `model`: its name is at fault, so a row that names its own fails alone.
    """

    problem: Problem
    model: bool = False


Verdict = Accept | Retry | Reject | Halt


# ── how a row ended ──────────────────────────────────────────────────────────────────────────


class _Ending(Struct, frozen=True, kw_only=True):
    """What every settled row carries: who it is and what it took.

    `at` is RFC 3339 UTC, `latency_ms` the last exchange's, `attempts` those that counted (0 where
    nothing was sent), `rate_limited` those that did not. `ambiguous` counts exchanges that broke
    after the request had left, `wasted` the tokens of replies that were not used.
    """

    row: int
    id: RowId
    key: bytes
    attempts: int
    latency_ms: float
    cost_usd: float | None
    at: str
    rate_limited: int = 0
    ambiguous: int = 0
    wasted: int = 0


class Success(_Ending, frozen=True, kw_only=True):
    """A row with its answer; `response` is the whole reply, where the config keeps it."""

    answer: Answer
    response: bytes | None = None


class Failure(_Ending, frozen=True, kw_only=True):
    """A row that ended this run failed, with what the last reply had used up."""

    problem: Problem
    usage: Usage = NO_USAGE


Outcome = Success | Failure
