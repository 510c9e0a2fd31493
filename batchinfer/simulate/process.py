"""The simulated provider as a process of its own, for callers that do not run an event loop.

Owns: starting it, learning its address, stopping it. Refuses to know: what it serves. The process
follows the pipe to its standard input, so that it ends with its parent however that one ends.
"""

import os
import selectors
import subprocess
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Final, Self

from msgspec import Struct
from msgspec.json import decode

from batchinfer.errors import UnreachableError
from batchinfer.simulate.behaviour import parse_behaviour

START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0


class Announcement(Struct, frozen=True):
    """The line that a started process prints."""

    base_url: str
    pid: int


class SimulatorProcess:
    """A provider in a process of its own; also a context manager.

    `behaviour_json`: the fields of `Behaviour`. Raises ConfigError where they make no sense and
    UnreachableError where the process does not come up within `START_SECONDS`.
    """

    def __init__(self, behaviour_json: bytes) -> None:
        parse_behaviour(behaviour_json)
        # -P: a file in the current folder must not stand in for a module of ours. A session of its
        # own: Ctrl-C in the terminal is for the job, which still needs answers while it drains.
        command = [sys.executable, "-P", "-m", "batchinfer.simulate", behaviour_json.decode()]
        self._process = subprocess.Popen(  # noqa: S603 (our own module, no shell)
            [*command, "--follow-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with ExitStack() as undo:
            undo.callback(self.stop)
            announced = decode(self._first_line(), type=Announcement)
            undo.pop_all()
        self.base_url = announced.base_url
        self.pid = announced.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and wait for its end; may be called again."""
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()

    def _first_line(self) -> bytes:
        descriptor = _pipe(self._process.stdout).fileno()
        end = time.monotonic() + START_SECONDS
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                ready = selector.select(max(end - time.monotonic(), 0))
                piece = os.read(descriptor, 4096) if ready else b""
                if not piece:
                    raise UnreachableError("The simulated provider did not start.")
                line += piece
        return line


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 (asked for at the start)
    return pipe
