"""Stand-ins for what is outside: the network, the disk, the clock, and whoever observes a run."""

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Raw, Struct

from batchinfer.errors import StorageError
from batchinfer.events import Event
from batchinfer.intake.lines import Chunk
from batchinfer.journal.record import decode
from batchinfer.model import (
    Answer,
    BadRow,
    ErrorClass,
    Failure,
    Fault,
    FaultKind,
    Fields,
    Outcome,
    Problem,
    Reply,
    Row,
    Success,
    Usage,
)

T = TypeVar("T")
E = TypeVar("E")


# ── time ─────────────────────────────────────────────────────────────────────────────────────


class StuckError(AssertionError):
    """Every task waits for something that will never come."""


class _Jump(selectors.SelectSelector):
    """Waits by moving the clock of its loop."""

    def __init__(self, late: Callable[[], float]) -> None:
        super().__init__()
        self.now = 1000.0
        self._late = late

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout is None and not ready:
            raise StuckError
        if timeout and not ready:
            self.now += timeout + self._late()
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while anyone works, and jumps when all of them sleep.

    `late` gives the seconds by which a timer is overslept. What is handed to a thread is done in
    the loop, after `COMMIT` seconds of its clock.
    """

    COMMIT: Final = 0.002

    def __init__(self, late: Callable[[], float] = lambda: 0.0) -> None:
        self._jump = _Jump(late)
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now

    def run_in_executor(  # type: ignore[override]  # a future of this loop, for a call in it
        self, _: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 (as an executor does)
                future.set_exception(error)

        self.call_later(self.COMMIT, call)
        return future


def in_virtual_time(
    main: Callable[[], Coroutine[Any, Any, T]], late: Callable[[], float] = lambda: 0.0
) -> T:
    """Run `main` on a VirtualLoop; a task that is left over at its end fails the test."""

    async def watched() -> T:
        result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(late)) as runner:
        return runner.run(watched())


def now() -> float:
    """The clock of the running loop."""
    return asyncio.get_running_loop().time()


# ── observers and the disk ───────────────────────────────────────────────────────────────────


class Recorder:
    """A sink that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


class MemoryJournal:
    """A journal in memory; from commit number `breaks_at` (from 0) on the disk is full."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.commits: list[list[Outcome]] = []
        self.calls = 0
        self._breaks_at = breaks_at

    def commit(self, success: bytes, failure: bytes) -> None:
        self.calls += 1
        if self._breaks_at is not None and len(self.commits) >= self._breaks_at:
            raise StorageError("the disk is full")
        lines = success.splitlines() + failure.splitlines()
        self.commits.append([decode(line) for line in lines])

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for commit in self.commits for outcome in commit]

    @property
    def rows(self) -> list[int]:
        return sorted(outcome.row for outcome in self.outcomes)


# ── the input ────────────────────────────────────────────────────────────────────────────────


class Chunks:
    """Chunks of such sizes, of lines that hold their own number; `seconds` until each is there."""

    def __init__(self, sizes: Iterable[int], seconds: float = 0.0) -> None:
        self._sizes = iter(sizes)
        self._first = 0
        self._seconds = seconds
        self.taken = 0

    async def next(self) -> Chunk | None:
        await asyncio.sleep(self._seconds)
        size = next(self._sizes, None)
        if size is None:
            return None
        self.taken += 1
        first, self._first = self._first, self._first + size
        lines = tuple(b"%d" % number for number in range(first, first + size))
        return Chunk(first, 0, 0, lines)


def a_row(index: int, line: bytes = b"", members: Mapping[str, object] | None = None) -> Row:
    """A row of a chat request; `members` are those of its body."""
    asked = {"messages": [{"role": "user", "content": f"p {index}"}], **(members or {})}
    raw = {name: Raw(json.dumps(value).encode()) for name, value in asked.items()}
    return Row(index, f"r{index}", index.to_bytes(16, "big"), Fields(raw))


def a_bad_row(index: int, message: str = "no JSON") -> BadRow:
    return BadRow(index, None, index.to_bytes(16, "big"), message)


def a_success(index: int) -> Success:
    answer = Answer(b'"yes"', Usage(3, 2), "stop", "m", None)
    return Success(answer=answer, **_common(index))


def a_failure(index: int, error: ErrorClass = ErrorClass.TIMEOUT) -> Failure:
    return Failure(problem=Problem(error, "too slow"), **_common(index))


def _common(index: int) -> dict[str, Any]:
    return {
        "row": index,
        "id": f"r{index}",
        "key": index.to_bytes(16, "big"),
        "attempts": 1,
        "latency_ms": 1.5,
        "cost_usd": None,
        "at": "2026-01-01T00:00:00.000Z",
    }


# ── the network ──────────────────────────────────────────────────────────────────────────────


class Post(Struct, frozen=True):
    """A request as the network saw it."""

    at: float
    url: str
    headers: Mapping[str, str]
    body: Any


Answered = Reply | Fault | BaseException
Script = Callable[[Post], Answered | Awaitable[Answered]]


class FakeTransport:
    """A transport that answers by a script: a function of the request, or a list in order.

    The last of a list is repeated; an exception is raised. `seconds` is what an exchange takes.
    """

    name = "fake"
    version = "1"

    def __init__(self, script: Script | list[Answered], seconds: float = 0.1) -> None:
        self._script = script
        self._seconds = seconds
        self.posts: list[Post] = []
        self.in_flight = 0
        self.peak = 0
        self.closed = False

    def prepare(self, url: str) -> None:
        """Every way is open."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply | Fault:
        seen = Post(now(), url, headers, json.loads(body))
        self.posts.append(seen)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._answer(seen)
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        self.closed = True

    async def _answer(self, seen: Post) -> Reply | Fault:
        await asyncio.sleep(self._seconds)
        if isinstance(self._script, list):
            answered = self._script[min(len(self.posts), len(self._script)) - 1]
        else:
            result = self._script(seen)
            answered = result if isinstance(result, Answered) else await result
        if isinstance(answered, BaseException):
            raise answered
        return answered


def ok(text: str = "yes", tokens: tuple[int, int] = (3, 2), **choice: object) -> Reply:
    """A chat completion."""
    whole = {
        "model": "m",
        "choices": [{"message": {"content": text}, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]},
    }
    return said(200, whole)


def said(status: int, value: object, **headers: str) -> Reply:
    """A reply with a JSON body; `retry_after` is the header of that name."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, named, json.dumps(value).encode())


def error(status: int, code: str | None = None, **headers: str) -> Reply:
    """A reply with an error, as OpenAI has it."""
    return said(status, {"error": {"message": f"error {status}", "code": code}}, **headers)


def broken(kind: FaultKind) -> Fault:
    return Fault(kind, f"it broke: {kind}")
