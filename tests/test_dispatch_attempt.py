import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from fakes import (
    Answered,
    FakeTransport,
    Recorder,
    Script,
    a_bad_row,
    a_row,
    broken,
    error,
    in_virtual_time,
    now,
    ok,
    said,
)

from batchinfer.config.schema import Config, Price, Retry, Timeouts
from batchinfer.dispatch.attempt import Attempt
from batchinfer.dispatch.endpoint import Endpoint, Surroundings, Wire
from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.lane import Seats
from batchinfer.dispatch.steering import Steering
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
from batchinfer.flow.outage import Episodes, Outage
from batchinfer.flow.pacer import UTILISATION, Pacer
from batchinfer.flow.retry import RetryPolicy
from batchinfer.model import (
    NEVER_SENT,
    ErrorClass,
    Failure,
    FaultKind,
    Problem,
    Success,
    Usage,
)
from batchinfer.providers.openai_chat import OPENAI_CHAT

HEADERS = {"authorization": "Bearer sk-secret"}
AMBIGUOUS = [kind for kind in FaultKind if kind not in NEVER_SENT]
PRICES = {"m": Price(input=1_000_000.0, output=0.0)}
"""A dollar for each input token."""


class Desk:
    """One endpoint with its attempt, in virtual time, with middling luck."""

    def __init__(
        self,
        script: Script | list[Answered],
        *,
        attempts: int = 5,
        deadline: float = 3600.0,
        max_outage: float = 600.0,
        rpm: float | None = None,
        tpm: float | None = None,
        max_cost: float | None = None,
        keep: bool = False,
        prices: Mapping[str, Price] = PRICES,
    ) -> None:
        config = Config(
            retry=Retry(attempts=attempts, base=2.0, cap=60.0, max_outage=max_outage),
            timeouts=Timeouts(deadline=deadline),
        )
        self.transport = FakeTransport(script)
        self.told = Recorder()
        self.pacer = Pacer(rpm, tpm, None, now())
        self.gate = Gate(self.pacer, now)
        wire = Wire(
            provider=OPENAI_CHAT,
            url="http://host/v1/chat/completions",
            host="http://host",
            headers=HEADERS,
            model="m",
            params={"temperature": 0},
            secrets=("sk-secret",),
            keys=(b"sk-secret",),
            keep_response=keep,
        )
        self.ledger = Ledger(prices, max_cost, 0.0)
        self.attempt = Attempt(
            Endpoint(
                wire,
                self.transport,
                self.gate,
                Outage(attempts, max_outage),
                Episodes(),
                Steering(Seats(1), None, now),
            ),
            RetryPolicy.of(config),
            self.ledger,
            Surroundings(now, lambda: 1.7e9, lambda: "now", lambda: 0.5, self.told),
        )

    async def settle(self, work: Work) -> tuple[Step, list[float]]:
        """Attempt until the row waits no more; return the last step and the waits before it."""
        waits = []
        while isinstance(step := await self.attempt(work), Again):
            waits.append(step.delay)
            await asyncio.sleep(step.delay)
        return step, waits


def one(
    script: Script | list[Answered], work: Work | None = None, **settings: Any
) -> tuple[Step, Work, Desk]:
    """The first step of a row."""
    work = work or Work(a_row(1))

    async def main() -> tuple[Step, Work, Desk]:
        desk = Desk(script, **settings)
        return await desk.attempt(work), work, desk

    return in_virtual_time(main)


def whole(
    script: Script | list[Answered], work: Work | None = None, **settings: Any
) -> tuple[Step, list[float], Work, Desk]:
    """A row with all its waits."""
    work = work or Work(a_row(1))

    async def main() -> tuple[Step, list[float], Work, Desk]:
        desk = Desk(script, **settings)
        step, waits = await desk.settle(work)
        return step, waits, work, desk

    return in_virtual_time(main)


def success_of(step: Step) -> Success:
    assert isinstance(step, Done)
    assert isinstance(step.outcome, Success)
    return step.outcome


def failure_of(step: Step) -> Failure:
    assert isinstance(step, Done)
    assert isinstance(step.outcome, Failure)
    return step.outcome


def reason_of(step: Step) -> BatchinferError:
    assert isinstance(step, Stop)
    return step.reason


# ── an answer ────────────────────────────────────────────────────────────────────────────────


def test_an_answer_settles_the_row_with_what_it_took() -> None:
    step, work, desk = one([ok("yes", (3, 2))])

    outcome = success_of(step)
    assert outcome.answer.output == b'"yes"'
    assert outcome.answer.usage == Usage(3, 2)
    assert (outcome.attempts, outcome.cost_usd, outcome.at) == (1, 3.0, "now")
    assert outcome.latency_ms == pytest.approx(100.0)
    assert outcome.response is None
    assert desk.told.events == [Sent()]
    assert (desk.attempt.in_flight, desk.attempt.unanswered) == (0, 0)
    assert work.attempts == 1


def test_the_request_is_the_providers_body_with_the_endpoints_headers() -> None:
    _, _, desk = one([ok()])

    [post] = desk.transport.posts
    assert post.url == "http://host/v1/chat/completions"
    assert post.headers is HEADERS
    assert post.body == {
        "model": "m",
        "temperature": 0,
        "messages": [{"role": "user", "content": "p 1"}],
    }


def test_the_whole_reply_is_kept_where_the_config_says_so() -> None:
    reply = ok()
    step, _, _ = one([reply], keep=True)

    assert success_of(step).response == reply.body


def test_a_key_that_the_server_repeats_reaches_no_outcome() -> None:
    kept, _, _ = one([ok("your key is sk-secret")], keep=True)
    refused, _, _ = one([said(400, {"error": {"message": "bad sk-secret"}})])

    assert "sk-secret" not in repr(kept)
    assert success_of(kept).answer.output == b'"your key is ***"'
    assert "sk-secret" not in repr(refused)


def test_without_a_price_the_cost_is_unknown() -> None:
    step, _, _ = one([ok()], prices={})

    assert success_of(step).cost_usd is None


# ── rows that are not sent ───────────────────────────────────────────────────────────────────


def test_a_line_that_cannot_be_read_fails_without_a_request() -> None:
    step, _, desk = one([ok()], Work(a_bad_row(3, "no JSON")))

    outcome = failure_of(step)
    assert outcome.problem == Problem(ErrorClass.INVALID_INPUT, "no JSON")
    assert outcome.attempts == 0
    assert desk.transport.posts == []
    assert desk.told.events == []


def test_a_row_that_the_provider_cannot_send_fails_without_a_request() -> None:
    step, _, desk = one([ok()], Work(a_row(1, members={"stream": True})))

    outcome = failure_of(step)
    assert outcome.problem.error is ErrorClass.INVALID_INPUT
    assert '"stream" must be false' in outcome.problem.message
    assert (outcome.attempts, desk.transport.posts) == (0, [])


def test_a_row_of_more_tokens_than_a_minute_has_is_left_to_the_server() -> None:
    step, _, desk = one([ok()], Work(a_row(1, members={"user": "x" * 10_000})), tpm=1000)

    assert success_of(step).attempts == 1
    assert len(desk.transport.posts) == 1


def test_a_closed_gate_leaves_the_row_as_it_was() -> None:
    async def main() -> None:
        desk, work = Desk([ok()]), Work(a_row(1))
        desk.gate.close()
        assert await desk.attempt(work) == Abandoned()
        assert work == Work(a_row(1))
        assert desk.transport.posts == []

    in_virtual_time(main)


def test_a_spent_budget_stops_the_run_before_the_next_request() -> None:
    async def main() -> None:
        desk = Desk([ok("yes", (3, 2))], max_cost=5.0)
        for row in range(2):
            success_of(await desk.attempt(Work(a_row(row))))
        step = await desk.attempt(Work(a_row(2)))
        assert isinstance(reason_of(step), BudgetError)
        assert "6.0000 USD" in str(reason_of(step))
        assert len(desk.transport.posts) == 2

    in_virtual_time(main)


# ── trouble that counts ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "error_class"),
    [
        (error(500), ErrorClass.SERVER_ERROR),
        (error(502), ErrorClass.SERVER_ERROR),
        (error(504), ErrorClass.TIMEOUT),
        (error(409), ErrorClass.SERVER_ERROR),
        (said(200, {"choices": []}), ErrorClass.BAD_RESPONSE),
    ],
)
def test_a_servers_error_is_tried_again_until_the_attempts_are_used_up(
    reply: Answered, error_class: ErrorClass
) -> None:
    step, waits, work, desk = whole([reply], attempts=3)

    outcome = failure_of(step)
    assert outcome.problem.error is error_class
    assert (outcome.attempts, outcome.rate_limited, outcome.ambiguous) == (3, 0, 0)
    assert len(desk.transport.posts) == 3
    assert waits == [1.0, 2.0]
    assert [b.delay for b in desk.told.of(Bounced)] == waits
    assert all(b.counts and not b.ambiguous for b in desk.told.of(Bounced))
    assert desk.told.of(Held) == []
    assert work.began is not None


def test_a_row_that_succeeds_at_last_says_how_often_it_was_tried() -> None:
    step, _, _, _ = whole([error(500), error(500), ok()])

    assert success_of(step).attempts == 3


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_a_break_after_the_request_had_left_is_counted_apart(kind: FaultKind) -> None:
    step, work, desk = one([broken(kind)])

    if kind is FaultKind.TOO_LARGE:
        assert failure_of(step).problem.error is ErrorClass.TOO_LARGE
        return
    assert isinstance(step, Again)
    assert (work.attempts, work.ambiguous, work.rate_limited) == (1, 1, 0)
    assert [b.ambiguous for b in desk.told.of(Bounced)] == [True]


def test_breaks_use_up_the_attempts() -> None:
    step, _, _, _ = whole([broken(FaultKind.READ_TIMEOUT)], attempts=4)

    outcome = failure_of(step)
    assert outcome.problem.error is ErrorClass.TIMEOUT
    assert (outcome.attempts, outcome.ambiguous) == (4, 4)


def test_an_answer_that_is_empty_is_asked_for_once_more_only() -> None:
    step, _, _, desk = whole([ok("", (3, 1))])

    outcome = failure_of(step)
    assert outcome.problem.error is ErrorClass.BAD_RESPONSE
    assert (outcome.attempts, len(desk.transport.posts)) == (2, 2)


def test_tokens_of_replies_that_were_not_used_are_counted_and_paid() -> None:
    step, _, work, desk = whole([ok("", (3, 1)), ok("yes", (3, 2))])

    assert success_of(step).wasted == 4
    assert work.wasted == 4
    assert desk.ledger.spent == 6.0


def test_the_deadline_ends_a_row_with_its_last_trouble() -> None:
    step, waits, _, _ = whole([error(500)], attempts=50, deadline=30.0)

    outcome = failure_of(step)
    assert outcome.problem.error is ErrorClass.DEADLINE
    assert outcome.problem.message == "timeouts.deadline has passed; last: error 500"
    assert sum(waits) < 30.0


def test_a_row_that_is_refused_again_and_again_stays_and_the_run_stops_at_last() -> None:
    step, waits, work, _ = whole([error(429)], attempts=1, deadline=30.0, max_outage=300.0)

    assert isinstance(step, Stop)
    assert isinstance(step.reason, OutageError)
    assert work.attempts == 0
    assert work.rate_limited == len(waits) + 1
    assert sum(waits) > 30.0


def test_a_server_that_asks_for_more_patience_than_there_is_stops_the_run() -> None:
    step, _, _ = one([error(429, **{"retry-after": "7200"})], Work(a_row(1)))

    assert isinstance(step, Stop)
    assert "7,200 s" in str(step.reason)


# ── trouble that does not count ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refusal_by_load_uses_no_attempt_however_often(status: int) -> None:
    replies: list[Answered] = [error(status)] * 8
    step, waits, _, desk = whole([*replies, ok()], attempts=2)

    outcome = success_of(step)
    assert (outcome.attempts, outcome.rate_limited) == (1, 8)
    assert len(waits) == 8
    assert len(desk.told.of(Held)) == 8
    assert not any(b.counts for b in desk.told.of(Bounced))


def test_a_server_that_says_how_long_holds_everyone_for_so_long() -> None:
    async def main() -> None:
        desk = Desk([error(429, retry_after="30"), ok()])
        start = now()
        step = await desk.attempt(Work(a_row(1)))
        assert isinstance(step, Again)
        assert 30 <= step.delay <= 33
        [held] = desk.told.of(Held)
        assert held.seconds == pytest.approx(30.5)
        assert held.reason == "error 429"
        others = [desk.attempt(Work(a_row(row))) for row in range(2, 5)]
        for done in await asyncio.gather(*others):
            success_of(done)
        assert all(post.at - start >= 30.5 for post in desk.transport.posts[1:])

    in_virtual_time(main)


def test_what_was_refused_together_is_one_refusal() -> None:
    async def main() -> None:
        desk = Desk([error(429)])
        works = [Work(a_row(row)) for row in range(8)]
        await asyncio.gather(*(desk.attempt(work) for work in works))
        assert {held.seconds for held in desk.told.of(Held)} == {1.5}
        await asyncio.sleep(1.5)
        await desk.attempt(works[0])
        assert desk.told.of(Held)[-1].seconds == 3.0

    in_virtual_time(main)


def test_an_answer_ends_the_series_of_refusals() -> None:
    async def main() -> None:
        desk = Desk([error(429), error(429), ok(), error(429)])
        for row in range(4):
            await desk.attempt(Work(a_row(row)))
        assert [held.seconds for held in desk.told.of(Held)] == [1.5, 3.0, 1.5]

    in_virtual_time(main)


def test_an_error_with_a_wait_holds_everyone_and_counts() -> None:
    step, work, desk = one([error(500, retry_after="10")])

    assert isinstance(step, Again)
    assert 10 <= step.delay <= 11
    assert (work.attempts, work.rate_limited) == (1, 0)
    assert [held.seconds for held in desk.told.of(Held)] == [10.5]


# ── no way to the endpoint ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", sorted(NEVER_SENT))
def test_a_connection_that_fails_uses_no_attempt_and_nobody_else_tries_meanwhile(
    kind: FaultKind,
) -> None:
    async def main() -> None:
        desk = Desk([ok(), broken(kind), broken(kind), ok()])
        success_of(await desk.attempt(Work(a_row(0))))
        work = Work(a_row(1))
        step, waits = await desk.settle(work)
        assert success_of(step).attempts == 1
        assert (work.rate_limited, work.ambiguous) == (0, 0)
        assert waits == [1.5, 3.0]
        assert [held.seconds for held in desk.told.of(Held)] == waits
        assert [(b.counts, b.ambiguous) for b in desk.told.of(Bounced)] == [(False, False)] * 2

    in_virtual_time(main)


def test_an_endpoint_that_was_never_there_ends_the_run() -> None:
    step, waits, _, desk = whole([broken(FaultKind.CONNECT)], attempts=3)

    assert isinstance(reason_of(step), UnreachableError)
    assert str(reason_of(step)) == "http://host cannot be reached: it broke: connect"
    assert len(waits) == 2
    assert len(desk.transport.posts) == 3


def test_an_endpoint_that_does_not_come_back_ends_the_run_and_fails_nobody() -> None:
    async def main() -> None:
        desk = Desk([ok(), broken(FaultKind.CONNECT)], max_outage=300.0, deadline=60.0)
        success_of(await desk.attempt(Work(a_row(0))))
        start = now()
        step, _ = await desk.settle(Work(a_row(1)))
        assert isinstance(reason_of(step), OutageError)
        assert "did not come back" in str(reason_of(step))
        assert 300 <= now() - start <= 370

    in_virtual_time(main)


def test_a_row_that_never_left_gives_its_tokens_back() -> None:
    _, _, desk = one([broken(FaultKind.CONNECT)], tpm=600)
    _, _, kept = one([broken(FaultKind.RESET)], tpm=600)

    assert desk.pacer.wait(1000.1) == pytest.approx(0.0)
    assert kept.pacer.wait(1000.1) > 10


def test_the_pacer_is_corrected_by_what_a_reply_used() -> None:
    _, _, desk = one([ok("yes", (30, 20))], tpm=600)

    assert desk.pacer.wait(1000.0) == pytest.approx(5.0 / UTILISATION)


# ── no row can succeed ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(401), KeyRefusedError),
        (error(403), KeyRefusedError),
        (error(402), QuotaError),
        (error(429, "insufficient_quota"), QuotaError),
        (error(404), ConfigError),
        (error(404, "model_not_found"), ConfigError),
        (error(302), ConfigError),
    ],
)
def test_what_no_row_can_survive_stops_the_run_and_the_row_stays(
    reply: Answered, kind: type[BatchinferError]
) -> None:
    step, work, desk = one([reply])

    assert type(reason_of(step)) is kind
    assert str(reason_of(step)).startswith("http://host said (HTTP ")
    assert work.attempts == 0
    assert desk.told.of(Bounced) == []


def test_a_rows_own_wrong_model_fails_that_row_alone() -> None:
    step, _, _ = one([error(404, "model_not_found")], Work(a_row(1, members={"model": "typo"})))

    outcome = failure_of(step)
    assert outcome.problem.error is ErrorClass.INVALID_REQUEST
    assert outcome.attempts == 1


def test_a_refused_key_stops_the_run_whoever_chose_the_model() -> None:
    step, _, _ = one([error(401)], Work(a_row(1, members={"model": "mine"})))

    assert isinstance(reason_of(step), KeyRefusedError)


@pytest.mark.parametrize(
    ("reply", "error_class"),
    [
        (error(400), ErrorClass.INVALID_REQUEST),
        (error(413), ErrorClass.TOO_LARGE),
        (error(400, "context_length_exceeded"), ErrorClass.TOO_LARGE),
        (error(400, "content_filter"), ErrorClass.REFUSED),
        (ok("ye", finish_reason="length"), ErrorClass.TRUNCATED),
        (ok("", finish_reason="content_filter"), ErrorClass.REFUSED),
    ],
)
def test_what_the_same_request_can_never_survive_fails_the_row_at_once(
    reply: Answered, error_class: ErrorClass
) -> None:
    step, _, desk = one([reply])

    outcome = failure_of(step)
    assert outcome.problem.error is error_class
    assert outcome.attempts == 1
    assert len(desk.transport.posts) == 1


def test_a_failed_row_says_what_its_reply_used_and_cost() -> None:
    step, _, _ = one([ok("ye", (3, 2), finish_reason="length")])

    outcome = failure_of(step)
    assert outcome.usage == Usage(3, 2)
    assert outcome.cost_usd == 3.0


# ── bookkeeping ──────────────────────────────────────────────────────────────────────────────


def test_what_is_in_flight_is_counted_and_what_was_dropped_stays_unanswered() -> None:
    async def main() -> None:
        desk = Desk([ok()])
        tasks = [asyncio.create_task(desk.attempt(Work(a_row(row)))) for row in range(3)]
        await asyncio.sleep(0.05)
        assert (desk.attempt.in_flight, desk.attempt.unanswered) == (3, 0)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert (desk.attempt.in_flight, desk.attempt.unanswered) == (0, 1)

    in_virtual_time(main)


def test_a_transports_error_of_the_family_is_passed_on() -> None:
    async def main() -> None:
        desk = Desk([ConfigError("a header cannot be sent")])
        with pytest.raises(ConfigError, match="header"):
            await desk.attempt(Work(a_row(1)))
        assert desk.attempt.in_flight == 0

    in_virtual_time(main)


def test_rows_leave_at_the_rate_of_the_limit() -> None:
    async def main() -> None:
        desk = Desk([ok()], rpm=60)
        start = now()
        await asyncio.gather(*(desk.attempt(Work(a_row(row))) for row in range(4)))
        left = [post.at - start for post in desk.transport.posts]
        assert left == pytest.approx([n / UTILISATION for n in range(4)])

    in_virtual_time(main)
