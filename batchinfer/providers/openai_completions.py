"""The legacy completions API: `prompt` in, text out.

Owns: the row's member and where the answer is. Refuses to know: errors, usage, transport.
"""

from typing import Final

from batchinfer.model import Verdict
from batchinfer.providers import jsontext, policy
from batchinfer.providers.bodies import Subject, Turns
from batchinfer.providers.openai_api import OpenAiApi, Said, finished_choice


def _prompt(turns: Turns) -> object:
    return "\n\n".join(content for _, content in turns)


def _read(said: Said) -> Verdict:
    found = finished_choice(said)
    if not isinstance(found, tuple):
        return found
    choice, finish = found
    text = choice.get("text")
    if not isinstance(text, str) or not text:
        return said.fail(policy.EMPTY_ANSWER, "empty answer")
    return said.accept(jsontext.dumps(text), finish)


OPENAI_COMPLETIONS: Final = OpenAiApi(
    name="openai-completions",
    path="completions",
    subject=Subject("prompt", b'"[', "a string or a non-empty list", _prompt, may_be_blank=True),
    read=_read,
)
