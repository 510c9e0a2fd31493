"""The wire APIs by the names that the configuration uses.

Owns: the list. Refuses to know: any API. "simulated" is no wire API: it speaks one of these.
"""

from collections.abc import Mapping
from typing import Final

from batchinfer.errors import ConfigError
from batchinfer.providers.base import Provider
from batchinfer.providers.openai_chat import OPENAI_CHAT
from batchinfer.providers.openai_completions import OPENAI_COMPLETIONS
from batchinfer.providers.openai_embeddings import OPENAI_EMBEDDINGS

_APIS: Final[tuple[Provider, ...]] = (OPENAI_CHAT, OPENAI_COMPLETIONS, OPENAI_EMBEDDINGS)
PROVIDERS: Final[Mapping[str, Provider]] = {api.name: api for api in _APIS}


def provider(name: str) -> Provider:
    """Return the wire API called `name`; ConfigError where there is none."""
    try:
        return PROVIDERS[name]
    except KeyError:
        raise ConfigError(
            f'endpoint.provider: there is no "{name}"; there are {", ".join(PROVIDERS)}'
        ) from None
