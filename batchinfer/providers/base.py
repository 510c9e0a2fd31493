"""What every wire API offers: a row becomes body bytes, a reply becomes a verdict.

Owns: the seam that the rest of the program talks through. Refuses to know: any API's own shapes.
"""

from collections.abc import Mapping
from typing import Protocol

from batchinfer.model import Ask, Fault, Reply, Verdict


class UnsendableError(ValueError):
    """A row cannot be sent as it is; the text says why in the user's terms."""


class Provider(Protocol):
    """One wire API."""

    @property
    def name(self) -> str:
        """The API's name in the configuration."""
        ...

    @property
    def path(self) -> str:
        """Where requests are posted, relative to `base_url`, without a leading slash."""
        ...

    def body(self, ask: Ask, model: str | None, params: Mapping[str, object]) -> bytes:
        """Build the request body; the same arguments give the same bytes.

        `model` and `params` are the configuration's: defaults, which a row's own members override.
        A verbatim body is returned unchanged. Raises UnsendableError.
        """
        ...

    def judge(self, result: Reply | Fault, now_epoch: float) -> Verdict:
        """Decide what an exchange means. Total: no reply makes it raise.

        `now_epoch`: Unix seconds, against which a server's absolute times are read.
        """
        ...
