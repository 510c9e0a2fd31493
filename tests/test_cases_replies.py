"""Replies that are errors, empty, cut, blocked, slow or oddly counted; through the real CLI."""

import json
from pathlib import Path

import pytest
from cli import Job, ok
from fakeserver import ABSENT, USAGE, FakeServer, Script, Step, answer, refuse


def _first(steps: dict[str, Step], *, always: dict[str, Step] | None = None) -> Script:
    """Do these on a prompt's first attempt, those on every attempt."""

    def script(prompt: str, attempt: int) -> Step | None:
        step = steps.get(prompt) if attempt == 1 else None
        return step or (always or {}).get(prompt)

    return script


def _chunked(chunks: list[tuple[float, bytes]]) -> Step:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    framed = [(seconds, b"%x\r\n%b\r\n" % (len(chunk), chunk)) for seconds, chunk in chunks]
    return Step(raw=[(0.0, head), *framed, (0.0, b"0\r\n\r\n")])


# ── a 200 that is no answer ──────────────────────────────────────────────────────────────────


def test_an_error_inside_a_200_counts_as_its_own_status(tmp_path: Path) -> None:
    choice = {"finish_reason": "error", "error": {"code": 502}, "message": {"content": "half"}}
    limited = Step(body={"error": {"code": 429, "message": "upstream limited"}})
    steps = {"p r001": limited, "p r002": Step(body={"choices": [choice]})}
    always = {"p r003": Step(body={"error": {"code": 400, "message": "bad image"}})}
    with FakeServer(_first(steps, always=always)) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(4)

        ended = job.run("--json")

        assert ended.code == 3, ended.err
        assert job.outputs() == [*ok(prompts[:2]), None, f"ok:{prompts[3]}"]
        assert [server.asked(prompt) for prompt in prompts] == [2, 2, 1, 1]
        (failure,) = job.failures()
        assert failure["error"]["class"] == "invalid_request"
        assert failure["error"]["message"] == "bad image"
        assert ended.summary["requests"]["rate_limited"] == 1


def test_blank_lines_before_an_answer_are_allowed_and_nothing_but_them_is_tried_again(
    tmp_path: Path,
) -> None:
    reply = json.dumps(answer("late").body).encode()
    kept_alive = _chunked([*[(0.05, b"\n")] * 10, (0.0, reply)])
    only_blank = _chunked([(0.02, b"\n")] * 5)
    steps = {"p r001": kept_alive, "p r002": only_blank, "p r003": Step(body=b"")}
    with FakeServer(_first(steps)) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)

        ended = job.run()

        assert ended.code == 0, ended.err
        assert job.outputs() == ["late", *ok(prompts[1:])]
        assert [server.asked(prompt) for prompt in prompts] == [1, 2, 2]


def test_a_body_that_stays_empty_is_called_so(tmp_path: Path) -> None:
    with FakeServer(lambda *_: Step(body=b"")) as server:
        job = Job(tmp_path, server)
        job.plain(1)

        assert job.run().code == 3
        (failure,) = job.failures()
        assert failure["error"]["class"] == "bad_response"
        assert failure["error"]["message"] == "empty body"
        assert failure["attempts"] == server.asked("p r001") == 3


def test_a_body_that_is_shorter_than_announced_is_tried_again(tmp_path: Path) -> None:
    cut = b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"choices":[{"message":{"content":"x"}}]}'
    with FakeServer(_first({"p r001": Step(raw=[(0.0, cut)])})) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(2)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert ended.summary["requests"]["ambiguous"] == 1


def test_a_page_of_a_gateway_is_tried_again_and_never_stored(tmp_path: Path) -> None:
    page = Step(status=200, body=b"<html>busy</html>", headers={"content-type": "text/html"})
    with FakeServer(_first({"p r001": page})) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(2)

        assert job.run().code == 0
        assert job.outputs() == ok(prompts)


# ── answers that cannot be used ──────────────────────────────────────────────────────────────


def test_an_answer_cut_at_the_token_limit_fails_at_once_and_its_tokens_count(
    tmp_path: Path,
) -> None:
    always = {
        "p r001": answer('{"label": "po', finish="length"),
        "p r002": answer('{"label":"x"}', finish="length"),
    }
    with FakeServer(_first({}, always=always)) as server:
        job = Job(tmp_path, server, **{'prices."m".input': 1.0, 'prices."m".output': 1.0})
        prompts = job.plain(3)

        ended = job.run("--json")

        assert ended.code == 3, ended.err
        assert job.outputs() == [None, None, f"ok:{prompts[2]}"]
        assert job.error_classes() == ["truncated", "truncated", None]
        assert [server.asked(prompt) for prompt in prompts] == [1, 1, 1]
        summary = ended.summary
        assert summary["tokens"]["wasted"] == 24
        assert summary["cost_usd"] == pytest.approx(3 * 12 / 1e6)
        assert job.stats()["cost_usd"] == pytest.approx(3 * 12 / 1e6)


def test_a_filtered_answer_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    always = {"p r001": answer("partly", finish="content_filter")}
    with FakeServer(_first({}, always=always)) as server:
        job = Job(tmp_path, server)
        job.plain(2)

        assert job.run().code == 3
        assert job.error_classes() == ["refused", None]
        assert server.asked("p r001") == 1


# ── tokens and money ─────────────────────────────────────────────────────────────────────────


def test_cached_tokens_are_billed_once_and_at_their_own_price(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306}
    more_than_all = {"cached_tokens": 5000}
    usages = {
        "p r001": usage | {"prompt_tokens_details": {"cached_tokens": 1920}},
        "p r002": usage,
        "p r003": usage | {"prompt_tokens_details": None},
        "p r004": usage | {"prompt_tokens_details": more_than_all},
    }
    prices = {"input": 10, "cached": 1, "output": 20}
    with FakeServer(lambda prompt, _: answer("x", usage=usages[prompt])) as server:
        job = Job(tmp_path, server, **{f'prices."m".{k}': v for k, v in prices.items()})
        job.plain(4)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        costs = {line["id"]: line["cost_usd"] for line in job.successes()}
        full = (2006 * 10 + 300 * 20) / 1e6
        assert costs["r001"] == pytest.approx((86 * 10 + 1920 * 1 + 300 * 20) / 1e6)
        assert costs["r001"] == pytest.approx(0.00878)
        assert costs["r002"] == costs["r003"] == pytest.approx(full)
        assert costs["r004"] == pytest.approx((2006 * 1 + 300 * 20) / 1e6)
        tokens = ended.summary["tokens"]
        assert (tokens["input"], tokens["output"]) == (4 * 2006, 4 * 300)
        assert tokens["cached"] == 1920 + 2006
        assert ended.summary["cost_usd"] == pytest.approx(sum(costs.values()))
        assert job.stats()["cost_usd"] == ended.summary["cost_usd"]


def test_an_odd_count_of_tokens_never_loses_an_answer(tmp_path: Path) -> None:
    usages: dict[str, object] = {
        "p r001": ABSENT,
        "p r002": None,
        "p r003": {"prompt_tokens": None, "completion_tokens": 2},
        "p r004": {"prompt_tokens": "10", "completion_tokens": "2", "total_tokens": "12"},
        "p r005": USAGE,
    }
    script: Script = lambda prompt, _: answer(f"ok:{prompt}", usage=usages[prompt])  # noqa: E731
    with FakeServer(script) as server:
        job = Job(tmp_path, server, limits__tpm=1_000_000, **{'prices."m".input': 1.0})
        prompts = job.plain(5)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert set(server.billed().values()) == {1}
        summary = ended.summary
        assert summary["unknown_usage"] == 2
        assert summary["cost_usd"] is None
        assert summary["unpriced_models"] == ["m"] or summary["unpriced_models"] == []
        assert summary["tokens"]["input"] == 20
        assert summary["tokens"]["output"] == 6


def test_without_a_price_the_cost_is_unknown_and_the_model_is_named(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(2)

        summary = job.run("--json").summary

        assert summary["cost_usd"] is None
        assert summary["unpriced_models"] == ["m"]


def test_a_spent_budget_stops_the_run_and_a_higher_one_continues_it(tmp_path: Path) -> None:
    with FakeServer() as server:
        limits = {'prices."m".input': 100_000.0, "limits.concurrency": 1}
        job = Job(tmp_path, server, **limits)
        prompts = job.plain(6)

        stopped = job.run("--max-cost", "2.5")
        assert stopped.code == 75, stopped.err
        assert "budget" in stopped.err
        assert len(server.log) == 3

        again = job.run("--max-cost", "2.5")
        assert again.code == 75
        assert len(server.log) == 3

        ended = job.run("--max-cost", "50")
        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert len(server.log) == 6


def test_only_what_a_row_can_be_blamed_for_uses_its_attempts(tmp_path: Path) -> None:
    def script(prompt: str, attempt: int) -> Step | None:
        if attempt <= 4:
            return refuse(429, {"message": "slow down"}, retry_after="0.05")
        return None

    with FakeServer(script) as server:
        job = Job(tmp_path, server, retry__attempts=1)
        prompts = job.plain(2)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert ended.summary["requests"]["rate_limited"] == 8
        assert all(line["attempts"] == 1 for line in job.successes())
