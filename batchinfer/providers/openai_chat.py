"""The chat completions API: `messages` in, the assistant's message out.

Owns: the row's member and where the answer is. Refuses to know: errors, usage, transport.

The output is the content as a JSON string. Where the message calls tools or carries other media,
it is the whole message object; a list of text parts is joined, any other list is kept as it is.
"""

from collections.abc import Mapping
from typing import Final

from batchinfer.model import Verdict
from batchinfer.providers import jsontext, policy
from batchinfer.providers.base import UnsendableError
from batchinfer.providers.bodies import Subject, Turns
from batchinfer.providers.openai_api import OpenAiApi, Said, finished_choice

_BESIDE_CONTENT: Final = ("tool_calls", "function_call", "audio", "images")
_THOUGHTS: Final = frozenset({"thinking", "reasoning"})


def _messages(turns: Turns) -> object:
    if not turns:
        raise UnsendableError("the row has no message to send")
    return [{"role": role, "content": content} for role, content in turns]


def _read(said: Said) -> Verdict:
    found = finished_choice(said)
    if not isinstance(found, tuple):
        return found
    choice, finish = found
    message = choice.get("message")
    if not isinstance(message, dict):
        return said.fail(policy.NO_ANSWER, "the reply has no message")
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        return said.fail(policy.REFUSED, refusal)
    answer = _answer(message)
    if not answer:
        return said.fail(policy.EMPTY_ANSWER, "empty answer")
    return said.accept(jsontext.dumps(answer), finish)


def _answer(message: Mapping[str, object]) -> object:
    if any(message.get(name) for name in _BESIDE_CONTENT):
        return message
    content = message.get("content")
    return _joined(content) if isinstance(content, list) else content


def _joined(parts: list[object]) -> object:
    texts = []
    for part in parts:
        if not isinstance(part, dict):
            return parts
        text, kind = part.get("text"), part.get("type")
        if isinstance(text, str) and kind == "text":
            texts.append(text)
        elif kind not in _THOUGHTS:
            return parts
    return "".join(texts)


OPENAI_CHAT: Final = OpenAiApi(
    name="openai-chat",
    path="chat/completions",
    subject=Subject("messages", b"[", "a non-empty list", _messages, single=True),
    read=_read,
)
