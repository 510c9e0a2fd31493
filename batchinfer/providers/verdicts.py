"""From an error to a verdict: the lookup over the tables of `policy`.

Owns: the order of the tables, the few errors that need arithmetic, the words of the message.
Refuses to know: bodies of successes and wire APIs.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from batchinfer.model import (
    NO_USAGE,
    Fault,
    Halt,
    Problem,
    Reject,
    Reply,
    Retry,
    Usage,
    Verdict,
)
from batchinfer.providers import jsontext, policy
from batchinfer.providers.clean import clean
from batchinfer.providers.errorbody import NO_ERROR, ServerError, parse_error
from batchinfer.providers.policy import Rule
from batchinfer.providers.waits import wait_hint

_LIMIT_AND_ASK: Final = re.compile(
    r"\blimit:? ([\d,]{1,15})\b.{0,80}?\brequested:? ([\d,]{1,15})", re.IGNORECASE | re.ASCII
)


def fault_verdict(fault: Fault) -> Verdict:
    """Judge an exchange that broke."""
    rule = policy.BY_FAULT[fault.kind]
    return ruled(rule, Problem(rule.error, fault.detail))


def status_verdict(reply: Reply, now_epoch: float) -> Verdict:
    """Judge a reply whose status is not a success."""
    error = _read(reply)
    rule = rule_of(reply.status, error, reply.headers)
    message = _redirect(reply.headers) if rule is policy.REDIRECT else _words(reply, error)
    problem = _problem(rule, reply.status, error, message)
    return ruled(rule, problem, wait_hint(reply.headers, error, now_epoch))


def inner_verdict(
    value: object, headers: Mapping[str, str], now_epoch: float, usage: Usage = NO_USAGE
) -> Verdict:
    """Judge an error inside a reply of status 200, exactly as if its code were the status."""
    error = parse_error(value)
    named = (policy.STATUS_OF_LABEL.get(label) for label in error.labels)
    status = error.status or next((status for status in named if status), 500)
    message = error.message or "the reply holds an error without a message"
    rule = rule_of(status, error, headers)
    problem = _problem(rule, status, error, message)
    return ruled(rule, problem, wait_hint(headers, error, now_epoch), usage)


def rule_of(status: int, error: ServerError, headers: Mapping[str, str]) -> Rule:
    """Look up the rule: the error's names first, then its wording, then the bare status."""
    for label in (headers.get("x-ratelimit-type", "").lower(), *error.labels):
        rule = policy.BY_STATUS_AND_LABEL.get((status, label)) or policy.BY_LABEL.get(label)
        if rule is not None:
            return rule
        if status == HTTPStatus.TOO_MANY_REQUESTS and (
            "perday" in label or label.endswith("byday")
        ):
            return policy.QUOTA  # Gemini's quotaId, GitHub Models' limit type
    return _special(status, error, headers) or _by_wording(status, error.message) or _plain(status)


def ruled(
    rule: Rule, problem: Problem, after: float | None = None, usage: Usage = NO_USAGE
) -> Verdict:
    """Build the verdict that `rule` asks for."""
    if rule.act == "halt":
        return Halt(problem, model=rule is policy.WRONG_MODEL)
    if rule.act == "reject":
        return Reject(problem, usage)
    return Retry(problem, after, rule.counts, rule.attempts, usage)


def _special(status: int, error: ServerError, headers: Mapping[str, str]) -> Rule | None:
    if status == HTTPStatus.TOO_MANY_REQUESTS and _beyond_limit(error.message):
        return policy.TOO_LARGE
    if status == HTTPStatus.FORBIDDEN and {"flagged_input", "reasons"} & error.metadata.keys():
        return policy.REFUSED  # OpenRouter's moderation
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and "x-groq-region" in headers:
        return policy.EMPTY_ANSWER  # the model's output could not be used
    return None


def _beyond_limit(message: str) -> bool:
    """Whether one request asks for more than the whole bucket ("Limit 6000, Requested 7500")."""
    match = _LIMIT_AND_ASK.search(message)
    limit, asked = (text.replace(",", "") for text in match.groups()) if match else ("", "")
    return bool(limit and asked) and int(asked) > int(limit)


def _by_wording(status: int, message: str) -> Rule | None:
    lower = message.lower()
    for statuses, phrases, rule in policy.BY_WORDING:
        if status in statuses and any(phrase in lower for phrase in phrases):
            return rule
    return None


def _plain(status: int) -> Rule:
    if (rule := policy.BY_STATUS.get(status)) is not None:
        return rule
    if status < HTTPStatus.BAD_REQUEST:
        return policy.REDIRECT
    client = status < HTTPStatus.INTERNAL_SERVER_ERROR
    return policy.INVALID_REQUEST if client else policy.SERVER_ERROR


def _problem(rule: Rule, status: int, error: ServerError, message: str) -> Problem:
    text = clean(message)
    if rule.advice:
        text = f"{text} ({rule.advice})"
    return Problem(rule.error, text, status, error.code or error.type)


def _read(reply: Reply) -> ServerError:
    """Read an error's body: JSON of any shape, or plain text as the message; HTML says nothing."""
    try:
        return parse_error(jsontext.loads(reply.body))
    except jsontext.UnreadableError:
        if not reply.headers.get("content-type", "").startswith("text/plain"):
            return NO_ERROR
        return parse_error(reply.body[:4_000].decode("utf-8", "replace"))


def _words(reply: Reply, error: ServerError) -> str:
    said = error.message or reply.headers.get("x-error-message", "")
    if said:
        return said
    try:
        return f"HTTP {reply.status} {HTTPStatus(reply.status).phrase}"
    except ValueError:
        return f"HTTP {reply.status}"


def _redirect(headers: Mapping[str, str]) -> str:
    """Name only the host: the rest of a location may carry a key."""
    try:
        host = urlsplit(headers.get("location", "")).hostname
    except ValueError:
        host = None
    return f"the server redirects to {host}" if host else "the server redirects"
