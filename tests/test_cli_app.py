import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import error
from jobbench import Bench, echo, failing
from typer.testing import CliRunner

from batchinfer import __version__
from batchinfer.cli.app import app
from batchinfer.config.schema import Config
from batchinfer.errors import EXIT_MEANING, DamagedJournalError, KeyRefusedError
from batchinfer.job.run import FINISHED

OPTIONS = {
    "run": (
        *("--config", "-c", "--preset", "--output", "-o", "--model", "-m", "--base-url"),
        *("--provider", "--api-key-env", "--transport", "--prompt", "--system", "--concurrency"),
        *("-n", "--rpm", "--tpm", "--max-cost", "--set", "--retry-failed", "--fresh", "--repair"),
        *("--grace", "--quiet", "-q", "--json"),
    ),
    "resume": (
        *("--config", "--output", "--set", "--all", "--retry-failed", "--repair", "--grace"),
        *("--quiet", "--json"),
    ),
    "stats": ("--output", "--json"),
    "merge": ("--output", "--format", "--to", "results", "flat", "openai-batch"),
    "verify": ("--output",),
    "simulate": ("--config", "--set", "--port"),
    "init": ("--preset",),
}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path, monkeypatch)
    bench.script = echo
    return bench


ENDPOINT = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m")


def run(bench: Bench, *arguments: str) -> Any:
    return invoke("run", str(bench.input), *ENDPOINT, *arguments)


# ── help ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", list(OPTIONS))
def test_each_command_lists_its_options(command: str, flag: str) -> None:
    shown = invoke(command, flag)

    assert shown.exit_code == 0
    for option in OPTIONS[command]:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown.output), option


def test_the_help_lists_every_command_and_every_exit_code() -> None:
    shown = invoke("--help")

    assert shown.exit_code == 0
    for command in OPTIONS:
        assert re.search(rf"^  {command} ", shown.output, re.MULTILINE)
    for code, meaning in EXIT_MEANING.items():
        assert re.search(rf"^ *{code.value}  {re.escape(meaning)}$", shown.output, re.MULTILINE)
    assert "130 (Ctrl-C), 143 (SIGTERM)" in shown.output


def test_the_version_is_printed() -> None:
    shown = invoke("--version")

    assert (shown.exit_code, shown.output) == (0, f"batchinfer {__version__}\n")


def test_without_a_command_the_help_is_shown_and_it_is_a_wrong_use() -> None:
    shown = invoke()

    assert shown.exit_code == 2
    assert "Commands:" in shown.output


@pytest.mark.parametrize(
    "arguments", [["fly"], ["run"], ["run", "x", "--rpm", "fast"], ["run", "x", "--fly"]]
)
def test_a_wrong_command_line_is_code_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


# ── run and resume ───────────────────────────────────────────────────────────────────────────


def test_a_run_prints_its_summary_for_people_on_stderr(bench: Bench) -> None:
    done = run(bench)

    assert done.exit_code == 0
    assert done.stdout == ""
    assert "5" in done.stderr
    assert [r["output"] for r in bench.results] == [f"answer to p{n}" for n in range(5)]


def test_a_run_prints_its_summary_for_programs_on_stdout(bench: Bench) -> None:
    done = run(bench, "--json")

    summary = json.loads(done.stdout)
    assert summary["rows"]["succeeded"] == 5
    assert summary["ended"] == FINISHED


def test_a_quiet_run_that_goes_well_prints_nothing(bench: Bench) -> None:
    done = run(bench, "--quiet")

    assert (done.exit_code, done.output) == (0, "")


def test_a_quiet_run_with_failures_says_so(bench: Bench) -> None:
    bench.script = failing({"p1"}, error(400))

    done = run(bench, "--quiet")

    assert done.exit_code == 3
    assert "invalid_request" in done.stderr


def test_a_run_that_stops_raises_its_reason_after_the_summary(bench: Bench) -> None:
    bench.script = [error(401)]

    done = run(bench, "--json")

    assert isinstance(done.exception, KeyRefusedError)
    assert json.loads(done.stdout)["rows"]["pending"] == 5


def test_flags_reach_the_configuration_and_win_over_the_file(bench: Bench) -> None:
    (bench.folder / "job.toml").write_text('[endpoint]\nmodel = "x"\n[limits]\nrpm = 5\n')

    done = run(
        bench,
        *("-c", "job.toml", "-n", "3", "--rpm", "60000", "--set", "retry.attempts=7"),
        *("--system", "Be brief."),
    )

    assert done.exit_code == 0
    kept = msgspec.convert(bench.manifest.config, Config)
    assert kept.endpoint is not None
    assert kept.endpoint.model == "m"
    assert (kept.limits.concurrency, kept.limits.rpm, kept.retry.attempts) == (3, 60000.0, 7)
    assert bench.posts[0].body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_outputs_go_where_the_flag_or_the_configuration_says(bench: Bench) -> None:
    run(bench, "--set", "output.prefix=a/one")
    run(bench, "--set", "output.prefix=a/one", "-o", "b/two")

    assert (bench.folder / "a" / "one.results.jsonl").exists()
    assert (bench.folder / "b" / "two.results.jsonl").exists()


def test_remarks_are_for_people_and_cannot_steer_the_terminal(bench: Bench) -> None:
    bench.input.write_text(
        '{"id":"\\u001b[31ma","prompt":"x"}\n{"id":"\\u001b[31ma","prompt":"y"}\n'
    )

    done = run(bench)

    assert "batchinfer: the id" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_resume_continues_the_one_unfinished_job(bench: Bench) -> None:
    bench.script = [error(401)]
    run(bench)
    bench.script = echo

    done = invoke("resume", "--json")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["rows"]["succeeded"] == 5
    assert bench.manifest.ended == FINISHED


def test_a_resume_of_all_ends_with_the_worst_code(bench: Bench) -> None:
    bench.script = [error(401)]
    run(bench, "-o", "a")
    run(bench, "-o", "b")
    bench.script = failing({"p1"}, error(400))

    done = invoke("resume", "--all", "--quiet")

    assert done.exit_code == 3
    assert (bench.folder / "a.results.jsonl").exists()
    assert (bench.folder / "b.results.jsonl").exists()


# ── looking ──────────────────────────────────────────────────────────────────────────────────


def test_stats_are_data_on_stdout(bench: Bench) -> None:
    run(bench, "--quiet")

    people, programs = invoke("stats", str(bench.input)), invoke("stats", "--json")

    assert people.exit_code == 0
    assert "5" in people.stdout
    assert people.stderr == ""
    assert json.loads(programs.stdout)["rows"]["succeeded"] == 5


def test_a_merge_goes_to_the_results_a_file_or_stdout(bench: Bench) -> None:
    run(bench, "--quiet")
    whole = bench.target.paths.results.read_bytes()
    bench.target.paths.results.unlink()

    assert invoke("merge").exit_code == 0
    assert bench.target.paths.results.read_bytes() == whole
    told = invoke("merge", "--to", "flat.jsonl", "--format", "flat").stderr
    assert told == "5 rows to flat.jsonl: 5 succeeded, 0 failed, 0 pending\n"
    assert json.loads((bench.folder / "flat.jsonl").read_text().splitlines()[0])["prompt"] == "p0"
    assert invoke("merge", "--to", "-").stdout.encode() == whole


def test_a_verification_that_finds_nothing_says_what_it_looked_at(bench: Bench) -> None:
    run(bench, "--quiet")
    assert invoke("verify").stdout == (
        "5 rows = 5 succeeded + 0 failed + 0 pending; results checked\n"
    )
    bench.target.paths.results.unlink()
    assert "no results file yet" in invoke("verify").stdout


def test_a_verification_that_finds_something_lists_it(bench: Bench) -> None:
    run(bench, "--quiet")
    results = bench.target.paths.results
    results.write_bytes(results.read_bytes().replace(b"answer to p3", b"answer to p4"))

    done = invoke("verify")

    assert isinstance(done.exception, DamagedJournalError)
    assert "not what the sidecars say:\n  " in str(done.exception)


# ── init and simulate ────────────────────────────────────────────────────────────────────────


def test_init_writes_a_configuration_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = invoke("init")

    assert done.exit_code == 0
    assert "batchinfer.toml" in done.stderr
    assert invoke("init", "-").stdout == (tmp_path / "batchinfer.toml").read_text()


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "mine.toml"
    kept.write_text("mine")

    done = invoke("init", str(kept))

    assert type(done.exception).__name__ == "CannotCreateError"
    assert kept.read_text() == "mine"


Replaced = list[tuple[str, list[str]]]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Replaced:
    seen: Replaced = []

    def execv(path: str, arguments: list[str]) -> None:
        seen.append((path, arguments))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    return seen


def test_simulate_becomes_the_provider_with_the_behaviour_that_was_set(replaced: Replaced) -> None:
    done = invoke("simulate", "--port", "0", "--set", "simulate.rpm=600")

    assert done.exit_code == 0
    [(path, arguments)] = replaced
    assert path == sys.executable
    assert arguments[1:4] == ["-P", "-m", "batchinfer.simulate"]
    assert json.loads(arguments[4])["rpm"] == 600
    assert arguments[5:] == ["--port", "0"]


def test_simulate_reads_a_configuration(tmp_path: Path, replaced: Replaced) -> None:
    file = tmp_path / "job.toml"
    file.write_text("[simulate]\nlatency = 0.5\n")

    invoke("simulate", "--config", str(file))

    assert json.loads(replaced[0][1][4])["latency"] == 0.5
