"""What one request gets, decided as a value.

Owns: paths, the order of the checks (path, body, limits, fate), error bodies in OpenAI's shape,
the counters behind `/metrics`. Refuses to know: sockets, timers, the clock (`now` is an argument).
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import orjson
from msgspec import DecodeError, Struct

from batchinfer.simulate import answers
from batchinfer.simulate.behaviour import Behaviour, Fate, fate, service_time
from batchinfer.simulate.limits import Excess, RateLimits, retry_headers

JSON: Final = b"application/json"
PLAIN: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Response(Struct, frozen=True):
    """What goes back. `headers` are rendered lines; `tokens` are (prompt, output) as billed."""

    status: int
    body: bytes
    headers: bytes = b""
    content_type: bytes = JSON
    tokens: tuple[int, int] = (0, 0)


class Respond(Struct, frozen=True):
    """Answer at once."""

    response: Response


class Work(Struct, frozen=True):
    """Hold a slot for `seconds`, then answer."""

    response: Response
    seconds: float


class Hang(Struct, frozen=True):
    """Never answer."""


Decision = Respond | Work | Hang


class Gauges(Protocol):
    """What `/metrics` shows of the slots."""

    capacity: int
    running: int
    peak: int

    @property
    def waiting(self) -> int:
        """How many are in the queue."""

    def busy_seconds(self, now: float) -> float:
        """Sum the seconds worked so far over the slots."""


_MAKERS: Final[tuple[tuple[bytes, Callable[[bytes, Behaviour, int], answers.Answer]], ...]] = (
    (b"/chat/completions", answers.chat),
    (b"/completions", answers.completions),
    (b"/embeddings", answers.embeddings),
)
"""Path ending → what answers it; the first that fits."""

_ERROR: Final = "The simulated server had an error, as it was told to have."
_NO_CAUSE: Final = "Simulated rate limit without a cause, as the simulator was told to give."
_NEVER: Final = "It is larger than the limit and will never fit."
_MODELS: Final = {
    "object": "list",
    "data": [{"id": "simulated", "object": "model", "created": 0, "owned_by": "batchinfer"}],
}


class Service:
    """The provider without its sockets. `epoch`: Unix time at which `now` was 0."""

    def __init__(self, behaviour: Behaviour, gauges: Gauges, started: float, epoch: float) -> None:
        self._behaviour = behaviour
        self._gauges = gauges
        self._epoch = epoch
        self._limits = RateLimits(behaviour.rpm, behaviour.tpm)
        self._admitted = 0
        self._times = {"start": started}
        self._counts: Counter[str] = Counter()
        self._statuses: Counter[int] = Counter()

    def decide(self, method: bytes, target: bytes, body: bytes, now: float) -> Decision:
        """Decide what becomes of a request; `target` as in the request line."""
        path = target.partition(b"?")[0]
        for ending, make in _MAKERS:
            if path.endswith(ending):
                if method != b"POST":
                    return Respond(failure(405, "Only POST is answered here."))
                return self._serve(make, body, now)
        return Respond(self._look_up(method, path, now))

    def settle(self, response: Response, now: float) -> None:
        """Count a response that was sent to the three answering paths."""
        self._statuses[response.status] += 1
        self._counts["prompt"] += response.tokens[0]
        self._counts["output"] += response.tokens[1]
        self._times["last_response"] = now

    def abandon(self) -> None:
        """Count a request whose client went away before its answer."""
        self._counts["abandoned"] += 1

    def _serve(
        self, make: Callable[[bytes, Behaviour, int], answers.Answer], body: bytes, now: float
    ) -> Decision:
        self._counts["requests"] += 1
        self._times.setdefault("first_request", now)
        try:
            answer = make(body, self._behaviour, int(self._epoch + now))
        except (DecodeError, RecursionError) as error:
            return self._at_once(failure(400, f"The body is not understood: {error}"), now)
        excess = self._limits.admit(now, answer.prompt_tokens + answer.output_tokens)
        headers = self._limits.headers(now)
        if excess is not None:
            return self._at_once(_refusal(excess, headers), now)
        number = self._admitted
        self._admitted += 1
        return self._work(answer, number, headers, now)

    def _work(self, answer: answers.Answer, number: int, headers: bytes, now: float) -> Decision:
        seconds = service_time(self._behaviour, number, answer.output_tokens)
        match fate(self._behaviour, number):
            case Fate.ANSWER:
                billed = (answer.prompt_tokens, answer.output_tokens)
                return Work(Response(200, answer.body, headers, tokens=billed), seconds)
            case Fate.ERROR:
                return Work(failure(500, _ERROR, headers), seconds)
            case Fate.RATE_LIMIT:
                return self._at_once(failure(429, _NO_CAUSE, headers), now)
            case Fate.HANG:
                self._counts["hung"] += 1
                return Hang()

    def _at_once(self, response: Response, now: float) -> Respond:
        self.settle(response, now)
        return Respond(response)

    def _look_up(self, method: bytes, path: bytes, now: float) -> Response:
        if method == b"GET":
            if path == b"/metrics":
                return Response(200, self._metrics(now), content_type=PLAIN)
            if path == b"/health":
                return Response(200, b'{"status":"ok"}')
            if path.endswith(b"/models"):
                return Response(200, orjson.dumps(_MODELS))
        return failure(404, "The simulator serves no such path.")

    def _metrics(self, now: float) -> bytes:
        gauges, counts = self._gauges, self._counts
        statuses = {
            f'simulated_responses_total{{status="{status}"}}': number
            for status, number in sorted(self._statuses.items())
        }
        times = {
            f"simulated_{name}_time_seconds": f"{self._epoch + at:.6f}"
            for name, at in self._times.items()
        }
        figures = {
            "simulated_requests_total": counts["requests"],
            "simulated_rate_limited_total": self._statuses[429],
            "simulated_hung_total": counts["hung"],
            "simulated_abandoned_total": counts["abandoned"],
            "simulated_prompt_tokens_total": counts["prompt"],
            "simulated_output_tokens_total": counts["output"],
            "simulated_slots": gauges.capacity,
            "simulated_running": gauges.running,
            "simulated_running_peak": gauges.peak,
            "simulated_waiting": gauges.waiting,
            "simulated_busy_slot_seconds_total": f"{gauges.busy_seconds(now):.6f}",
        }
        lines = (figures | statuses | times).items()
        return "".join(f"{name} {value}\n" for name, value in lines).encode()


def failure(status: int, message: str, headers: bytes = b"") -> Response:
    """Build an error response in OpenAI's shape."""
    kind, code = {
        429: ("requests", "rate_limit_exceeded"),
        500: ("server_error", None),
    }.get(status, ("invalid_request_error", None))
    return Response(status, _error(message, kind, code), headers)


def _refusal(excess: Excess, headers: bytes) -> Response:
    abbreviation = {"requests": "RPM", "tokens": "TPM"}[excess.unit]
    never = not math.isfinite(excess.wait)
    message = (
        f"{'Request too large' if never else 'Rate limit reached'} for the simulated provider on "
        f"{excess.unit} per min ({abbreviation}): Limit {excess.limit}, Used {excess.used}, "
        f"Requested {excess.requested}. "
        f"{_NEVER if never else f'Please try again in {excess.wait:.3f}s.'}"
    )
    body = _error(message, excess.unit, "rate_limit_exceeded")
    return Response(429, body, headers + retry_headers(excess.wait))


def _error(message: str, kind: str, code: str | None) -> bytes:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return orjson.dumps({"error": error})
