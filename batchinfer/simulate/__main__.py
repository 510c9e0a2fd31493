"""The simulated provider from a shell: `python -m batchinfer.simulate '{"latency": 0.1}'`.

Owns: its arguments, its signals, its announcement. Prints one line of JSON with `base_url` and
`pid`, then serves until SIGTERM, SIGINT or, if asked, until its standard input ends.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import sys
import threading

from msgspec.json import encode

from batchinfer.errors import BatchinferError
from batchinfer.simulate.behaviour import Behaviour, parse_behaviour
from batchinfer.simulate.process import Announcement
from batchinfer.simulate.server import LOOPBACK, serve

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]  # uvloop's is narrower


def main() -> int:
    """Serve; returns the exit code."""
    arguments = _arguments()
    _raise_descriptor_limit()
    try:
        behaviour = parse_behaviour(arguments.behaviour.encode())
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(behaviour, arguments))
    except BatchinferError as error:
        print(error, file=sys.stderr)  # noqa: T201 (this is a command)
        return error.exit_code
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m batchinfer.simulate",
        description="A simulated LLM provider that answers on loopback and costs nothing.",
    )
    parser.add_argument("behaviour", nargs="?", default="{}", help="behaviour as JSON")
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (a free one)")
    parser.add_argument("--follow-stdin", action="store_true", help="end when stdin ends")
    return parser.parse_args()


async def _serve(behaviour: Behaviour, arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await serve(behaviour, arguments.host, arguments.port)
    sys.stdout.write(encode(Announcement(server.base_url, os.getpid())).decode() + "\n")
    sys.stdout.flush()
    if arguments.follow_stdin:
        threading.Thread(target=_follow_stdin, args=(loop, stop), daemon=True).start()
    await stop.wait()
    await server.close()


def _follow_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # A thread, because not every kind of stdin can be polled (a file, /dev/null).
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended by a signal in the meantime
        loop.call_soon_threadsafe(stop.set)


def _raise_descriptor_limit() -> None:
    """Allow as many connections as the system does: one is one descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
