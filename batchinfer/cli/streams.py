"""The standard streams, made safe to write to.

Owns: that a stderr which is closed, full or hung up changes neither what is done nor the exit code.
Refuses to know: what is said.
"""

import io
from contextlib import suppress
from typing import TextIO


class Lenient(io.TextIOBase):
    """Writes to a stream that may be closed, full or hung up: what cannot be shown is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Tell the stream's own."""
        return self._stream.encoding or "utf-8"

    def write(self, text: str, /) -> int:
        """Write, if that can be done."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Flush, if that can be done."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def fileno(self) -> int:
        """Tell the stream's own."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Tell the stream's own."""
        return self._stream.isatty()

    def line(self, text: str) -> None:
        """Write a line of ours."""
        self.write(f"batchinfer: {text}\n")
        self.flush()
