"""The tally: what a run has done so far, as a fold over its events.

Owns: the counters that progress, summary and metrics read, and the sliding rates. Refuses to
know: who reads them, clocks (a caller says what time it is), files. Memory does not grow with
the events.
"""

from collections import deque
from typing import Final, NamedTuple, assert_never

from batchinfer.events import Bounced, Counted, Event, Held, Recalled, Sent, Settled, Skipped
from batchinfer.model import ErrorClass, Failure, Outcome, Success
from batchinfer.report.histogram import Histogram

UNNAMED_MODEL: Final = "(unnamed)"
"""Stands for the model of an answer that does not name it."""

_PICO: Final = 10**12
"""Money is added up in whole millionths of a millionth of a dollar: float sums have an order."""


class Rates(NamedTuple):
    """How fast this run goes, per second, over the last few seconds."""

    rows: float
    tokens: float


class RateWindow:
    """Rates of two growing counters over a sliding window.

    `span` is the window in seconds, `step` the least time between two samples kept.
    """

    __slots__ = ("_samples", "_span", "_step")

    def __init__(self, span: float = 10.0, step: float = 0.25) -> None:
        self._span = span
        self._step = step
        self._samples: deque[tuple[float, int, int]] = deque()

    def rates(self, now: float, rows: int, tokens: int) -> Rates:
        """Take the counters' values at `now` (seconds, any monotonic clock)."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._step:
            samples.append((now, rows, tokens))
        while len(samples) > 1 and now - samples[1][0] >= self._span:
            samples.popleft()
        then, rows_then, tokens_then = samples[0]
        if now <= then:
            return Rates(0.0, 0.0)
        return Rates((rows - rows_then) / (now - then), (tokens - tokens_then) / (now - then))


class Tally:
    """The counters of a job.

    Rows: `total` (None until the input has been read to its end), `succeeded`, `failed`, of these
    `invalid`; `skipped` were settled by an earlier run, `settled` by this one; `failures` by class.
    Requests: `sent`, `retried`, `ambiguous`, `rate_limited`. Tokens: `input`, `output`, `cached`,
    `reasoning` of the answers, `wasted` on replies that became none; `unknown_usage` counts the
    answers whose server told no tokens. Latencies are those of the answers.
    """

    __slots__ = (
        "_ambiguous",
        "_bounced_ambiguous",
        "_picodollars",
        "_settled_ambiguous",
        "_tokens",
        "_window",
        "cached",
        "failed",
        "failures",
        "holds",
        "input",
        "invalid",
        "last_hold",
        "latency",
        "output",
        "rate_limited",
        "reasoning",
        "retried",
        "sent",
        "settled",
        "skipped",
        "succeeded",
        "total",
        "unknown_usage",
        "unpriced",
        "unpriced_models",
        "wasted",
    )

    def __init__(self) -> None:
        self.total: int | None = None
        self.succeeded = self.failed = self.invalid = self.skipped = self.settled = 0
        self.failures: dict[ErrorClass, int] = {}
        self.sent = self.retried = self.rate_limited = 0
        self._ambiguous = self._bounced_ambiguous = self._settled_ambiguous = 0
        self.input = self.output = self.cached = self.reasoning = self.wasted = 0
        self.unknown_usage = 0
        self._tokens = 0
        self._picodollars = 0
        self.unpriced = 0
        self.unpriced_models: set[str] = set()
        self.latency = Histogram()
        self.holds = 0
        self.last_hold: Held | None = None
        self._window = RateWindow()

    def fold(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Settled(outcome=outcome):
                self._settle(outcome)
            case Sent():
                self.sent += 1
            case Bounced():
                self._bounce(event)
            case Skipped(how=how, error=error):
                self.skipped += 1
                if how == "succeeded":
                    self.succeeded += 1
                else:
                    self._fail(error)
            case Recalled(outcome=outcome):
                self._recall(outcome)
            case Held():
                self.holds += 1
                self.last_hold = event
            case Counted(rows=rows):
                self.total = rows
            case _:
                assert_never(event)

    def count_rows_as(self, other: "Tally") -> None:
        """Take over how the rows stand from another tally of the same job."""
        self.total, self.succeeded, self.failed = other.total, other.succeeded, other.failed
        self.invalid, self.skipped, self.failures = other.invalid, other.skipped, other.failures

    @property
    def done(self) -> int:
        """Rows that have an outcome, whichever run they have it from."""
        return self.succeeded + self.failed

    @property
    def ambiguous(self) -> int:
        """Exchanges that broke after the request had left.

        An exchange that ends its row is told by the outcome, one of a row still open by its bounce;
        one in the middle by both. The greater of the two sums never counts one twice, and is exact
        once every row is settled.
        """
        return self._ambiguous + max(self._bounced_ambiguous, self._settled_ambiguous)

    @property
    def known_cost(self) -> float:
        """USD: what all priced outcomes cost together."""
        return self._picodollars / _PICO

    @property
    def cost(self) -> float | None:
        """USD; None where the cost of any answer is unknown."""
        return None if self.unpriced else self.known_cost

    def rates(self, now: float) -> Rates:
        """Rows and tokens per second of this run over the last ten seconds.

        `now` is in seconds of any monotonic clock; call it regularly, each call is a sample.
        """
        return self._window.rates(now, self.settled, self._tokens)

    def _bounce(self, bounced: Bounced) -> None:
        if bounced.problem.error is ErrorClass.CONNECTION and not bounced.counts:
            self.sent -= 1  # no connection was made: nothing left, and nobody limited a rate
            return
        self.retried += 1
        self._bounced_ambiguous += bounced.ambiguous
        self.rate_limited += not bounced.counts

    def _settle(self, outcome: Outcome) -> None:
        self.settled += 1
        self._settled_ambiguous += outcome.ambiguous
        self._tokens += self._spend(outcome)
        if isinstance(outcome, Success):
            self.succeeded += 1
        else:
            self._fail(outcome.problem.error)

    def _recall(self, outcome: Outcome) -> None:
        sent = outcome.attempts + outcome.rate_limited
        self.sent += sent
        self.retried += max(sent - 1, 0)
        self.rate_limited += outcome.rate_limited
        self._ambiguous += outcome.ambiguous
        self._spend(outcome)

    def _fail(self, error: ErrorClass | None) -> None:
        self.failed += 1
        if error is not None:
            self.failures[error] = self.failures.get(error, 0) + 1
            self.invalid += error is ErrorClass.INVALID_INPUT

    def _spend(self, outcome: Outcome) -> int:
        """Add up tokens, money and latency; returns the tokens of the outcome's last reply."""
        self.wasted += outcome.wasted
        if isinstance(outcome, Failure):
            return self._spend_failure(outcome)
        usage = outcome.answer.usage
        if usage.input is None and usage.output is None:
            self.unknown_usage += 1
        self.input += usage.input or 0
        self.output += usage.output or 0
        self.cached += usage.cached or 0
        self.reasoning += usage.reasoning or 0
        self.latency.add(outcome.latency_ms)
        if outcome.cost_usd is not None:
            self._picodollars += round(outcome.cost_usd * _PICO)
        else:
            self._miss_price(outcome)
        return usage.total

    def _spend_failure(self, outcome: Failure) -> int:
        tokens = outcome.usage.total
        self.wasted += tokens
        if outcome.cost_usd is not None:
            self._picodollars += round(outcome.cost_usd * _PICO)
        elif tokens:
            self.unpriced += 1
        return tokens

    def _miss_price(self, outcome: Success) -> None:
        self.unpriced += 1
        # Without usage the cost is unknown whatever the price: naming the model would mislead.
        if outcome.answer.usage.total:
            self.unpriced_models.add(outcome.answer.model or UNNAMED_MODEL)
