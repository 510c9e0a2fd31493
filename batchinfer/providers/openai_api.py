"""What the three OpenAI-compatible APIs have in common.

Owns: the order in which a reply is judged, what stands around every answer (usage, model, request
id), the first choice and its finish reason. Refuses to know: where an API keeps its answer.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from batchinfer.model import (
    Accept,
    Answer,
    Ask,
    Fault,
    Problem,
    Reply,
    Usage,
    Verbatim,
    Verdict,
)
from batchinfer.providers import jsontext, policy
from batchinfer.providers.bodies import Subject, spliced, verbatim
from batchinfer.providers.clean import clean
from batchinfer.providers.policy import Rule
from batchinfer.providers.usage import usage_of
from batchinfer.providers.verdicts import fault_verdict, inner_verdict, ruled, status_verdict

Payload = Mapping[str, object]

_OK = range(200, 300)
_NAME = 200


class Said(Struct, frozen=True):
    """A reply of status 200 that is a JSON object and no error."""

    payload: Payload
    usage: Usage
    headers: Mapping[str, str]
    now_epoch: float

    def accept(self, output: bytes, finish_reason: str | None = None) -> Accept:
        """Take `output`, one line of JSON, as the row's answer."""
        given = self.headers.get("x-request-id") or self.headers.get("request-id")
        request_id = name_of(given or self.payload.get("id"))
        model = name_of(self.payload.get("model"))
        return Accept(Answer(output, self.usage, finish_reason, model, request_id))

    def fail(self, rule: Rule, message: str) -> Verdict:
        """Judge by `rule`; the tokens of the reply are kept as spent."""
        return ruled(rule, Problem(rule.error, clean(message), 200), usage=self.usage)

    def error(self, value: object) -> Verdict:
        """Judge an error that stands inside the reply."""
        return inner_verdict(value, self.headers, self.now_epoch, self.usage)


class OpenAiApi(Struct, frozen=True):
    """One of the APIs: its names, the member a row fills, how its replies are read.

    `decode` reads a body into an object or raises jsontext.UnreadableError; so may `read`, which
    judges the object.
    """

    name: str
    path: str
    subject: Subject
    read: Callable[[Said], Verdict]
    decode: Callable[[bytes], object] = jsontext.loads

    def body(self, ask: Ask, model: str | None, params: Mapping[str, object]) -> bytes:
        """Build the request body; see Provider.body."""
        if isinstance(ask, Verbatim):
            return verbatim(ask, self.path, self.subject)
        return spliced(ask, model, params, self.subject)

    def judge(self, result: Reply | Fault, now_epoch: float) -> Verdict:
        """Decide what an exchange means; see Provider.judge."""
        if isinstance(result, Fault):
            return fault_verdict(result)
        if result.status not in _OK:
            return status_verdict(result, now_epoch)
        try:
            payload = _object(self.decode(result.body))
            said = Said(payload, usage_of(payload), result.headers, now_epoch)
            if payload.get("error") or "error" in (payload.get("object"), payload.get("type")):
                return said.error(payload)
            return self.read(said)
        except jsontext.UnreadableError as error:
            return _unreadable(result, error)


def name_of(value: object) -> str | None:
    """Return a server's name for something, clean and short; None where it is not a text."""
    if not isinstance(value, str):
        return None
    return value if value.isprintable() and len(value) <= _NAME else clean(value, _NAME)


def finished_choice(said: Said) -> tuple[Mapping[str, object], str | None] | Verdict:
    """Return the first choice and its finish reason, unless that makes the reply a failure."""
    choices = said.payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return said.fail(policy.NO_ANSWER, "the reply has no choices")
    if choice.get("error"):
        return said.error(choice)
    finish = choice.get("finish_reason")
    if not isinstance(finish, str):
        return choice, None
    if finish == "error":
        return said.error({"error": "the model stopped with an error"})
    if (ruling := policy.BY_FINISH.get(finish)) is not None:
        rule, message = ruling
        return said.fail(rule, f"{message} (finish_reason {finish})")
    return choice, name_of(finish)


def _object(value: object) -> Payload:
    if isinstance(value, dict):
        return value
    raise jsontext.UnreadableError("it is JSON, but not an object")


def _unreadable(reply: Reply, error: jsontext.UnreadableError) -> Verdict:
    """Say what the body looks like; never show it."""
    if isinstance(error, jsontext.EmptyError):
        message = str(error)
    else:
        kind = reply.headers.get("content-type") or "unknown"
        size = len(reply.body)
        message = f"the body cannot be read: {error} (content type {kind}, {size} bytes)"
    rule = policy.BAD_RESPONSE
    return ruled(rule, Problem(rule.error, clean(message), reply.status))
