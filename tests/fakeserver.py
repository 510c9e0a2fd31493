"""A scripted chat endpoint on loopback, in a thread of the test process.

Unless a script says otherwise it answers each prompt with "ok:" and the prompt. It logs every
request, and knows each prompt's attempt number (from 1) over all runs against it.
"""

import asyncio
import itertools
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

USAGE: Final[dict[str, object]] = {
    "prompt_tokens": 10,
    "completion_tokens": 2,
    "total_tokens": 12,
}
_ABSENT: Final = object()


@dataclass(frozen=True)
class Step:
    """What to do with one request.

    `body`: bytes as they are, any other value as JSON. `raw`: instead of a response, (seconds to
    wait, bytes) one after the other, then the connection is closed. `delay`: seconds before the
    first byte. `hold`: wait for `release`. `reset`: abort the connection.
    """

    status: int = 200
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: Iterable[tuple[float, bytes]] | None = None
    delay: float = 0.0
    hold: bool = False
    reset: bool = False
    billed: bool = False


RESET: Final = Step(reset=True)


def answer(
    content: object,
    *,
    finish: str | None = "stop",
    usage: object = USAGE,
    delay: float = 0.0,
    hold: bool = False,
) -> Step:
    """Answer with this content; `usage` may be ABSENT."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}}
    reply: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{**choice, "finish_reason": finish}],
    }
    if usage is not _ABSENT:
        reply["usage"] = usage
    return Step(body=reply, delay=delay, hold=hold, billed=True)


ABSENT: Final = _ABSENT


def refuse(status: int, error: object, **headers: str) -> Step:
    """Answer with an error body; `headers` with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Step(status=status, body={"error": error}, headers=named)


@dataclass
class Seen:
    """One request as it arrived; `answered`: the whole default or scripted answer was written."""

    prompt: str
    attempt: int
    at: float
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    billed: bool = False


Script = Callable[[str, int], Step | None]
"""(prompt, its attempt number from 1) → what to do, None: the default answer."""


class FakeServer:
    """To be used in a `with`. `script` may be replaced at any time."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.log: list[Seen] = []
        self.most_in_flight = 0
        self.in_flight = 0
        self.on_request: Callable[[Seen], None] = lambda _: None
        self.closers: list[Callable[[], None]] = []
        self._attempts: Counter[str] = Counter()
        self._held: list[asyncio.Event] = []
        self._open = False
        self._server: asyncio.Server | None = None
        self._ready = threading.Event()
        self._connections = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    # ── what was seen ────────────────────────────────────────────────────────────────────────

    def prompts(self, since: int = 0) -> list[str]:
        """Return the prompts asked, in order of arrival, from the request number `since`."""
        return [seen.prompt for seen in self.log[since:]]

    def asked(self, prompt: str) -> int:
        """Return how often a prompt was asked."""
        return self._attempts[prompt]

    def billed(self) -> Counter[str]:
        """Return how often each prompt was answered in full."""
        return Counter(seen.prompt for seen in self.log if seen.billed)

    def wait_for(self, done: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until something is so; looked at after each request and each answer."""
        with self._news:
            assert self._news.wait_for(done, seconds), f"{len(self.log)} requests came"

    def wait_for_answers(self, count: int) -> None:
        """Wait until so many answers are out."""
        self.wait_for(lambda: sum(seen.billed for seen in list(self.log)) >= count)

    def release(self) -> None:
        """Let all held requests go on, and hold none from now on."""
        self._open = True

        def release() -> None:
            for event in self._held:
                event.set()

        self._loop.call_soon_threadsafe(release)

    def shut(self) -> None:
        """Go away: refuse new connections and drop those that are open."""
        gone = threading.Event()

        def close() -> None:
            if self._server is not None:
                self._server.close()
            for task in self._tasks:
                task.cancel()
            gone.set()

        self._loop.call_soon_threadsafe(close)
        assert gone.wait(10)

    # ── the server ───────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for close in self.closers:
            close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(self._serve, sock=self._listener, limit=2**26)
        self._server = self._loop.run_until_complete(serving)
        self._ready.set()
        self._loop.run_forever()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = next(self._connections)
        try:
            while await self._exchange(reader, writer, connection):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        at = time.monotonic()
        first, *lines = head.split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        prompt = _prompt(body)
        self._attempts[prompt] += 1
        path = first.split(" ")[1]
        seen = Seen(prompt, self._attempts[prompt], at, path, headers, body, connection)
        self.log.append(seen)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.on_request(seen)
        self._tell()
        try:
            return await self._do(self._step(seen), seen, writer)
        finally:
            self.in_flight -= 1
            self._tell()

    def _step(self, seen: Seen) -> Step:
        step = self.script(seen.prompt, seen.attempt) if self.script else None
        return step or answer(f"ok:{seen.prompt}")

    async def _do(self, step: Step, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        if step.hold and not self._open:
            event = asyncio.Event()
            self._held.append(event)
            await event.wait()
        if step.delay:
            await asyncio.sleep(step.delay)
        if step.reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return False
        if step.raw is not None:
            for seconds, chunk in step.raw:
                await asyncio.sleep(seconds)
                writer.write(chunk)
                await writer.drain()
            return False
        writer.write(_response(step))
        await writer.drain()
        seen.billed = step.billed
        return True

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()


def _response(step: Step) -> bytes:
    body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
    headers = {"content-type": "application/json", **step.headers, "content-length": len(body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {step.status} Scripted\r\n{lines}\r\n".encode("latin-1") + body


def _prompt(body: bytes) -> str:
    messages = json.loads(body)["messages"]
    content: str = messages[-1]["content"]
    return content
