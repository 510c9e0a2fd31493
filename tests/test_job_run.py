import asyncio
import contextlib
import gzip
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from fakes import Answered, Post, broken, error, ok
from jobbench import CONFIG, MAX_LINE, Bench, echo, failing, said_by
from msgspec import structs

from batchinfer.config.schema import Budget, Config, Limits, RequestTemplate
from batchinfer.errors import (
    BudgetError,
    ConfigError,
    DamagedJournalError,
    Exit,
    FingerprintError,
    InterruptedRunError,
    KeyRefusedError,
    NoInputError,
    QuotaError,
    UnreachableError,
    UsageError,
)
from batchinfer.job import finish
from batchinfer.job import run as running
from batchinfer.job.endpoint import Way
from batchinfer.job.finish import exit_code, prove
from batchinfer.job.run import BROKEN, FINISHED, MERGING
from batchinfer.job.target import target_of
from batchinfer.model import FaultKind


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


# ── a run that goes through ──────────────────────────────────────────────────────────────────


def test_a_run_answers_every_row_and_merges_in_the_order_of_the_input(bench: Bench) -> None:
    bench.script = echo

    summary = bench.whole()

    assert [(r["id"], r["output"]) for r in bench.results] == [
        (f"r{n}", f"answer to p{n}") for n in range(5)
    ]
    assert (summary.rows.total, summary.rows.succeeded, summary.rows.pending) == (5, 5, 0)
    assert summary.cost_usd == pytest.approx(15.0)
    assert bench.manifest.ended == FINISHED
    assert exit_code(summary, None) is Exit.OK
    assert bench.said == []
    assert prove(bench.target, MAX_LINE).problems == []


def test_a_run_calls_itself_finished_only_when_the_results_are_there(bench: Bench) -> None:
    ended = bench.run()
    assert bench.manifest.ended == MERGING

    finish.finish(bench.target, ended, MAX_LINE)
    assert bench.manifest.ended == FINISHED


def test_failed_rows_are_in_the_results_and_in_the_exit_code(bench: Bench) -> None:
    bench.script = failing({"p1", "p3"}, error(400))

    summary = bench.whole()

    assert exit_code(summary, None) is Exit.SOME_FAILED
    assert (summary.rows.succeeded, summary.rows.failed) == (3, 2)
    assert summary.failures == {"invalid_request": 2}
    assert [r["id"] for r in bench.results if r["error"]] == ["r1", "r3"]


def test_the_view_is_shown_from_beginning_to_end(bench: Bench) -> None:
    bench.run()

    assert bench.view.calls[0] == "start"
    assert bench.view.calls[-2:] == ["tick", "stop"]
    assert bench.view.gauges is not None


def test_a_second_run_sends_nothing_and_leaves_the_results_alone(bench: Bench) -> None:
    bench.whole()
    written = bench.target.paths.results.stat().st_mtime_ns

    ended = bench.run()
    summary = finish.finish(bench.target, ended, MAX_LINE)

    assert ended.repeated
    assert len(bench.posts) == 5
    assert summary.rows.succeeded == 5
    assert bench.target.paths.results.stat().st_mtime_ns == written
    assert bench.manifest.ended == FINISHED


def test_results_that_are_gone_are_written_again(bench: Bench) -> None:
    bench.whole()
    bench.target.paths.results.unlink()

    bench.whole()

    assert len(bench.results) == 5


def test_only_rows_that_are_new_or_edited_are_sent(bench: Bench) -> None:
    bench.script = echo
    bench.whole()
    lines = bench.input.read_text().splitlines()
    edited = [lines[4], '{"id":"new","prompt":"n"}', lines[0], lines[2].replace("p2", "P2")]
    bench.input.write_text("\n".join(edited))

    summary = bench.whole()

    assert sorted(said_by(post) for post in bench.posts[5:]) == ["P2", "n"]
    assert [r["output"] for r in bench.results] == [
        f"answer to {p}" for p in ("p4", "n", "p0", "P2")
    ]
    assert summary.rows.total == 4
    assert bench.said == [
        (
            "3 answers of earlier runs belong to rows that the input no longer has;"
            " they are kept and left out of the results"
        )
    ]


def test_an_id_on_several_rows_is_told(bench: Bench) -> None:
    bench.input.write_text('{"id":"a","prompt":"x"}\n{"id":"a","prompt":"y"}\n')

    bench.whole()

    [sentence] = bench.said
    assert sentence.startswith("the id 'a' stands on several rows")


def test_blank_lines_are_no_rows_and_bad_ones_fail(bench: Bench) -> None:
    bench.input.write_text('\n  \n{"prompt":"x"}\nrubbish\n')

    summary = bench.whole()

    assert (summary.rows.total, summary.rows.succeeded, summary.rows.invalid) == (2, 1, 1)


def test_failures_that_time_may_cure_are_sent_again_and_the_others_on_request(
    bench: Bench,
) -> None:
    bench.script = lambda p: {"p1": error(500), "p2": error(400)}.get(said_by(p), ok())
    bench.whole()
    bench.script = [ok()]
    sent = len(bench.posts)

    bench.whole()
    assert [said_by(post) for post in bench.posts[sent:]] == ["p1"]

    summary = bench.whole(retry=["invalid_request"])
    assert [said_by(post) for post in bench.posts[sent + 1 :]] == ["p2"]
    assert (summary.rows.succeeded, summary.rows.failed) == (5, 0)


def test_a_class_that_does_not_exist_is_a_usage_error_before_anything_is_made(
    bench: Bench,
) -> None:
    with pytest.raises(UsageError):
        bench.run(retry=["sunspots"])

    assert [path.name for path in bench.folder.iterdir()] == ["in.jsonl"]


def test_a_wrong_template_is_told_before_anything_is_made(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="template"):
        bench.run(structs.replace(CONFIG, request=RequestTemplate(prompt="{{")))

    assert [path.name for path in bench.folder.iterdir()] == ["in.jsonl"]


def test_a_fresh_run_pays_for_everything_again(bench: Bench) -> None:
    bench.whole()

    bench.whole(fresh=True)

    assert len(bench.posts) == 10
    assert len(list(bench.folder.glob("*.old-*"))) >= 2


def test_another_configuration_sends_nothing(bench: Bench) -> None:
    bench.whole()

    with pytest.raises(FingerprintError):
        bench.run(structs.replace(CONFIG, request=RequestTemplate(system="Be brief.")))

    assert len(bench.posts) == 5
    assert bench.manifest.ended == FINISHED


def test_a_pipe_is_kept_for_the_merge(bench: Bench) -> None:
    pipe = bench.folder / "pipe"
    os.mkfifo(pipe)
    target = target_of(str(pipe), str(bench.folder / "out"))
    content = bench.input.read_bytes()
    if os.fork() == 0:
        pipe.write_bytes(content)
        os._exit(0)

    ended = bench.run(target=target)
    finish.finish(target, ended, MAX_LINE)
    os.wait()

    assert Path(target.again).read_bytes() == content
    assert len(target.paths.results.read_bytes().splitlines()) == 5


# ── a run that stops early ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "kind", "code"),
    [
        (error(401), KeyRefusedError, Exit.KEY_REFUSED),
        (error(402), QuotaError, Exit.INCOMPLETE),
        (broken(FaultKind.CONNECT), UnreachableError, Exit.UNREACHABLE),
    ],
)
def test_what_no_row_can_survive_stops_the_run_and_fails_nobody(
    bench: Bench, reply: Answered, kind: type[Exception], code: Exit
) -> None:
    bench.script = [reply]

    ended = bench.run()
    summary = finish.finish(bench.target, ended, MAX_LINE)

    assert isinstance(ended.reason, kind)
    assert exit_code(summary, ended.reason) is code
    assert (summary.rows.total, summary.rows.failed, summary.rows.pending) == (5, 0, 5)
    assert bench.manifest.ended == "partial"
    assert bench.manifest.reason == str(ended.reason)
    assert not bench.target.paths.results.exists()


def test_a_budget_holds_over_all_runs_of_a_job(bench: Bench) -> None:
    config = structs.replace(CONFIG, budget=Budget(max_cost=7.0), limits=Limits(concurrency=1))

    first, second = bench.run(config), bench.run(config)

    assert isinstance(first.reason, BudgetError)
    assert isinstance(second.reason, BudgetError)
    assert len(bench.posts) == 3


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_what_is_under_way_end(bench: Bench, signum: signal.Signals) -> None:
    bench.plain(100)

    async def slowly(post: Post) -> Answered:
        if said_by(post) == "p2":
            os.kill(os.getpid(), signum)
        await asyncio.sleep(0.05)
        return ok()

    bench.script = slowly

    ended = bench.run()
    summary = finish.finish(bench.target, ended, MAX_LINE)

    assert isinstance(ended.reason, InterruptedRunError)
    assert ended.reason.signum == signum
    assert bench.manifest.ended == "interrupted"
    assert bench.manifest.possibly_rebilled == 0
    assert summary.rows.succeeded == len(bench.posts) < 10
    assert signal.getsignal(signum) is not None


def test_a_second_signal_drops_what_is_under_way_and_counts_it(bench: Bench) -> None:
    async def slowly(post: Post) -> Answered:
        if said_by(post) == "p3":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(1000)
        return ok()

    bench.script = slowly

    ended = bench.run()

    assert isinstance(ended.reason, InterruptedRunError)
    assert bench.manifest.possibly_rebilled == 4


def test_a_stopped_run_leaves_older_results_and_says_what_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.whole()
    old = bench.target.paths.results.read_bytes()
    bench.plain(40)
    bench.script = [error(401)]
    monkeypatch.setattr(finish, "LIGHT", 0)

    summary = finish.finish(bench.target, bench.run(), MAX_LINE)

    assert bench.target.paths.results.read_bytes() == old
    assert (summary.rows.succeeded, summary.rows.total) == (5, None)


def test_a_bug_leaves_a_job_that_is_not_finished(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OopsError(Exception):
        pass

    bench.script = [ok(), OopsError()]

    with pytest.raises(OopsError):
        bench.run()

    assert bench.manifest.ended == BROKEN


def test_damage_is_not_taken_for_a_crash_by_the_next_run(bench: Bench) -> None:
    bench.whole()
    lines = bench.target.paths.success.read_bytes().splitlines(keepends=True)
    bench.target.paths.success.write_bytes(lines[0] + b"rubbish\n" + lines[2])

    with pytest.raises(DamagedJournalError):
        bench.run()

    assert bench.manifest.ended == "partial"
    bench.whole(repair=True)
    assert not any("killed" in sentence for sentence in bench.said)
    assert len(bench.results) == 5


def test_a_way_that_cannot_be_opened_is_told_and_the_job_is_not_finished(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.asynccontextmanager
    async def closed(config: Config, env: Mapping[str, str]) -> AsyncIterator[Way]:
        raise ConfigError("no key")
        yield

    monkeypatch.setattr(running, "open_way", closed)

    with pytest.raises(ConfigError, match="no key"):
        bench.run()

    assert (bench.manifest.ended, bench.manifest.reason) == ("partial", "no key")


def test_a_missing_input_is_told_and_nothing_is_made(bench: Bench) -> None:
    bench.input.unlink()

    with pytest.raises(NoInputError):
        bench.run()

    assert list(bench.folder.iterdir()) == []


# ── warnings ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "concurrency", "warned"),
    [("httpx 0.28", 101, True), ("httpx 0.28", 100, False), ("pyreqwest 0.15", 101, False)],
)
def test_a_slow_transport_under_many_workers_says_so_once(
    bench: Bench, name: str, concurrency: int, warned: bool
) -> None:
    bench.name = name

    bench.run(structs.replace(CONFIG, limits=Limits(concurrency=concurrency)))

    assert [f"{concurrency} in flight" in sentence for sentence in bench.said] == [True] * warned


def test_too_few_open_files_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "raise_file_limit", lambda wanted: f"only {wanted - 1} files")

    bench.run()

    assert bench.said == [f"only {4 + 63} files"]


# ── what the view is told ────────────────────────────────────────────────────────────────────


def test_the_number_of_rows_is_guessed_until_it_is_known(bench: Bench) -> None:
    bench.input.write_text("".join(f'{{"prompt":"{n:05}"}}\n' for n in range(300)))
    guesses: list[int | None] = []

    def answer(_: Post) -> Answered:
        assert bench.view.gauges is not None
        guesses.append(bench.view.gauges.total())
        return ok()

    bench.script = answer
    bench.run()

    assert guesses[0] == 300


def test_of_a_compressed_input_nothing_is_guessed(bench: Bench) -> None:
    bench.input.write_bytes(gzip.compress(bench.input.read_bytes()))
    guesses: list[int | None] = []

    def answer(_: Post) -> Answered:
        assert bench.view.gauges is not None
        guesses.append(bench.view.gauges.total())
        return ok()

    bench.script = answer
    bench.run()

    assert guesses == [None] * 5
