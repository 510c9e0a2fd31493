"""Endpoints that many use, by name, and the endpoint that the environment describes.

Owns: the table of presets and the meaning of OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL.
Refuses to know: files, flags, any key's value. Local servers listen where their own documentation
says that they do by default.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from batchinfer.config.address import OPENAI, host
from batchinfer.config.layers import Table

BASE_URL: Final = "OPENAI_BASE_URL"
API_KEY: Final = "OPENAI_API_KEY"
MODEL: Final = "OPENAI_MODEL"


class Preset(Struct, frozen=True):
    """An endpoint's address and where its key is looked for; `note` is one line for people."""

    note: str
    base_url: str | None = None
    api_key_env: str | None = None
    provider: str = "openai-chat"

    def endpoint(self) -> Table:
        """Return the fields of `[endpoint]` that the preset sets."""
        values = {
            "provider": self.provider,
            "base_url": self.base_url,
            "api_key_env": self.api_key_env,
        }
        return {name: value for name, value in values.items() if value is not None}


PRESETS: Final[Mapping[str, Preset]] = {
    "demo": Preset("the simulator: no key, no cost, and no model", provider="simulated"),
    "openai": Preset("api.openai.com", OPENAI, API_KEY),
    "vllm": Preset("vLLM on this machine (vllm serve MODEL)", "http://127.0.0.1:8000/v1"),
    "sglang": Preset("SGLang on this machine", "http://127.0.0.1:30000/v1"),
    "llama.cpp": Preset("llama-server on this machine", "http://127.0.0.1:8080/v1"),
    "ollama": Preset("Ollama on this machine", "http://127.0.0.1:11434/v1"),
    "lmstudio": Preset("LM Studio on this machine", "http://127.0.0.1:1234/v1"),
    "openrouter": Preset("openrouter.ai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": Preset("groq.com", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "together": Preset("together.ai", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "fireworks": Preset(
        "fireworks.ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"
    ),
    "deepseek": Preset("deepseek.com", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "mistral": Preset("mistral.ai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
}

NO_ENDPOINT: Final = """\
no endpoint is configured. Three ways on:
  batchinfer run INPUT --preset vllm --model MODEL   (or another: {names})
  export OPENAI_BASE_URL=... OPENAI_API_KEY=... OPENAI_MODEL=...
  batchinfer run INPUT --preset demo                 (a simulator: no key, no cost; the same:
                                                      --config configs/demo.toml)""".format(
    names=", ".join(PRESETS)
)


def from_environment(endpoint: Table, env: Mapping[str, str]) -> dict[str, Table]:
    """Return, by variable, the fields of `[endpoint]` that the environment adds to those given.

    The address is the environment's only where none is configured; OPENAI_API_KEY is used only
    for that address or for OpenAI's own, never for another host.
    """
    if endpoint.get("provider") == "simulated":
        return {}
    added: dict[str, Table] = {}
    url = endpoint.get("base_url")
    if url is None:
        url = env.get(BASE_URL) or (OPENAI if "provider" in endpoint or env.get(API_KEY) else None)
        if url is None:
            return {}
        added[BASE_URL] = {"base_url": url}
        if env.get(MODEL) and not {"provider", "model"} & endpoint.keys():
            added[MODEL] = {"model": env[MODEL]}
    is_openai = isinstance(url, str) and host(url) == host(OPENAI)
    if not _has_key(endpoint) and (is_openai or (added and env.get(API_KEY))):
        added[API_KEY] = {"api_key_env": API_KEY}
    return added


def _has_key(endpoint: Table) -> bool:
    headers = endpoint.get("headers")
    names = [str(name).lower() for name in headers] if isinstance(headers, dict) else []
    return "authorization" in names or bool({"api_key_env", "api_key_file"} & endpoint.keys())
