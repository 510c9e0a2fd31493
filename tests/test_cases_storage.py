"""Two processes on one job, a full disk, memory: the real command line and the real files."""

import json
import time
from pathlib import Path

import pytest
from cli import Job, Running, lines_of, ok, wait_for_lines
from fakeserver import FakeServer, Script, Step, answer

MEMORY_BOUND_KB = 30 * 1024


def _long(size: int) -> Script:
    """Answer everything with so many characters after the prompt."""
    return lambda prompt, _: answer(f"{prompt} " + "x" * size)


# ── two processes ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("second", ["run", "resume", "run --fresh", "run --repair"])
def test_a_second_process_leaves_at_once_without_a_request_or_a_change(
    tmp_path: Path, second: str
) -> None:
    with FakeServer(lambda *_: Step(hold=True)) as server:
        job = Job(tmp_path, server, limits__concurrency=2)
        prompts = job.plain(10)
        running = job.start_run()
        server.wait_for(lambda: len(server.log) == 2)
        before = job.files()

        command, *flags = second.split()
        ended = job.resume(*flags) if command == "resume" else job.run(*flags)

        assert ended.code == 75, ended.err
        assert "another process" in ended.err
        assert f"process {running.process.pid} on " in ended.err
        assert job.files() == before
        assert len(server.log) == 2

        server.script = None
        server.release()
        assert running.wait().code == 0
        assert set(server.billed().values()) == {1}
        assert job.outputs() == ok(prompts)


def test_a_job_can_be_looked_at_while_it_runs(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        server.script = lambda *_: Step(hold=True) if len(server.log) > 3 else None
        job.plain(10)
        running = job.start_run()
        wait_for_lines(job.file("success.jsonl"), 3)

        stats = job.stats()

        assert stats["ended"] == "running"
        assert stats["rows"]["succeeded"] == 3
        assert stats["rows"]["pending"] == 7
        assert job.verify().startswith("10 rows = 3 succeeded + 0 failed + 7 pending")
        merged = job.command("merge", str(job.input), "--to", "-")
        assert merged.code == 0, merged.err
        assert len(merged.out.splitlines()) == 10
        server.script = None
        server.release()
        assert running.wait().code == 0


def test_two_inputs_with_one_output_are_one_job_and_the_second_process_is_refused(
    tmp_path: Path,
) -> None:
    with FakeServer(lambda *_: Step(hold=True)) as server:
        job = Job(tmp_path, server, output__prefix=str(tmp_path / "shared"))
        job.prefix = str(tmp_path / "shared")
        job.plain(4)
        running = job.start_run()
        server.wait_for(lambda: len(server.log) == 4)
        job.input = tmp_path / "other.jsonl"
        job.plain(4, first=5)

        assert job.run().code == 75

        server.script = None
        server.release()
        assert running.wait().code == 0
        assert len(job.results()) == 4


def test_two_jobs_with_long_answers_in_one_folder_stay_apart(tmp_path: Path) -> None:
    with FakeServer(_long(100_000)) as server:
        running: list[tuple[Job, Running]] = []
        for number in range(2):
            job = Job(tmp_path, server, limits__concurrency=8)
            job.input = tmp_path / f"input{number}.jsonl"
            job.prefix = str(tmp_path / f"input{number}")
            job.plain(60, first=1 + 60 * number)
            running.append((job, job.start_run()))
        for number, (job, process) in enumerate(running):
            assert process.wait().code == 0
            records = lines_of(job.file("success.jsonl"))
            names = [f"r{n:03}" for n in range(1 + 60 * number, 61 + 60 * number)]
            assert sorted(line["id"] for line in records) == names
            assert [line["id"] for line in job.results()] == names
            assert all(len(line["output"]) > 100_000 for line in job.results())


# ── a full disk ──────────────────────────────────────────────────────────────────────────────


def test_a_disk_that_takes_no_more_stops_the_run_and_what_it_took_is_never_paid_again(
    tmp_path: Path,
) -> None:
    with FakeServer(_long(20_000)) as server:
        job = Job(tmp_path, server, limits__concurrency=2)
        prompts = job.plain(100)

        running = job.start_run(before="ulimit -f 200")
        state = job.file("run.json")
        while running.process.poll() is None:
            assert not state.exists() or state.stat().st_size
            time.sleep(0.005)
        stopped = running.wait()

        assert stopped.code == 74, stopped.err
        assert "Traceback" not in stopped.err
        assert "success.jsonl" in stopped.err
        assert len(server.log) < 100
        kept = [line["output"].split(" x")[0] for line in job.successes()]
        assert kept
        assert len(server.log) <= len(kept) + 2 + 64
        assert json.loads(job.file("run.json").read_bytes())["ended"] == "partial"
        before = len(server.log)

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert sorted(server.prompts(before)) == sorted(set(prompts) - set(kept))
        assert len(job.results()) == 100
        assert job.verify().startswith("100 rows = 100 succeeded")


def test_results_that_do_not_fit_leave_the_old_ones_and_can_be_merged_later(
    tmp_path: Path,
) -> None:
    with FakeServer(_long(1000)) as server:
        job = Job(tmp_path, server)
        job.plain(5)
        assert job.run().code == 0
        old = job.file("results.jsonl").read_bytes()
        # Inputs are repeated in the results, so these are the larger file.
        job.rows([{"id": n, "prompt": f"{n}", "metadata": "y" * 9000} for n in range(20)])

        stopped = job.start_run(before="ulimit -f 200").wait()

        assert stopped.code == 74, stopped.err
        assert "Traceback" not in stopped.err
        assert job.file("results.jsonl").read_bytes() == old
        assert job.command("merge", str(job.input)).code == 0
        assert len(job.results()) == 20


def test_a_copy_of_standard_input_that_does_not_fit_stops_the_run(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, limits__rpm=600)
        job.rows([{"id": n, "prompt": f"{n}", "metadata": "y" * 9000} for n in range(200)])
        arguments = ("run", "-", "--config", str(job.config), "--output", str(tmp_path / "out"))
        with job.input.open("rb") as stream:
            running = job.start(*arguments, stdin=stream.fileno(), before="ulimit -f 800")

            stopped = running.wait(20)

        assert stopped.code == 74, stopped.err
        assert "Traceback" not in stopped.err
        assert len(server.log) < 200


def test_an_output_that_cannot_be_created_is_said_before_a_request(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(2)
        (tmp_path / "file").write_text("no folder")
        (tmp_path / "taken.success.jsonl").mkdir()

        for output, named in (("file/out", "file"), ("taken", "taken.success.jsonl")):
            ended = job.run("--output", str(tmp_path / output))
            assert ended.code == 73, ended.err
            assert f"{tmp_path / named}:" in ended.err
        assert server.log == []


def test_a_file_that_is_no_sidecar_is_not_written_to(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(2)
        mine = job.file("success.jsonl")
        mine.write_bytes(b'{"my":"own"}\n')

        ended = job.run()

        assert ended.code in {65, 78}, ended.err
        assert "success.jsonl" in ended.err
        assert mine.read_bytes() == b'{"my":"own"}\n'
        assert server.log == []


def test_what_a_run_writes_is_for_its_user_alone(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(2)
        assert job.run().code == 0

        for name in ("success.jsonl", "failure.jsonl", "run.json", "results.jsonl"):
            assert job.file(name).stat().st_mode & 0o077 == 0, name


# ── memory ───────────────────────────────────────────────────────────────────────────────────


def _peak_after(job: Job, server: FakeServer, rows: int, answers: int) -> int:
    filler = "x" * 1000
    with job.input.open("w") as file:
        file.writelines(f'{{"id":{n},"prompt":"p{n} {filler}"}}\n' for n in range(rows))
    before = len(server.log)
    running = job.start_run()
    running.watch_memory()
    server.wait_for(lambda: len(server.log) - before >= answers, 40)
    running.kill()
    assert running.peak_kb
    return running.peak_kb


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    peaks = {}
    for rows in (2_000, 40_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        with FakeServer() as server:
            job = Job(folder, server, limits__concurrency=8)
            peaks[rows] = _peak_after(job, server, rows, 1_900)

    assert abs(peaks[40_000] - peaks[2_000]) < MEMORY_BOUND_KB, peaks


@pytest.mark.slow
def test_memory_of_a_resume_grows_by_little_more_than_an_index(tmp_path: Path) -> None:
    peaks = {}
    for rows in (2_000, 40_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        with FakeServer() as server:
            job = Job(folder, server, limits__concurrency=16)
            filler = "x" * 1000
            lines = [f'{{"id":{n},"prompt":"p{n} {filler}"}}\n' for n in range(rows)]
            job.input.write_text("".join(lines))
            assert job.start_run().wait(90).code == 0
            job.input.write_text("".join([*lines, '{"id":-1,"prompt":"new"}\n']))
            server.script = lambda *_: Step(hold=True)
            running = job.start_run()
            running.watch_memory()
            server.wait_for(lambda asked=server.asked: asked("new") == 1)  # type: ignore[misc]
            running.kill()
            peaks[rows] = running.peak_kb

    assert abs(peaks[40_000] - peaks[2_000]) < MEMORY_BOUND_KB, peaks
