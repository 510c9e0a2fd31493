r"""JSON as servers really write it.

Owns: reading a reply's bytes into plain values, strictly first and tolerantly after, and writing
a value as one line of valid UTF-8. Refuses to know: what the values mean.

Tolerated, where strict JSON forbids it: a byte order mark, bytes that are not UTF-8 and lone
surrogate escapes such as `\ud83d` (each becomes U+FFFD), NaN and Infinity (they become null).
Refused: integers of more than 4,300 digits and numbers beyond the range of a double.
"""

import json
from typing import Final

import orjson

_OUT_OF_RANGE: Final = "it holds a number out of range"
_TOO_DEEP: Final = "it is nested too deeply"


class UnreadableError(ValueError):
    """A body that cannot be used; the text completes "the body cannot be read: ..."."""


class EmptyError(UnreadableError):
    """There is no body, or nothing but white space."""


def loads(body: bytes) -> object:
    """Read JSON, with white space around it; UnreadableError where even tolerance does not help."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _tolerant(body)


def dumps(value: object) -> bytes:
    """Write a value read by `loads` as one line; UnreadableError where it is nested too deeply."""
    try:
        return orjson.dumps(value)
    except TypeError:
        raise UnreadableError(_TOO_DEEP) from None


def _tolerant(body: bytes) -> object:
    text = body.decode("utf-8-sig", "replace")
    if not text.strip():
        raise EmptyError("empty body")
    try:
        value = json.loads(text, parse_constant=lambda _: None)
        again = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise UnreadableError(_TOO_DEEP) from None
    except json.JSONDecodeError:
        raise UnreadableError("it is not JSON") from None
    except ValueError:  # the interpreter's limit on the digits of an integer
        raise UnreadableError(_OUT_OF_RANGE) from None
    whole = again.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    try:
        return orjson.loads(whole)
    except orjson.JSONDecodeError:
        raise UnreadableError(_OUT_OF_RANGE) from None
