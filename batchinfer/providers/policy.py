"""What each kind of error means, as tables.

Owns: status, label, wording and fault → Rule. Refuses to know: how a body is read and how a rule
becomes a verdict. Sources: the error pages of the providers, the retry lists of their official
clients, the context-length phrases that litellm matches.

A rule of kind "retry" whose `counts` is False does not use up the row's attempts: the server did
no work and asks everybody to wait, so an outage or a full quota never fails a row.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from batchinfer.model import ErrorClass, FaultKind


class Rule(Struct, frozen=True):
    """What to do about one kind of error. `advice` is added to the server's message."""

    act: Literal["retry", "reject", "halt"]
    error: ErrorClass
    counts: bool = True
    attempts: int | None = None
    advice: str = ""


_E = ErrorClass
FEW: Final = 3
ONCE_MORE: Final = 2

RATE_LIMIT: Final = Rule("retry", _E.RATE_LIMIT, counts=False)
OVERLOAD: Final = Rule("retry", _E.OVERLOAD, counts=False)
INTERRUPTED: Final = Rule("retry", _E.OVERLOAD)
TIMEOUT: Final = Rule("retry", _E.TIMEOUT)
SERVER_ERROR: Final = Rule("retry", _E.SERVER_ERROR)
BAD_RESPONSE: Final = Rule("retry", _E.BAD_RESPONSE)
NO_ANSWER: Final = Rule("retry", _E.BAD_RESPONSE, attempts=FEW)
EMPTY_ANSWER: Final = Rule("retry", _E.BAD_RESPONSE, attempts=ONCE_MORE)
UNREACHABLE: Final = Rule("retry", _E.CONNECTION, counts=False)
INVALID_REQUEST: Final = Rule("reject", _E.INVALID_REQUEST)
WRONG_ANSWER: Final = Rule("reject", _E.BAD_RESPONSE)
TOO_LARGE: Final = Rule("reject", _E.TOO_LARGE)
REFUSED: Final = Rule("reject", _E.REFUSED)
TRUNCATED: Final = Rule("reject", _E.TRUNCATED)
AUTH: Final = Rule("halt", _E.AUTH)
QUOTA: Final = Rule("halt", _E.QUOTA)
WRONG_MODEL: Final = Rule("halt", _E.INVALID_REQUEST, advice="check the model's name")
WRONG_PATH: Final = Rule("halt", _E.INVALID_REQUEST, advice="check base_url")
REFUSED_SETUP: Final = Rule("halt", _E.INVALID_REQUEST)
REDIRECT: Final = Rule(
    "halt", _E.INVALID_REQUEST, advice="redirects are not followed, check base_url"
)

BY_STATUS: Final[Mapping[int, Rule]] = {
    401: AUTH,
    402: QUOTA,
    403: AUTH,
    404: WRONG_PATH,
    405: WRONG_PATH,
    407: Rule("halt", _E.AUTH, advice="the proxy wants credentials"),
    408: TIMEOUT,
    409: SERVER_ERROR,
    413: TOO_LARGE,
    414: TOO_LARGE,
    424: Rule("retry", _E.SERVER_ERROR, attempts=FEW),
    425: SERVER_ERROR,
    429: RATE_LIMIT,
    431: TOO_LARGE,
    498: OVERLOAD,  # Groq: flex tier at capacity
    499: SERVER_ERROR,
    501: INVALID_REQUEST,
    503: OVERLOAD,
    504: TIMEOUT,
    505: INVALID_REQUEST,
    522: TIMEOUT,  # Cloudflare
    524: TIMEOUT,  # Cloudflare
    529: OVERLOAD,  # Anthropic
}
"""Other statuses: 3xx REDIRECT, 4xx INVALID_REQUEST, 5xx SERVER_ERROR."""

BY_LABEL: Final[Mapping[str, Rule]] = {
    # money
    "insufficient_quota": QUOTA,
    "credit_balance_exhausted": QUOTA,
    "organization_spend_limit_exceeded": QUOTA,
    "project_spend_limit_exceeded": QUOTA,
    "organization_usage_limit_exceeded": QUOTA,
    "contract_spend_limit_reached": QUOTA,
    "enforced_spend_limit_reached": QUOTA,
    "billing_hard_limit_reached": QUOTA,
    "billing_error": QUOTA,
    # the key, the region
    "invalid_api_key": AUTH,
    "api_key_invalid": AUTH,
    "failed_precondition": REFUSED_SETUP,
    # size
    "context_length_exceeded": TOO_LARGE,
    "exceed_context_size_error": TOO_LARGE,
    "string_above_max_length": TOO_LARGE,
    "request_too_large": TOO_LARGE,
    # content
    "content_filter": REFUSED,
    "content_policy_violation": REFUSED,
    "responsibleaipolicyviolation": REFUSED,
    "invalid_prompt": REFUSED,
    # load
    "overloaded": OVERLOAD,
    "overloaded_error": OVERLOAD,
    "queue_exceeded": OVERLOAD,
    "userconcurrentrequests": OVERLOAD,
}
"""Names that mean the same under any status from 400 on."""

BY_STATUS_AND_LABEL: Final[Mapping[tuple[int, str], Rule]] = {
    (400, "model_not_found"): WRONG_MODEL,
    (403, "model_not_found"): WRONG_MODEL,
    (404, "model_not_found"): WRONG_MODEL,
    (402, "in_flight_budget_exhausted"): RATE_LIMIT,  # OpenRouter: money held by running requests
    (402, "weight_exceeds_budget"): TOO_LARGE,
    (402, "openrouter_in_flight_budget"): RATE_LIMIT,
    (429, "1302"): OVERLOAD,  # Z.ai: concurrency
    (400, "tool_use_failed"): EMPTY_ANSWER,  # Groq: the model's output, not the request
    (400, "json_validate_failed"): EMPTY_ANSWER,
}

_CONTEXT: Final = (
    "this model's maximum context length is",
    "exceed context limit",
    "prompt is too long",
    "exceeds the available context size",
    "exceeds the maximum number of tokens allowed",
    "`inputs` tokens + `max_new_tokens` must be",
    "is longer than the model's context length",
    "input tokens exceed the configured limit",
    "while limit is",  # Cerebras: "current length is 9000 while limit is 8192"
)
_SIZED: Final = frozenset({400, 403, 413, 422, 429, *range(500, 600)})
_FORBIDDEN: Final = frozenset({403})

BY_WORDING: Final[tuple[tuple[frozenset[int], tuple[str, ...], Rule], ...]] = (
    (_SIZED, _CONTEXT, TOO_LARGE),
    (_FORBIDDEN, ("context length", "max_tokens"), TOO_LARGE),  # Together
    (_FORBIDDEN, ("moderation", "flagged", "guardrail"), REFUSED),  # OpenRouter
    (_FORBIDDEN, ("quota", "spend limit", "spending limit"), QUOTA),  # Azure's gateway
    (frozenset({404}), ("model",), WRONG_MODEL),
    (frozenset({412}), ("suspend",), QUOTA),  # Fireworks: an unpaid account
    (frozenset({429}), ("overloaded", "high demand", "concurren", "server busy"), OVERLOAD),
)
"""Statuses, phrases in the lower-cased message, rule: for servers that give no name. Never a bare
number, which a message may quote from anywhere."""

STATUS_OF_LABEL: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "bad_request": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "resource_exhausted": 429,
    "server_error": 500,
    "api_error": 500,
    "provider_unavailable": 502,
    "timeout_error": 504,
}
"""The status meant by an error inside a 200 that has no numeric code; others count as 500."""

BY_FAULT: Final[Mapping[FaultKind, Rule]] = {
    FaultKind.CONNECT: UNREACHABLE,
    FaultKind.TLS: UNREACHABLE,
    FaultKind.CONNECT_TIMEOUT: UNREACHABLE,
    FaultKind.READ_TIMEOUT: TIMEOUT,
    FaultKind.TOTAL_TIMEOUT: TIMEOUT,
    FaultKind.RESET: Rule("retry", _E.CONNECTION),
    FaultKind.PROTOCOL: BAD_RESPONSE,
    FaultKind.TOO_LARGE: TOO_LARGE,
}

BY_FINISH: Final[Mapping[str, tuple[Rule, str]]] = {
    "length": (TRUNCATED, "the answer was cut at the token limit; raise max_tokens"),
    "content_filter": (REFUSED, "the server's content filter stopped the answer"),
    "insufficient_system_resource": (INTERRUPTED, "the server ran out of resources (DeepSeek)"),
    "abort": (INTERRUPTED, "the server aborted the request"),
}
"""Finish reasons that make a 200 a failure. `length` always does: the same request would be cut
again, so it is not repeated, whether or not the cut text happens to be usable."""
