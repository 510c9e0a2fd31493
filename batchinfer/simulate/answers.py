"""Simulated answers in OpenAI's shapes.

Owns: the request bodies that are understood, and the reply bodies. An answer depends on the prompt
and the request's own parameters, so that a rerun gives the same one, and it says that it is
simulated. Refuses to know: limits, latency, HTTP. Bodies that are not understood raise msgspec's
DecodeError, whose text names the field.
"""

import base64
import hashlib
import math
import struct
from typing import Annotated, Final, Literal

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder, encode

from batchinfer.simulate.behaviour import Behaviour, is_truncated

BYTES_PER_TOKEN: Final = 4
_QUOTED: Final = 60
_DIMENSIONS: Final = 8

Batch = Annotated[list[str], Meta(min_length=1, max_length=2048)]
Positive = Annotated[int, Meta(ge=1)]


class Answer(Struct, frozen=True):
    """A reply body and what it would be billed for."""

    body: bytes
    prompt_tokens: int
    output_tokens: int = 0


class _Asked(Struct):
    model: str = "simulated"
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    stream: bool | None = None

    def __post_init__(self) -> None:
        if self.stream:
            raise ValueError("The simulator does not stream: leave `stream` out")

    def room(self) -> float:
        """Output tokens at most."""
        return min(self.max_tokens or math.inf, self.max_completion_tokens or math.inf)


class _Message(Struct):
    role: str
    content: str | list[dict[str, object]] | None = None

    def text(self) -> str:
        """Join the text of the message; parts that are not text stand as their JSON."""
        if isinstance(self.content, list):
            return "\n".join(
                text if isinstance(text := part.get("text"), str) else encode(part).decode()
                for part in self.content
            )
        return self.content or ""


class _Chat(_Asked, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]


class _Completions(_Asked, kw_only=True):
    prompt: str | Batch


class _Embeddings(Struct, kw_only=True):
    input: str | Batch
    model: str = "simulated"
    dimensions: Annotated[int, Meta(ge=1, le=4096)] = _DIMENSIONS
    encoding_format: Literal["float", "base64"] = "float"


class _Said(Struct, frozen=True):
    text: str
    tokens: int
    finish_reason: Literal["stop", "length"]


_CHAT: Final = Decoder(_Chat)
_COMPLETIONS: Final = Decoder(_Completions)
_EMBEDDINGS: Final = Decoder(_Embeddings)


def chat(body: bytes, behaviour: Behaviour, created: int) -> Answer:
    """Answer a chat completion request; `created` in Unix seconds."""
    asked = _CHAT.decode(body)
    texts = [message.text() for message in asked.messages]
    prompt = "\n".join(texts)
    digest = _digest("\0".join([m.role for m in asked.messages] + texts))
    said = _say(texts[-1], digest, asked.room(), behaviour)
    tokens = count_tokens(prompt)
    message = {"role": "assistant", "content": said.text, "refusal": None}
    choice = _choice(0, said) | {"message": message}
    reply = {
        "id": f"chatcmpl-sim-{digest}",
        "object": "chat.completion",
        "created": created,
        "model": asked.model,
        "choices": [choice],
        "usage": _usage(tokens, said.tokens),
        "system_fingerprint": "simulated",
    }
    return Answer(orjson.dumps(reply), tokens, said.tokens)


def completions(body: bytes, behaviour: Behaviour, created: int) -> Answer:
    """Answer a text completion request: one choice for each prompt."""
    asked = _COMPLETIONS.decode(body)
    prompts = _as_list(asked.prompt)
    digests = [_digest(prompt) for prompt in prompts]
    room = asked.room()
    said = [_say(p, d, room, behaviour) for p, d in zip(prompts, digests, strict=True)]
    tokens, output = sum(map(count_tokens, prompts)), sum(each.tokens for each in said)
    reply = {
        "id": f"cmpl-sim-{digests[0]}",
        "object": "text_completion",
        "created": created,
        "model": asked.model,
        "choices": [_choice(i, each) | {"text": each.text} for i, each in enumerate(said)],
        "usage": _usage(tokens, output),
        "system_fingerprint": "simulated",
    }
    return Answer(orjson.dumps(reply), tokens, output)


def embeddings(body: bytes, _behaviour: Behaviour, _created: int) -> Answer:
    """Answer an embedding request: one vector of length 1 for each input."""
    asked = _EMBEDDINGS.decode(body)
    inputs = _as_list(asked.input)
    tokens = sum(map(count_tokens, inputs))
    vectors: list[list[float]] = [_vector(text, asked.dimensions) for text in inputs]
    packed = asked.encoding_format == "base64"
    reply = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _pack(v) if packed else v}
            for i, v in enumerate(vectors)
        ],
        "model": asked.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return Answer(orjson.dumps(reply), tokens)


def count_tokens(text: str) -> int:
    """Tokens of a text, by its length in bytes; at least one."""
    return max(1, -(-len(text.encode()) // BYTES_PER_TOKEN))


def _say(prompt: str, digest: str, room: float, behaviour: Behaviour) -> _Said:
    begins = " ".join(prompt[: 2 * _QUOTED].split())[:_QUOTED]
    text = f"[simulated] No model was asked. Prompt {digest} begins: {begins}"
    if count_tokens(text) > room >= count_tokens(_SHORT):
        text = _SHORT  # most models keep to the room they have; cuts are for `truncate_rate`
    tokens = count_tokens(text)
    if is_truncated(behaviour, int(digest, 16)):
        room = min(room, tokens // 2)
    if tokens <= room:
        return _Said(text, tokens, "stop")
    kept = text.encode()[: int(room) * BYTES_PER_TOKEN].decode(errors="ignore")
    return _Said(kept, int(room), "length")


_SHORT: Final = "[simulated]"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _choice(index: int, said: _Said) -> dict[str, object]:
    return {"index": index, "logprobs": None, "finish_reason": said.finish_reason}


def _usage(prompt: int, output: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _vector(text: str, dimensions: int) -> list[float]:
    drawn = hashlib.shake_128(text.encode()).digest(4 * dimensions)
    # Odd numbers are never zero, so that every vector has a direction.
    parts = [number | 1 for number in struct.unpack(f"<{dimensions}i", drawn)]
    length = math.hypot(*parts)
    return [round(part / length, 7) for part in parts]


def _pack(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
