"""The limits of a configuration, from the file to the requests that leave."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from cli import Job
from fakes import FakeTransport, Recorder, a_row, error, in_virtual_time, now, ok
from fakeserver import FakeServer, answer
from msgspec import structs

from batchinfer.config.schema import Config, Endpoint, Limits, RequestTemplate
from batchinfer.dispatch.attempt import Attempt
from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.work import Done, Stop, Work
from batchinfer.errors import QuotaError
from batchinfer.flow.gcra import UTILISATION
from batchinfer.flow.share import CUT
from batchinfer.job import wiring
from batchinfer.model import Reply
from batchinfer.providers.openai_chat import OPENAI_CHAT

CONFIG = Config(endpoint=Endpoint(model="m"), request=RequestTemplate(params={"max_tokens": 1000}))
TOLD = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-reset-requests": "1s",
}


def wired(
    limits: Limits, script: list[Reply], monkeypatch: pytest.MonkeyPatch
) -> tuple[Attempt, Gate]:
    """The parts that the configuration makes, by the clock of the running loop."""
    monkeypatch.setattr("time.monotonic", now)
    config = structs.replace(CONFIG, limits=limits)
    wire = wiring.wire(config, OPENAI_CHAT, "http://h/", {}, [])
    attempt, lane = wiring.attempt(config, wire, FakeTransport(list(script)), 0.0, Recorder())
    return attempt, lane.gate


def virtually(main: Callable[[], Coroutine[None, None, None]]) -> None:
    in_virtual_time(main)


@pytest.mark.parametrize(
    ("limits", "wait"),
    [
        (Limits(output_tpm=6000), 0.02),  # two output tokens, as the reply says
        (Limits(input_tpm=6000), 0.03),
        (Limits(tpm=6000), 0.05),
        (Limits(rpm=60), 1.0),
    ],
)
def test_each_limit_of_a_minute_paces_requests(
    limits: Limits, wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        attempt, gate = wired(limits, [ok()], monkeypatch)
        assert isinstance(await attempt(Work(a_row(0))), Done)
        left = gate.pacer.wait(1000.0)
        assert left == pytest.approx(wait / UTILISATION)

    virtually(main)


@pytest.mark.parametrize(("limits", "answered"), [(Limits(rpd=2), 2), (Limits(tpd=300), 1)])
def test_a_days_limit_ends_the_run_and_no_row_fails(
    limits: Limits, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        attempt, _ = wired(limits, [ok(tokens=(20, 60))], monkeypatch)
        steps = [await attempt(Work(a_row(number))) for number in range(4)]
        done = [step for step in steps if isinstance(step, Done)]
        stopped = [step for step in steps if isinstance(step, Stop)]
        assert (len(done), len(stopped)) == (answered, 4 - answered)
        assert isinstance(stopped[0].reason, QuotaError)
        assert "in 24 hours are used up" in str(stopped[0].reason)

    virtually(main)


def test_those_who_stand_in_line_when_the_day_is_used_up_are_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        attempt, _ = wired(Limits(rpd=3, rpm=60), [ok()], monkeypatch)
        steps = await asyncio.gather(*(attempt(Work(a_row(number))) for number in range(8)))
        assert [isinstance(step, Done) for step in steps] == [True] * 3 + [False] * 5
        assert all(isinstance(step, Stop) for step in steps[3:])

    virtually(main)


def test_a_server_that_sets_aside_what_is_asked_for_gets_no_more_than_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        limits = Limits(tpm=3000, tpm_accounting="reserve")
        _, gate = wired(limits, [ok()], monkeypatch)
        cost = gate.pacer.expect(b'{"messages":[]}')
        for _ in range(2):
            assert gate.pacer.take(now() + 30, cost, waited=False)
        assert gate.pacer.wait(now() + 59, cost) > 30
        assert gate.pacer.wait(now() + 59, gate.pacer.expect(b'{"max_tokens":900}')) == 0

    virtually(main)


def test_what_a_server_tells_of_its_limits_is_kept_to_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        attempt, gate = wired(Limits(), [structs.replace(ok(), headers=TOLD)], monkeypatch)
        assert gate.pacer.unlimited
        for number in range(3):
            await attempt(Work(a_row(number)))
        assert gate.remarks == ["the server allows 60 requests a minute; that is kept to"]
        assert gate.pacer.wait(now()) > 0

    virtually(main)


def test_a_refusal_by_rate_slows_the_pace_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        attempt, gate = wired(Limits(rpm=60), [error(429)], monkeypatch)
        await attempt(Work(a_row(0)))
        later = now() + 2.0
        gate.pacer.take(later, 0.0, waited=False)
        assert gate.pacer.wait(later) > 1 / UTILISATION
        assert gate.pacer.wait(later) <= 1 / (UTILISATION * CUT)

    virtually(main)


def test_a_days_limit_holds_from_run_to_run(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.script = lambda *_: answer("x")
        job = Job(tmp_path, server, limits__rpd=3)
        job.plain(8)

        first, second = job.run(), job.run()
        job.settings["limits.rpd"] = 5
        job.write_config()
        third = job.run()

    assert [first.code, second.code, third.code] == [75] * 3
    assert "limits.rpd: 3 requests in 24 hours are used up" in first.err
    assert len(server.log) == 5
