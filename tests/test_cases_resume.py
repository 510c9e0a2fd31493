"""Stopping and going on: kills, torn tails, Ctrl-C, which rows are sent again; real processes."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from cli import Job, lines_of, ok, wait_for_lines
from fakeserver import FakeServer, Script, Step, answer, refuse


def _hold_after(server: FakeServer, answers: int) -> None:
    """Answer so many requests and hold all others."""

    def script(prompt: str, attempt: int) -> Step | None:
        return Step(hold=True) if len(server.log) > answers else None

    server.script = script


def _slow(seconds: float) -> Script:
    """Answer everything after so long."""
    return lambda prompt, _: answer(f"ok:{prompt}", delay=seconds)


def _killed_after(job: Job, server: FakeServer, answers: int) -> None:
    _hold_after(server, answers)
    running = job.start_run()
    wait_for_lines(job.file("success.jsonl"), answers)
    running.kill()
    server.script = None


# ── torn tails ───────────────────────────────────────────────────────────────────────────────


def _cut_and_resume(job: Job, server: FakeServer, folder: Path, cut: int) -> None:
    """Cut bytes off a copy of a killed job's sidecar, resume, and look at what was asked."""
    folder.mkdir()
    copy = Job(folder, server, limits__concurrency=1)
    for name in job.files():
        shutil.copy(job.folder / name, folder / name)
    copy.write_config()
    sidecar = copy.file("success.jsonl")
    whole = sidecar.read_bytes()
    sidecar.write_bytes(whole[: len(whole) - cut])
    before = len(server.log)

    ended = copy.resume()

    assert ended.code == 0, (cut, ended.err)
    # Without its newline alone, the last record is whole and is kept.
    again = 0 if cut <= 1 else 1
    assert len(server.log) - before == 4 + again, cut
    assert (f"({_torn(whole, cut)} bytes) was removed" in ended.err) == (again == 1), cut
    assert len(lines_of(sidecar)) == 10, cut
    assert len(copy.results()) == 10, cut


def _torn(whole: bytes, cut: int) -> int:
    last = len(whole) - whole.rindex(b"\n", 0, len(whole) - 1) - 1
    return last - cut


def _job_killed_at_six(folder: Path, server: FakeServer) -> tuple[Job, int]:
    folder.mkdir()
    job = Job(folder, server, limits__concurrency=1)
    job.data("multibyte")
    _killed_after(job, server, 6)
    whole = job.file("success.jsonl").read_bytes()
    assert whole.count(b"\n") == 6
    return job, len(whole) - whole.rindex(b"\n", 0, len(whole) - 1) - 1


def test_a_record_torn_at_some_byte_is_removed_before_the_next_is_written(tmp_path: Path) -> None:
    with FakeServer() as server:
        job, last = _job_killed_at_six(tmp_path / "killed", server)
        text = job.file("success.jsonl").read_bytes()[-last:]
        inside_character = last - text.index("漢".encode()) - 2
        for cut in (1, 2, inside_character, last - 1):
            _cut_and_resume(job, server, tmp_path / f"cut{cut}", cut)


@pytest.mark.slow
def test_a_record_torn_at_any_byte_is_removed_before_the_next_is_written(tmp_path: Path) -> None:
    with FakeServer() as server:
        job, last = _job_killed_at_six(tmp_path / "killed", server)
        for cut in range(1, last):
            _cut_and_resume(job, server, tmp_path / f"cut{cut}", cut)


def test_a_second_kill_after_a_torn_record_loses_nothing_either(tmp_path: Path) -> None:
    with FakeServer() as server:
        job, last = _job_killed_at_six(tmp_path / "killed", server)
        sidecar = job.file("success.jsonl")
        sidecar.write_bytes(sidecar.read_bytes()[: -last // 2])
        kept = sidecar.read_bytes().count(b"\n")
        _hold_after(server, len(server.log) + 2)
        running = job.start("resume", str(job.input))
        wait_for_lines(sidecar, kept + 2)
        running.kill()
        before = len(server.log)
        server.script = None

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert len(server.log) - before == 10 - kept - 2
        assert "killed" in ended.err
        assert job.verify().startswith("10 rows = 10 succeeded")


def test_damage_before_the_last_record_is_refused_until_repair(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(6)
        assert job.run().code == 0
        sidecar = job.file("success.jsonl")
        lines = sidecar.read_bytes().split(b"\n")
        lines[2] = lines[2].replace(b"ok:p", b"xx:p")
        damaged = b"\n".join(lines)
        sidecar.write_bytes(damaged)
        before = len(server.log)

        refused = job.run()
        assert refused.code == 65
        assert "--repair" in refused.err
        assert sidecar.read_bytes() == damaged
        assert job.command("verify", str(job.input)).code == 65
        assert len(server.log) == before

        repaired = job.run("--repair")
        assert repaired.code == 0, repaired.err
        assert "1 rows will be sent" in repaired.err
        assert len(server.log) - before == 1
        assert job.outputs() == ok(prompts)
        assert job.file("success.jsonl.bad").read_bytes() == lines[2] + b"\n"


# ── which rows are sent again ────────────────────────────────────────────────────────────────


def test_failed_and_unfinished_rows_are_asked_again_after_a_kill_and_no_others(
    tmp_path: Path,
) -> None:
    failing = {f"p r{n:03}" for n in range(5, 10)}
    flying = {f"p r{n:03}" for n in range(15, 19)}

    def script(prompt: str, attempt: int) -> Step | None:
        if prompt in failing:
            return refuse(500, {"message": "broken"})
        return Step(hold=True) if prompt in flying else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server, retry__attempts=2)
        prompts = job.plain(20)
        # Slots free up only for those not yet in flight, which must all be held in the end.
        running = job.start_run("--set", "limits.concurrency=6")
        server.wait_for(lambda: {p for p in flying if server.asked(p)} == flying)
        wait_for_lines(job.file("failure.jsonl"), 5)
        wait_for_lines(job.file("success.jsonl"), 11)
        running.kill()
        before = len(server.log)
        server.script = None

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert sorted(server.prompts(before)) == sorted(failing | flying)
        assert job.outputs() == ok(prompts)
        stats = job.stats()
        assert stats["rows"] == {
            "total": 20,
            "succeeded": 20,
            "failed": 0,
            "pending": 0,
            "invalid": 0,
        }
        assert stats["tokens"]["input"] == 20 * 10
        assert stats["tokens"]["output"] == 20 * 2
        assert stats["possibly_rebilled"] >= len(flying)


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_plain_second_go_sends_transient_failures_only(tmp_path: Path, command: str) -> None:
    errors = {
        "p r001": refuse(500, {"message": "broken"}),
        "p r002": refuse(400, {"message": "not like this"}),
        "p r003": Step(body=b"<html>nginx</html>"),
        "p r004": Step(body={"choices": [{"message": {"refusal": "I will not"}}]}),
        "p r005": Step(reset=True),
        "p r006": Step(delay=5.0),
    }

    def script(prompt: str, attempt: int) -> Step | None:
        return errors.get(prompt)

    with FakeServer(script) as server:
        job = Job(tmp_path, server, retry__attempts=2, timeouts__total=0.4, limits__concurrency=8)
        prompts = job.plain(7)
        first = job.run()
        assert first.code == 3, first.err
        assert job.error_classes() == [
            "server_error",
            "invalid_request",
            "bad_response",
            "refused",
            "connection",
            "timeout",
            None,
        ]
        before = len(server.log)
        server.script = None

        ended = job.run() if command == "run" else job.resume()

        assert ended.code == 3, ended.err
        healed = ["p r001", "p r003", "p r005", "p r006"]
        assert sorted(server.prompts(before)) == healed
        assert job.error_classes() == [None, "invalid_request", None, "refused", None, None, None]

        before = len(server.log)
        chosen = job.run("--retry-failed=invalid_request")
        assert chosen.code == 3, chosen.err
        assert server.prompts(before) == ["p r002"]

        before = len(server.log)
        everything = job.resume("--retry-failed")
        assert everything.code == 0, everything.err
        assert server.prompts(before) == ["p r004"]
        assert job.outputs() == ok(prompts)
        assert job.verify().startswith("7 rows = 7 succeeded")


def test_an_unknown_class_to_retry_is_a_usage_error_that_lists_them(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(1)

        ended = job.run("--retry-failed=weather")

        assert ended.code == 2
        assert "weather" in ended.err
        assert "server_error" in ended.err


def test_a_job_that_is_done_sends_nothing_and_ends_with_0(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(5)
        assert job.run().code == 0
        success = job.file("success.jsonl").read_bytes()
        before = len(server.log)

        for ended in (job.run("--json"), job.resume("--json")):
            assert ended.code == 0, ended.err
            assert ended.summary["rows"]["succeeded"] == 5

        assert len(server.log) == before
        assert job.file("success.jsonl").read_bytes() == success
        assert job.outputs() == ok(prompts)


def test_another_configuration_is_refused_by_name_before_a_request_or_a_change(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(3)
        assert job.run().code == 0
        before, log = job.files(), len(server.log)

        for change in ("endpoint.model=other", "request.params.temperature=0.5"):
            ended = job.run("--set", change)
            assert ended.code == 78
            assert change.partition("=")[0] in ended.err
            assert "--fresh" in ended.err

        assert len(server.log) == log
        assert job.files() == before


def test_a_configuration_that_brought_no_record_may_still_be_mended(tmp_path: Path) -> None:
    with FakeServer(lambda *_: refuse(404, {"code": "model_not_found"})) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)
        assert job.run("--set", "endpoint.model=typo").code == 78
        server.script = None

        ended = job.run()

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)


def test_another_pace_is_no_other_job(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(3)
        assert job.run().code == 0
        before = len(server.log)

        ended = job.run("--concurrency", "2", "--rpm", "60000", "--set", "timeouts.total=3")

        assert ended.code == 0, ended.err
        assert len(server.log) == before


def test_fresh_starts_over_and_keeps_the_old_files(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)
        assert job.run().code == 0
        old = job.file("success.jsonl").read_bytes()

        ended = job.run("--fresh", "--set", "endpoint.model=other", "--json")

        assert ended.code == 0, ended.err
        assert len(server.log) == 6
        assert ended.summary["requests"]["sent"] == 3
        assert job.outputs() == ok(prompts)
        kept = [content for name, content in job.files().items() if "success.jsonl.old" in name]
        assert kept == [old]


# ── resume without a name ────────────────────────────────────────────────────────────────────


def test_resume_without_a_name_takes_the_one_unfinished_job(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(4)
        _killed_after(job, server, 2)

        ended = job.command("resume")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)


def test_resume_without_a_name_and_without_a_job_says_so(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)

        ended = job.command("resume")

        assert ended.code == 64
        assert "no unfinished run" in ended.err


def test_resume_without_a_name_lists_several_jobs_and_can_take_them_all(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        for name in ("one", "two"):
            job.input = tmp_path / f"{name}.jsonl"
            job.prefix = str(tmp_path / name)
            job.plain(3)
            _killed_after(job, server, 1)
            server.log.clear()

        listed = job.command("resume")
        assert listed.code == 64
        assert "one.jsonl" in listed.err
        assert "two.jsonl" in listed.err
        assert server.log == []

        ended = job.command("resume", "--all")
        assert ended.code == 0, ended.err
        for name in ("one", "two"):
            job.prefix = str(tmp_path / name)
            assert len(job.results()) == 3


def test_ctrl_c_while_a_pipe_has_no_writer_ends_by_that_signal(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        output = str(tmp_path / "out")
        arguments = ("run", str(fifo), "--config", str(job.config), "--output", output)
        running = job.start(*arguments)
        with pytest.raises(AssertionError):
            server.wait_for(lambda: False, 1.5)

        ended = running.interrupt()

        assert ended.code == -signal.SIGINT
        assert "Traceback" not in ended.err


# ── signals ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_what_is_in_flight_and_ends_by_that_signal(
    tmp_path: Path, signum: signal.Signals
) -> None:
    with FakeServer(_slow(0.2)) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(100)
        running = job.start_run()
        server.wait_for_answers(12)
        running.signal(signum)
        ended = running.wait(10)

        assert ended.code == -signum
        assert "Traceback" not in ended.err
        assert "interrupted" in ended.err
        answered = server.billed()
        assert {line["output"] for line in job.successes()} == set(ok(list(answered)))
        assert len(answered) < 30
        assert job.stats()["ended"] == "interrupted"
        assert job.stats()["rows"]["pending"] == 100 - len(answered)

        server.script = None
        assert job.resume().code == 0
        assert job.outputs() == ok(prompts)
        assert set(server.billed().values()) == {1}


def test_a_second_signal_drops_what_is_in_flight(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(12)
        _hold_after(server, 4)
        running = job.start_run()
        server.wait_for(lambda: len(server.log) == 8)
        running.signal(signal.SIGINT)
        with pytest.raises(AssertionError):
            server.wait_for(lambda: False, 0.5)
        assert running.process.poll() is None, "the first signal waits for those in flight"
        ended = running.interrupt()

        assert ended.code == -signal.SIGINT
        assert "Traceback" not in ended.err
        assert len(job.successes()) == 4
        assert job.stats()["possibly_rebilled"] == 4

        server.script = None
        assert job.resume().code == 0
        assert job.outputs() == ok(prompts)
        assert len(server.log) == 8 + 8


def test_a_drain_ends_when_its_grace_is_over(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(8)
        _hold_after(server, 0)
        running = job.start_run("--grace", "0.3")
        server.wait_for(lambda: len(server.log) == 4)

        ended = running.interrupt()

        assert ended.code == -signal.SIGINT
        assert job.stats()["rows"]["pending"] == 8


def test_a_kill_loses_at_most_what_was_in_flight_or_not_yet_synced(tmp_path: Path) -> None:
    with FakeServer(_slow(0.1)) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(60)
        running = job.start_run()
        server.wait_for_answers(20)
        running.kill()
        assert job.stats()["ended"] == "killed"
        server.script = None

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert "at most 68 rows" in ended.err
        assert job.outputs() == ok(prompts)
        twice = [prompt for prompt, times in server.billed().items() if times > 1]
        assert len(twice) <= 8
        assert max(server.billed().values()) <= 2


def test_an_interrupted_run_leaves_older_results_as_they_were(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(3)
        assert job.run().code == 0
        old = job.file("results.jsonl").read_bytes()
        job.plain(9)
        _hold_after(server, len(server.log) + 1)
        running = job.start_run("--grace", "0")
        wait_for_lines(job.file("success.jsonl"), 4)

        assert running.interrupt().code == -signal.SIGINT
        assert job.file("results.jsonl").read_bytes() == old
