"""Text from a server, made safe to show and to keep.

Owns: which characters may reach a terminal, what looks like a key, how much is kept.
Refuses to know: where the text came from and where it goes.
"""

import re
from typing import Final

_SPACES: Final = re.compile(r"[\t-\r\u0085\u2028\u2029]+")
_UNSAFE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # terminal control sequences: colour, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: title, clipboard
    r"|[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
)
_KEYS: Final = re.compile(
    r"(?i)(\bbearer\s+|\b(?:proxy-)?authorization\W{1,4}(?:bearer |basic )?"
    r"|\b(?:x-)?api[- _]key(?: provided)?\W{1,4})"
    r"(?=[\w.~+/=*-]*[\d*])[\w.~+/=*-]{6,}"
    r"|([?&](?:api[_-]?key|access_token|key|token)=)[^\s&\"']+"
    r"|(\b(?:sk|gsk|pk|rk|xai|hf|nvapi)[-_])(?=[\w*.-]*[\d*])[\w*.-]{4,}"
    r"|(\bAIza)[\w-]{10,}",
)
_SIGNS: Final = ("bearer", "auth", "key", "token=", "k-", "k_", "xai", "hf", "nvapi", "aiza")
_LOOK_AT: Final = 8_000


def clean(text: str, limit: int = 500) -> str:
    """Return `text` on one line of at most `limit` characters, harmless to a terminal.

    Line breaks become blanks; control characters, terminal escapes, bidirectional controls and
    lone surrogates become U+FFFD; whatever looks like an API key becomes `***`.
    """
    text = text[:_LOOK_AT]
    if not text.isprintable():
        text = _UNSAFE.sub("\ufffd", _SPACES.sub(" ", text))
    lower = text.lower()
    if any(sign in lower for sign in _SIGNS):  # the expression is slow, and rarely needed
        text = _KEYS.sub(_mask, text)
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _mask(match: re.Match[str]) -> str:
    return next((lead for lead in match.groups() if lead), "") + "***"
