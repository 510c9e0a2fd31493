"""The corners of daily use: closed streams, odd names, odd places, stops while waiting."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from cli import Job, ok, wait_for_lines
from fakeserver import FakeServer, Step, answer, refuse


@pytest.mark.parametrize(
    ("closed", "flag"),
    [
        ("exec 2>&-", "--json"),
        ("exec >&-", "--json"),
        ("exec <&-", "--grace=1"),
        ("exec <&- >&- 2>&-", "--grace=1"),
    ],
)
def test_a_closed_standard_stream_changes_nothing(tmp_path: Path, closed: str, flag: str) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)

        ended = job.start_run(flag, before=closed).wait()

        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err
        assert job.outputs() == ok(prompts)
        assert job.verify().startswith("3 rows")


@pytest.mark.parametrize("command", ["run", "stats", "merge"])
def test_names_and_answers_beyond_ascii_need_no_locale(tmp_path: Path, command: str) -> None:
    with FakeServer() as server:
        folder = tmp_path / "données 数据"
        folder.mkdir()
        job = Job(folder, server)
        job.input = folder / "entrée.jsonl"
        job.prefix = str(folder / "entrée")
        job.rows([{"id": "é", "prompt": "漢字"}])
        job.env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
        assert job.run().code == 0
        assert job.outputs() == ["ok:漢字"]

        more = {"run": ("--config", str(job.config), "--json"), "stats": ("--json",)}
        ended = job.command(command, str(job.input), *more.get(command, ("--to", "-")))

        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err
        assert command == "merge" or ended.summary["input"] == str(job.input)


def test_a_name_that_is_no_text_is_refused_as_one(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.input = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
        job.plain(1)

        ended = job.run()

        assert ended.code == 2, ended.err
        assert "Traceback" not in ended.err
        assert server.log == []


@pytest.mark.parametrize("name", ["out.results.jsonl", "out.success.jsonl", "out.run.json"])
def test_an_output_never_takes_the_place_of_the_input(tmp_path: Path, name: str) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.input = tmp_path / name
        job.plain(2)
        before = job.input.read_bytes()

        ended = job.run("--output", str(tmp_path / "out"))

        assert ended.code == 2, ended.err
        assert name in ended.err
        assert job.input.read_bytes() == before
        assert server.log == []


@pytest.mark.parametrize("name", ["jsonl", "success.jsonl", "failure.jsonl", "run.json"])
def test_a_merge_never_replaces_what_cannot_be_made_again(tmp_path: Path, name: str) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(2)
        assert job.run().code == 0
        before = job.files()

        ended = job.command("merge", str(job.input), "--to", f"input.{name}")

        assert ended.code == 2, ended.err
        assert f"input.{name}" in ended.err
        assert job.files() == before


def test_a_resume_finds_secrets_again_by_the_names_of_their_variables(tmp_path: Path) -> None:
    with FakeServer() as server:
        url = f"{server.url}?key=${{env:URL_KEY}}"
        job = Job(tmp_path, url, **{"endpoint.headers.x-api-key": "${env:HEADER_KEY}"})
        job.env = {"URL_KEY": "in-the-url", "HEADER_KEY": "in-a-header"}
        job.plain(2)
        assert job.run().code == 0
        job.plain(3)

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert len(server.log) == 3
        assert {seen.path for seen in server.log} == {"/v1/chat/completions?key=in-the-url"}
        assert {seen.headers["x-api-key"] for seen in server.log} == {"in-a-header"}


def test_a_resume_asks_for_a_secret_that_was_not_kept_before_it_sends(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, **{"endpoint.headers.x-api-key": "literally"})
        job.plain(2)
        assert job.run().code == 0
        prompts = job.plain(3)

        refused = job.resume()
        assert refused.code == 78
        assert "endpoint.headers" in refused.err
        assert len(server.log) == 2

        assert job.resume("--config", str(job.config)).code == 0
        assert job.outputs() == ok(prompts)
        assert len(server.log) == 3


@pytest.mark.parametrize(
    "step",
    [
        refuse(429, {"message": "later"}, retry_after="600"),
        refuse(503, {"message": "later"}, retry_after="600"),
        refuse(500, {"message": "broken"}),
    ],
    ids=["a limit", "an overload", "a back-off"],
)
def test_a_stop_does_not_wait_for_what_only_waits(tmp_path: Path, step: Step) -> None:
    with FakeServer(lambda *_: step) as server:
        job = Job(tmp_path, server)
        job.settings |= {"retry.base": 500.0, "retry.cap": 600.0}
        job.write_config()
        job.plain(3)
        running = job.start_run()
        server.wait_for(lambda: len(server.log) >= 1 and server.in_flight == 0)
        time.sleep(0.3)
        began = time.monotonic()

        ended = running.interrupt()

        assert time.monotonic() - began < 5
        assert ended.code == -signal.SIGINT
        assert job.stats()["rows"]["pending"] == 3
        assert job.failures() == []


def test_an_interrupted_run_still_prints_its_summary_for_programs(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.script = lambda prompt, _: answer(f"ok:{prompt}", hold=len(server.log) > 2)
        job = Job(tmp_path, server)
        job.plain(8)
        running = job.start_run("--json", "--grace", "0")
        wait_for_lines(job.file("success.jsonl"), 2)

        ended = running.interrupt()

        assert ended.code == -signal.SIGINT
        assert ended.summary["ended"] == "interrupted"
        assert ended.summary["rows"]["succeeded"] == 2
        assert ended.summary["rows"]["pending"] == 6


def test_a_line_over_the_bound_is_a_row_error_and_stays_one_in_every_command(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, intake__max_line=200)
        rows = [{"id": 1, "prompt": "a"}, {"id": 2, "prompt": "b" * 300}, {"id": 3, "prompt": "c"}]
        job.rows(list(rows))

        assert job.run().code == 3
        assert job.error_classes() == [None, "invalid_input", None]
        assert "200 bytes" in job.failures()[0]["error"]["message"]
        assert job.verify().startswith("3 rows = 2 succeeded + 1 failed")
        assert job.stats()["rows"]["invalid"] == 1
        assert job.resume().code == 3
        assert len(server.log) == 2


def test_identical_rows_are_each_answered_and_the_missing_ones_alone_asked_later(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.rows([{"prompt": "same"}] * 3)
        assert job.run().code == 0
        job.rows([{"prompt": "same"}] * 5)
        assert job.run().code == 0

        assert len(server.log) == 5
        assert job.outputs() == ["ok:same"] * 5


def test_rows_that_were_removed_are_left_out_and_come_back_for_free(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(4)
        assert job.run().code == 0
        whole = job.input.read_bytes()
        job.input.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
        assert job.run().code == 0
        assert job.outputs() == ok(prompts[:2])
        assert job.verify().startswith("2 rows = 2 succeeded")
        job.input.write_bytes(whole)
        assert job.run().code == 0

        assert job.outputs() == ok(prompts)
        assert len(server.log) == 4


def test_an_interrupted_stream_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.prefix = str(tmp_path / "out")
        read_end, write_end = os.pipe()
        arguments = ("run", "-", "--config", str(job.config), "--output", job.prefix)
        running = job.start(*arguments, stdin=read_end)
        os.close(read_end)
        os.write(write_end, b'{"prompt":"one"}\n{"prompt":"two"}\n{"prompt":"th')
        server.wait_for_answers(2)
        wait_for_lines(job.file("success.jsonl"), 2)

        stopped = running.interrupt()

        os.close(write_end)
        assert stopped.code == -signal.SIGINT
        assert job.file("success.jsonl").read_bytes().count(b"\n") == 2
        refused = job.command("resume", "--output", job.prefix)
        assert refused.code == 66, refused.err
        assert "standard input" in refused.err or "stream" in refused.err
        assert len(server.log) == 2

        whole = tmp_path / "whole"
        whole.write_bytes(b'{"prompt":"one"}\n{"prompt":"two"}\n{"prompt":"three"}\n')
        with whole.open("rb") as stream:
            ended = job.start(*arguments, stdin=stream.fileno()).wait()
        assert ended.code == 0, ended.err
        assert job.outputs() == ok(["one", "two", "three"])
        assert len(server.log) == 3


def test_a_stream_that_was_read_to_its_end_is_resumed_from_its_copy(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.script = lambda prompt, _: answer(f"ok:{prompt}", hold=len(server.log) > 1)
        job = Job(tmp_path, server, limits__concurrency=1)
        job.prefix = str(tmp_path / "out")
        prompts = job.plain(3)
        arguments = ("run", "-", "--config", str(job.config), "--output", job.prefix)
        with job.input.open("rb") as stream:
            running = job.start(*arguments, "--grace", "0", stdin=stream.fileno())
        wait_for_lines(job.file("success.jsonl"), 1)
        assert running.interrupt().code == -signal.SIGINT
        server.script = None

        ended = job.command("resume", "--output", job.prefix)

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)


def test_a_job_can_be_moved_to_another_folder_and_continued_there(tmp_path: Path) -> None:
    with FakeServer() as server:
        old = tmp_path / "old"
        old.mkdir()
        job = Job(old, server)
        server.script = lambda *_: Step(hold=True) if len(server.log) > 2 else None
        prompts = job.plain(4)
        running = job.start_run()
        wait_for_lines(job.file("success.jsonl"), 2)
        running.kill()
        server.script = None
        before = len(server.log)
        old.rename(tmp_path / "new")
        moved = Job(tmp_path / "new", server)

        ended = moved.run()

        assert ended.code == 0, ended.err
        assert moved.outputs() == ok(prompts)
        assert len(server.log) - before == 2


def test_relative_names_work_from_another_folder_later(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)
        here = job.command("run", "input.jsonl", "--config", "job.toml", "--output", "sub/out")
        assert here.code == 0, here.err
        job.prefix = str(tmp_path / "sub" / "out")
        assert job.outputs() == ok(prompts)
        (tmp_path / "elsewhere").mkdir()
        job.folder = tmp_path / "elsewhere"

        stats = job.command("stats", "--output", "../sub/out", "--json")

        assert stats.code == 0, stats.err
        assert json.loads(stats.out)["rows"]["succeeded"] == 3
