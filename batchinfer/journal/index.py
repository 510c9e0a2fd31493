"""Which keys are settled, for tens of millions of rows in little memory.

Owns: a multiset map from row keys to small numbers. Refuses to know: what the numbers mean.

A dict of ten million keys takes 1.5 GB or more; this takes 8 bytes of a key, the number's bytes
and about a third more. Two of the key's 16 bytes choose a bucket and the next eight are kept: of
ten million keys, two different ones are mistaken for each other once in 10^10 jobs.
"""

from typing import Final

_CHOOSING: Final = 2
_KEPT: Final = 8


class KeyIndex:
    """A map from 16-byte keys to numbers of `width` bytes (0: no numbers, all are 0).

    Equal keys are kept apart and come out first in, first out.
    """

    def __init__(self, width: int = 0) -> None:
        self._width = width
        self._entry = _KEPT + width
        self._buckets: dict[bytes, bytearray] = {}
        self._count = 0

    def add(self, key: bytes, value: int = 0) -> None:
        """Add one entry. Raises OverflowError if `value` does not fit into `width` bytes."""
        entry = key[_CHOOSING : _CHOOSING + _KEPT] + value.to_bytes(self._width, "big")
        bucket = self._buckets.get(key[:_CHOOSING])
        if bucket is None:
            bucket = self._buckets[key[:_CHOOSING]] = bytearray()
        bucket += entry
        self._count += 1

    def peek(self, key: bytes) -> int | None:
        """Return the number that was added first under the key, or None."""
        bucket = self._buckets.get(key[:_CHOOSING])
        at = self._find(bucket, key)
        return None if bucket is None or at < 0 else self._value(bucket, at)

    def pop_first(self, key: bytes) -> int | None:
        """Remove and return the number that was added first under the key, or None."""
        bucket = self._buckets.get(key[:_CHOOSING])
        at = self._find(bucket, key)
        if bucket is None or at < 0:
            return None
        value = self._value(bucket, at)
        del bucket[at : at + self._entry]
        self._count -= 1
        return value

    def __contains__(self, key: bytes) -> bool:
        return self._find(self._buckets.get(key[:_CHOOSING]), key) >= 0

    def __len__(self) -> int:
        return self._count

    def _find(self, bucket: bytearray | None, key: bytes) -> int:
        if bucket is None:
            return -1
        kept = key[_CHOOSING : _CHOOSING + _KEPT]
        at = bucket.find(kept)
        while at > 0 and at % self._entry:
            at = bucket.find(kept, at + 1)
        return at

    def _value(self, bucket: bytearray, at: int) -> int:
        return int.from_bytes(bucket[at + _KEPT : at + self._entry], "big")
