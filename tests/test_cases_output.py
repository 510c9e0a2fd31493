"""What a user sees: exit codes, summaries, merged files, and no secret anywhere."""

import json
import os
from pathlib import Path

import pytest
from cli import COMMAND, Ended, Job, Line, lines_of, ok, wait_for_lines
from fakeserver import RESET, FakeServer, Script, Step, refuse

IN_QUERY = "SECRET123"
KEY = "sk-SECRET456"
BAD: Step = refuse(400, {"message": "no"})


# ── secrets ──────────────────────────────────────────────────────────────────────────────────


def _echo(status: int) -> Step:
    said = f"wrong: Authorization: Bearer {KEY}, url /v1?key={IN_QUERY}, key {KEY}"
    return Step(status=status, body={"error": {"message": said, "code": KEY, "type": KEY}})


def _plain_echo(status: int) -> Step:
    headers = {"content-type": "text/plain", "x-request-id": KEY}
    return Step(status=status, body=f"{KEY} {IN_QUERY}".encode(), headers=headers)


@pytest.mark.parametrize(
    ("step", "code", "flags"),
    [
        (Step(status=404, body=b""), 78, ()),
        (RESET, 3, ()),
        (_echo(401), 77, ()),
        (_echo(401), 77, ("--quiet",)),
        (_echo(400), 3, ("--json",)),
        (_echo(500), 3, ()),
        (_plain_echo(401), 77, ()),
        (_plain_echo(422), 3, ()),
        (_plain_echo(422), 3, ("--transport", "httpx")),
        (Step(status=302, headers={"location": f"http://127.0.0.1:9/?key={KEY}"}), 78, ()),
    ],
    ids=[
        *("404", "reset", "401", "401 quiet", "400 json", "500"),
        *("plain 401", "plain 422", "plain 422 httpx", "redirect"),
    ],
)
def test_no_secret_is_seen_or_kept_whatever_a_server_echoes(
    tmp_path: Path, step: Step, code: int, flags: tuple[str, ...]
) -> None:
    with FakeServer(lambda prompt, _: step if prompt == "p r001" else None) as server:
        url = f"{server.url}?key=${{env:URL_SECRET}}"
        job = Job(tmp_path, url, endpoint__api_key_env="MY_KEY", retry__attempts=2)
        job.env = {"MY_KEY": KEY, "URL_SECRET": IN_QUERY}
        job.plain(2)

        ended = job.run(*flags)

        assert ended.code == code, ended.err
        assert server.log[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.log[0].path == f"/v1/chat/completions?key={IN_QUERY}"
        stats = job.command("stats", str(job.input))
        shown = ended.out + ended.err + stats.out + stats.err
        kept = b"\n".join(job.files().values()).decode()
        for secret in (IN_QUERY, KEY, "SECRET456"):
            assert secret not in shown
            assert secret not in kept
        if code == 78:
            assert f"127.0.0.1:{server.port}" in ended.err


def test_an_address_with_a_secret_in_the_file_itself_is_not_repeated(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.shut()
        job = Job(tmp_path, f"{server.url}?key={IN_QUERY}")
        job.plain(1)

        ended = job.run()

        assert ended.code == 69
        assert f"127.0.0.1:{server.port}" in ended.err
        job.config.unlink()
        assert IN_QUERY not in ended.err + ended.out
        assert IN_QUERY.encode() not in b"".join(job.files().values())


def test_a_key_that_is_missing_or_no_key_is_said_before_a_row_is_sent(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, endpoint__api_key_env="MY_KEY")
        job.plain(1)

        missing = job.run()
        assert missing.code == 78
        assert "MY_KEY" in missing.err

        job.env = {"MY_KEY": "sk-two\nlines-SECRET"}
        broken = job.run()
        assert broken.code == 78
        assert "SECRET" not in broken.err
        assert server.log == []


def test_a_key_goes_to_the_server_without_the_newline_around_it(tmp_path: Path) -> None:
    with FakeServer() as server:
        (tmp_path / "key").write_text(f"{KEY}\n")
        job = Job(tmp_path, server, endpoint__api_key_file=str(tmp_path / "key"))
        job.plain(1)

        assert job.run().code == 0
        assert server.log[0].headers["authorization"] == f"Bearer {KEY}"


def test_control_characters_from_a_server_never_reach_the_terminal(tmp_path: Path) -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07 \u202eright \r\nnew line"
    with FakeServer(lambda *_: refuse(401, {"message": nasty})) as server:
        job = Job(tmp_path, server)
        job.plain(1)

        ended = job.run()

        assert ended.code == 77
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(ended.err)


# ── exit codes ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("script", "code", "counts"),
    [
        (lambda *_: None, 0, (4, 0, 0)),
        (lambda prompt, _: BAD if prompt == "p r002" else None, 3, (3, 1, 0)),
        (lambda *_: BAD, 3, (0, 4, 0)),
        (lambda *_: refuse(401, {"message": "who are you"}), 77, (0, 0, 4)),
        (lambda *_: refuse(403, {"message": "not for you"}), 77, (0, 0, 4)),
        (lambda *_: refuse(404, {"message": "no such model"}), 78, (0, 0, 4)),
    ],
    ids=["all fine", "one refused", "all refused", "no key", "forbidden", "no model"],
)
def test_the_exit_code_and_the_counts_tell_how_it_went(
    tmp_path: Path, script: Script, code: int, counts: tuple[int, int, int]
) -> None:
    with FakeServer(script) as server:
        job = Job(tmp_path, server)
        job.plain(4)

        ended = job.run("--json")

        assert ended.code == code, ended.err
        rows = ended.summary["rows"]
        assert (rows["succeeded"], rows["failed"], rows["pending"]) == counts
        stats = job.stats()
        assert stats["rows"] == rows
        assert stats["ended"] == ended.summary["ended"]
        assert job.resume().code == code
        assert len(job.failures()) == counts[1]


def test_people_are_told_the_counts_and_what_to_do_next(tmp_path: Path) -> None:
    with FakeServer(lambda prompt, _: BAD if prompt == "p r002" else None) as server:
        job = Job(tmp_path, server)
        job.plain(4)

        ended = job.run()

        assert ended.out == ""
        assert "3 succeeded" in ended.err
        assert "1 failed" in ended.err
        assert "--retry-failed=invalid_request" in ended.err
        assert str(job.file("results.jsonl")) in ended.err


def test_quiet_says_nothing_of_a_success_and_the_counts_of_a_failure(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(4)
        fine = job.run("--quiet")
        assert (fine.code, fine.out, fine.err) == (0, "", "")

        server.script = lambda *_: BAD
        job.plain(5)
        failed = job.run("--quiet")
        assert failed.code == 3
        assert failed.out == ""
        assert "1 failed" in failed.err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("limits.rmp=5", ["limits.rmp", "limits.rpm"]),
        ("limits.rpm=fast", ["limits.rpm", "number"]),
        ("retry.attempts=0", ["retry.attempts", ">= 1"]),
        ("retry.cap=0.001", ["retry.cap", "retry.base"]),
        ("request.prompt={{ open", ["request.prompt"]),
    ],
)
def test_a_mistake_in_the_configuration_is_named_before_anything_is_written(
    tmp_path: Path, setting: str, words: list[str]
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(1)
        before = job.files()

        ended = job.run("--set", setting)

        assert ended.code == 78, ended.err
        assert all(word in ended.err for word in words), ended.err
        assert "Traceback" not in ended.err
        assert job.files() == before
        assert server.log == []


def test_without_an_endpoint_three_ways_on_are_shown(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(1)

        ended = job.command("run", str(job.input))

        assert ended.code == 78
        for way in ("--preset", "OPENAI_BASE_URL", "--config"):
            assert way in ended.err


def test_the_environment_can_name_the_endpoint(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "m2"}
        prompts = job.plain(2)

        ended = job.command("run", str(job.input))

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert server.log[0].headers["authorization"] == f"Bearer {KEY}"
        assert json.loads(server.log[0].body)["model"] == "m2"


def test_a_wrong_command_line_ends_with_2(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)

        for arguments in (("run",), ("run", "x", "--no-such-flag"), ("fly",)):
            ended = job.command(*arguments)
            assert ended.code == 2, ended.err
            assert "Traceback" not in ended.err


# ── the summary ──────────────────────────────────────────────────────────────────────────────


def _check_contract(summary: Line) -> None:
    assert set(summary["rows"]) == {"total", "succeeded", "failed", "pending", "invalid"}
    assert set(summary["requests"]) == {"sent", "retried", "ambiguous", "rate_limited"}
    assert set(summary["tokens"]) == {"input", "output", "cached", "reasoning", "wasted"}
    assert set(summary["latency_ms"]) == {"mean", "p50", "p95", "p99"}
    assert {
        "cost_usd",
        "unpriced_models",
        "elapsed_s",
        "rows_per_s",
        "failures",
        "possibly_rebilled",
        "ended",
    } <= set(summary)


def test_the_summary_of_a_run_and_of_stats_hold_the_same_figures(tmp_path: Path) -> None:
    def script(prompt: str, attempt: int) -> Step | None:
        if prompt == "p r001" and attempt == 1:
            return refuse(500, {"message": "broken"})
        if prompt == "p r002" and attempt == 1:
            return RESET
        if prompt == "p r003" and attempt == 1:
            return refuse(429, {"message": "slow down"}, retry_after="0.05")
        return BAD if prompt == "p r004" else None

    with FakeServer(script) as server:
        prices = {'prices."m".input': 1.0, 'prices."m".output': 2.0}
        job = Job(tmp_path, server, **prices)
        job.plain(6)
        with job.input.open("a") as file:
            file.write("[]\n")

        ended = job.run("--json")

        assert ended.code == 3, ended.err
        assert ended.out.count("\n") == 1
        summary = ended.summary
        _check_contract(summary)
        assert summary["rows"] == {
            "total": 7,
            "succeeded": 5,
            "failed": 2,
            "pending": 0,
            "invalid": 1,
        }
        assert summary["requests"] == {
            "sent": len(server.log),
            "retried": 3,
            "ambiguous": 1,
            "rate_limited": 1,
        }
        assert summary["failures"] == {"invalid_input": 1, "invalid_request": 1}
        assert summary["tokens"]["input"] == 50
        assert summary["cost_usd"] == pytest.approx(5 * (10 + 2 * 2) / 1e6)
        assert summary["latency_ms"]["p50"] > 0
        assert summary["elapsed_s"] > 0
        assert summary["ended"] == "finished"

        stats = job.stats()
        _check_contract(stats)
        for name in ("rows", "requests", "tokens", "cost_usd", "failures", "ended"):
            assert stats[name] == summary[name], name


def test_stats_of_a_job_that_does_not_exist_say_so(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(1)

        ended = job.command("stats", str(job.input))

        assert ended.code == 66
        assert "no run" in ended.err


# ── merge and verify ─────────────────────────────────────────────────────────────────────────


def test_results_have_one_line_a_row_in_input_order_failures_included(tmp_path: Path) -> None:
    with FakeServer(lambda prompt, _: BAD if prompt == "p r002" else None) as server:
        job = Job(tmp_path, server, limits__concurrency=8)
        prompts = job.plain(30)

        assert job.run().code == 3
        results = job.results()
        assert [line["row"] for line in results] == list(range(30))
        assert [line["input"]["prompt"] for line in results] == prompts
        assert set(results[0]) == {
            "row",
            "id",
            "input",
            "output",
            "error",
            "finish_reason",
            "usage",
        }
        assert results[1]["output"] is None
        assert results[1]["error"] == {
            "class": "invalid_request",
            "status": 400,
            "code": None,
            "message": "no",
        }
        assert results[0]["error"] is None
        assert results[0]["finish_reason"] == "stop"
        assert results[0]["usage"]["input"] == 10


def test_a_flat_merge_to_stdout_is_the_input_with_its_answers(tmp_path: Path) -> None:
    with FakeServer(lambda prompt, _: BAD if prompt == "p r002" else None) as server:
        job = Job(tmp_path, server)
        job.plain(3)
        assert job.run().code == 3

        ended = job.command("merge", str(job.input), "--format", "flat", "--to", "-")

        assert ended.code == 0, ended.err
        lines = [json.loads(line) for line in ended.out.splitlines()]
        assert lines[0] == {"id": "r001", "prompt": "p r001", "output": "ok:p r001"}
        assert lines[1]["output"] is None
        assert lines[1]["error"]["class"] == "invalid_request"
        assert "3 rows" in ended.err


def test_an_openai_batch_merge_needs_whole_replies_and_then_has_them(tmp_path: Path) -> None:
    with FakeServer(lambda prompt, _: BAD if prompt == "p r002" else None) as server:
        job = Job(tmp_path, server)
        job.plain(3)
        assert job.run().code == 3
        merge = ("merge", str(job.input), "--format", "openai-batch", "--to", "batch.jsonl")
        without = job.command(*merge)
        assert without.code == 78
        assert "include_response" in without.err
        assert not (tmp_path / "batch.jsonl").exists()

        assert job.run("--fresh", "--set", "output.include_response=true").code == 3
        ended = job.command(*merge)

        assert ended.code == 0, ended.err
        one, two, _ = lines_of(tmp_path / "batch.jsonl")
        assert one["custom_id"] == "r001"
        assert one["response"]["status_code"] == 200
        assert one["response"]["body"]["choices"][0]["message"]["content"] == "ok:p r001"
        assert two["response"] is None
        assert two["error"]["code"] == "invalid_request"


def test_a_merge_of_an_unfinished_job_marks_what_is_pending(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.script = lambda *_: Step(hold=True) if len(server.log) > 2 else None
        job = Job(tmp_path, server, limits__concurrency=1)
        job.plain(4)
        running = job.start_run()
        wait_for_lines(job.file("success.jsonl"), 2)
        running.kill()

        assert job.command("merge", str(job.input)).code == 0
        assert job.error_classes() == [None, None, "pending", "pending"]
        assert job.verify().startswith("4 rows = 2 succeeded + 0 failed + 2 pending")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.rows([{"prompt": f"{n}", "metadata": "y" * 9000} for n in range(60)])
        assert job.run().code == 0
        running = job.start("merge", str(job.input), "--to", "-")
        assert running.process.stdout is not None
        os.read(running.process.stdout.fileno(), 10)
        running.process.stdout.close()
        running.process.stdout = None

        ended = _wait(running.process.wait(30), running.process.stderr)

        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err
        assert "Broken" not in ended.err


def _wait(code: int, stderr: object) -> Ended:
    text = stderr.read().decode() if hasattr(stderr, "read") else ""
    if hasattr(stderr, "close"):
        stderr.close()
    return Ended(code, "", text)


@pytest.mark.parametrize("damage", ["a line lost", "an answer changed", "two lines swapped"])
def test_verify_finds_results_that_are_not_what_the_records_say(
    tmp_path: Path, damage: str
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(5)
        assert job.run().code == 0
        assert job.verify() == "5 rows = 5 succeeded + 0 failed + 0 pending; results checked\n"
        lines = job.file("results.jsonl").read_bytes().splitlines(keepends=True)
        if damage == "a line lost":
            del lines[2]
        elif damage == "an answer changed":
            lines[2] = lines[2].replace(b"ok:p r003", b"ok:p r004")
        else:
            lines[1], lines[2] = lines[2], lines[1]
        job.file("results.jsonl").write_bytes(b"".join(lines))

        ended = job.command("verify", str(job.input))

        assert ended.code == 65
        assert "row" in ended.err
        assert job.command("merge", str(job.input)).code == 0
        assert job.verify().endswith("results checked\n")


def test_the_command_has_a_version_and_explains_its_exit_codes(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)

        assert job.command("--version").out.startswith("batchinfer ")
        assert "key was refused" in job.command("--help").out
        assert COMMAND[-1] == "batchinfer"
