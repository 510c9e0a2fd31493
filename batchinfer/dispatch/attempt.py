"""One exchange for one row: gate ▸ transport ▸ verdict, and what the retry policy makes of it.

Owns: turning a verdict into a Step, the endpoint's holds, the bookkeeping of an attempt. The order
is fixed: a row that waits has left the gate and holds no slot. Refuses to know: who calls it, and
the journal.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, assert_never

from msgspec import Struct, structs

from batchinfer.dispatch.endings import Price, failed, hushed, names_model, one_line, succeeded
from batchinfer.dispatch.endpoint import Endpoint, Surroundings
from batchinfer.dispatch.work import Abandoned, Again, Done, Step, Stop, Work
from batchinfer.errors import (
    BatchinferError,
    BudgetError,
    ConfigError,
    KeyRefusedError,
    OutageError,
    QuotaError,
    UnreachableError,
)
from batchinfer.events import Bounced, Held, Sent
from batchinfer.flow.ledger import Ledger
from batchinfer.flow.outage import Episodes, Reach
from batchinfer.flow.retry import RetryPolicy, Tries
from batchinfer.model import (
    NO_USAGE,
    Accept,
    BadRow,
    ErrorClass,
    Fault,
    Halt,
    Problem,
    Reject,
    Reply,
    Retry,
    Row,
    Usage,
)
from batchinfer.providers.base import UnsendableError

_HALTS: Final[Mapping[ErrorClass, type[BatchinferError]]] = {
    ErrorClass.AUTH: KeyRefusedError,
    ErrorClass.QUOTA: QuotaError,
}
"""Why a run stops → how it ends; anything else that no row can survive is the configuration."""

_SENT: Final = Sent()


class Exchange(Struct, frozen=True):
    """What one exchange took: body size (bytes), tokens booked, when it left, how long it was."""

    size: int
    cost: float
    sent_at: float
    latency_ms: float


_NOTHING_SENT: Final = Exchange(0, 0.0, 0.0, 0.0)


class Attempt:
    """Call it with a piece of Work; it makes one exchange and says what is next."""

    def __init__(
        self, endpoint: Endpoint, policy: RetryPolicy, ledger: Ledger, outside: Surroundings
    ) -> None:
        self._wire = endpoint.wire
        self._to = endpoint
        self._policy = policy
        self._ledger = ledger
        self._outside = outside
        self._well_at: float | None = None
        self.in_flight = 0
        self.unanswered = 0

    async def __call__(self, work: Work) -> Step:
        """Make one exchange for this row; a row that cannot be sent fails without one."""
        row, wire, gate = work.row, self._wire, self._to.gate
        if isinstance(row, BadRow):
            return self._fail(work, Problem(ErrorClass.INVALID_INPUT, row.message), _NOTHING_SENT)
        if self._ledger.empty:
            reason = BudgetError(f"the budget is spent: {self._ledger.spent:.4f} USD")
            return Stop(reason, everywhere=True)
        try:
            body = wire.provider.body(row.ask, wire.model, wire.params)
        except UnsendableError as error:
            return self._fail(work, Problem(ErrorClass.INVALID_INPUT, str(error)), _NOTHING_SENT)
        cost = gate.pacer.expect(body)
        if not await gate.enter(cost):
            spent = gate.pacer.used_up(self._outside.clock(), cost)
            return Stop(QuotaError(spent)) if spent else Abandoned()
        return await self._exchange(work, row, body, cost)

    async def _exchange(self, work: Work, row: Row, body: bytes, cost: float) -> Step:
        outside, wire = self._outside, self._wire
        sent_at = outside.clock()
        if work.began is None:
            work.began = sent_at
        outside.sink(_SENT)
        self.in_flight += 1
        self._to.steering.started(self.in_flight)
        try:
            result = await self._to.transport.post(wire.url, wire.headers, body)
        except asyncio.CancelledError:
            self.unanswered += 1
            raise
        finally:
            self.in_flight -= 1
        took = Exchange(len(body), cost, sent_at, (outside.clock() - sent_at) * 1000)
        if isinstance(result, Reply):
            self._to.outage.reached()
            self._to.gate.hear(result.headers, outside.epoch)
        elif not result.ambiguous:
            self._to.gate.pacer.refund(cost)
            return self._unreachable(result, took)
        return self._settle(work, row, result, took)

    def _settle(self, work: Work, row: Row, result: Reply | Fault, took: Exchange) -> Step:
        verdict = self._wire.provider.judge(result, self._outside.epoch())
        self._to.steering.ended(verdict, took.latency_ms / 1000, self.in_flight)
        if self._wire.secrets:
            verdict = hushed(verdict, self._wire.secrets, self._wire.keys)
        match verdict:
            case Accept(answer):
                work.attempts += 1
                self._to.refusals.over()
                self._well_at = self._outside.clock()
                self._used(took, answer.usage)
                whole = None
                if self._wire.keep_response and isinstance(result, Reply):
                    whole = one_line(result.body, self._wire.keys)
                price = self._price(work, took, answer.usage, answer.model)
                return Done(succeeded(work, answer, price, whole))
            case Retry():
                return self._retry(work, verdict, took, ambiguous=isinstance(result, Fault))
            case Reject(problem, usage):
                self._to.refusals.over()
                work.attempts += 1
                self._used(took, usage)
                return self._fail(work, problem, took, usage)
            case Halt(problem, model):
                if model and names_model(row):
                    work.attempts += 1
                    return self._fail(work, problem, took)
                return Stop(_HALTS.get(problem.error, ConfigError)(self._said(problem)))
            case _:
                assert_never(verdict)

    def _retry(self, work: Work, verdict: Retry, took: Exchange, *, ambiguous: bool) -> Step:
        problem, luck, now = verdict.problem, self._outside.luck(), self._outside.clock()
        self._used(took, verdict.usage)
        work.spent += self._ledger.charge(verdict.usage, (self._wire.model,)) or 0.0
        work.wasted += verdict.usage.total
        work.attempts += verdict.counts
        work.rate_limited += not verdict.counts
        work.ambiguous += ambiguous
        if problem.error is ErrorClass.RATE_LIMIT:
            self._to.gate.pacer.refused(took.sent_at, now, verdict.after)
        if not verdict.counts or verdict.after is not None:
            episode = self._to.refusals.trouble(took.sent_at)
            pause = self._policy.pause(episode, verdict.after, luck)
            self._rest(self._to.refusals, pause, problem)
        elapsed = now - (now if work.began is None else work.began)
        if not verdict.counts and (reason := self._out_of_patience(verdict, now)):
            return Stop(reason)
        tries = Tries(work.attempts + work.rate_limited, work.attempts, elapsed)
        backoff = self._policy.after(tries, verdict.after, luck, verdict.attempts)
        if backoff.out_of_time and verdict.counts:
            text = f"timeouts.deadline has passed; last: {problem.message}"
            late = structs.replace(problem, error=ErrorClass.DEADLINE, message=text)
            return self._fail(work, late, took)
        if backoff.give_up and verdict.counts:
            return self._fail(work, problem, took)
        bounced = Bounced(problem, backoff.delay, ambiguous=ambiguous, counts=verdict.counts)
        self._outside.sink(bounced)
        return Again(backoff.delay)

    def _out_of_patience(self, verdict: Retry, now: float) -> BatchinferError | None:
        """Return why not to wait on: too long is asked for, or nothing went well for too long."""
        limit, wait = self._to.outage.max_outage, verdict.after or 0.0
        self._well_at = now if self._well_at is None else self._well_at
        if max(wait, now - self._well_at) <= limit:
            return None
        when = f"come back in {wait:,.0f} s" if wait else "come back later"
        return OutageError(f"{self._said(verdict.problem)}; {when}, nothing is marked failed")

    def _unreachable(self, fault: Fault, took: Exchange) -> Step:
        """Wait for the endpoint to come back; the row is not to blame and loses no attempt."""
        outage, host = self._to.outage, self._wire.host
        match outage.failed(took.sent_at, self._outside.clock()):
            # What is still in flight may have got through, and only be slow to be answered.
            case Reach.NEVER_THERE if not self.in_flight:
                return Stop(UnreachableError(f"{host} cannot be reached: {fault.detail}"))
            case Reach.GONE:
                return Stop(OutageError(f"{host} did not come back: {fault.detail}"))
            case Reach.WAIT | Reach.NEVER_THERE:
                problem = Problem(ErrorClass.CONNECTION, fault.detail)
        pause = self._policy.pause(outage.episodes.count, None, self._outside.luck())
        self._rest(outage.episodes, pause, problem)
        self._outside.sink(Bounced(problem, pause, ambiguous=False, counts=False))
        return Again(pause)

    def _rest(self, episodes: Episodes, seconds: float, problem: Problem) -> None:
        self._to.gate.hold(seconds)
        episodes.rest(self._outside.clock() + seconds)
        self._outside.sink(Held(seconds, problem.message))

    def _fail(self, work: Work, problem: Problem, took: Exchange, usage: Usage = NO_USAGE) -> Done:
        return Done(failed(work, problem, self._price(work, took, usage, None), usage))

    def _price(self, work: Work, took: Exchange, usage: Usage, model: str | None) -> Price:
        """Return what the row cost in all: the last exchange, and those before it."""
        names = (model, self._wire.model)
        last = 0.0 if usage is NO_USAGE else self._ledger.charge(usage, names)
        cost = None if last is None else last + work.spent
        return Price(cost, took.latency_ms, self._outside.stamp())

    def _used(self, took: Exchange, usage: Usage) -> None:
        self._to.gate.pacer.settle(took.size, took.cost, usage.input, usage.output)

    def _said(self, problem: Problem) -> str:
        status = f" (HTTP {problem.status})" if problem.status else ""
        return f"{self._wire.host} said{status}: {problem.message}"
