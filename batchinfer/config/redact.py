"""Text without the secrets of this run, whatever dress they wear.

Owns: the forms in which a known secret may come back (quoted, escaped, base64). Refuses to know:
what looks like a secret but is not one of this run's, where the text goes.
"""

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from json import dumps
from typing import Final
from urllib.parse import quote, quote_plus, unquote

from batchinfer.config.schema import Endpoint
from batchinfer.config.secrets import Env, Read, secret_texts

MASK: Final = "***"

MIN_SECRET: Final = 4
"""Characters; replacing shorter texts would only tear words apart."""

MIN_ENCODED: Final = 8
"""Characters of a base64 form; shorter ones are found in any text by chance."""


class Redactor:
    """Replaces the secrets that it was given, in all their forms, by `***`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if form}
        longest_first = sorted(forms, key=len, reverse=True)
        # Case is ignored: percent-encodings come in both, and servers change that of headers.
        pattern = "|".join(re.escape(form) for form in longest_first)
        self._pattern = re.compile(pattern, re.IGNORECASE) if forms else None

    def redact(self, text: str) -> str:
        """Return `text` with `***` in place of every secret."""
        return self._pattern.sub(MASK, text) if self._pattern else text


def redactor(endpoint: Endpoint, env: Env, read: Read) -> Redactor:
    """Return the redactor for an endpoint's key, secret headers and URL; raises ConfigError."""
    return Redactor(secret_texts(endpoint, env, read))


def _forms(secret: str) -> Iterator[str]:
    if len(secret) < MIN_SECRET:
        return
    for plain in {secret, unquote(secret)}:
        yield plain
        yield from (quote(plain), quote(plain, safe=""), quote_plus(plain))
        escaped = dumps(plain)[1:-1]
        yield from (escaped, escaped.replace("/", "\\/"), repr(plain)[1:-1])
        yield from _encoded(plain.encode())


def _encoded(secret: bytes) -> Iterator[str]:
    """Yield the base64 of a secret wherever it stands in a longer text, as in `user:key`."""
    for lead, skipped in ((0, 0), (1, 2), (2, 3)):
        whole = lead + len(secret)
        kept = whole // 3 * 4 + whole % 3  # the last, partial sextet depends on what follows
        for encode in (b64encode, urlsafe_b64encode):
            form = encode(bytes(lead) + secret).decode()[skipped:kept]
            if len(form) >= MIN_ENCODED:
                yield form
