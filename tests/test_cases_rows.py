"""Rows of every kind, good, odd and bad, and who is who; through the real command line."""

import json
from pathlib import Path

from cli import Job, Line, ok, wait_for_lines
from fakeserver import FakeServer, Step, refuse


def test_lines_that_are_no_records_are_row_errors_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.data("not-records")

        ended = job.run("--json")

        assert ended.code == 3, ended.err
        assert "Traceback" not in ended.err
        assert server.prompts() == ["good", "good"]
        assert job.error_classes() == [None, *["invalid_input"] * 8, None]
        assert ended.summary["rows"] == {
            "total": 10,
            "succeeded": 2,
            "failed": 8,
            "pending": 0,
            "invalid": 8,
        }
        found = {line["row"]: line["error"]["message"] for line in job.failures()}
        assert sorted(found) == list(range(1, 9))
        for row, word in ((1, "list"), (2, "string"), (3, "null"), (4, "number"), (5, "true")):
            assert word in found[row]
        assert "prompt" in found[7]
        assert [line["id"] for line in job.results()[6:]] == [None, "r-8", "r-9", "r-10"]
        assert job.verify().startswith("10 rows = 2 succeeded + 8 failed")


def test_bad_rows_are_looked_at_again_without_a_request_and_a_template_can_save_them(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.rows([{"id": 1, "prompt": "p"}, {"id": 2, "question": "why"}])
        assert job.run().code == 3
        assert job.run().code == 3
        assert server.prompts() == ["p"]
        assert len(job.failures()) <= 2

        job.settings["request.prompt"] = "Q: {{ question }}"
        job.write_config()
        refused = job.run()

        assert refused.code == 78
        assert "request.prompt" in refused.err
        assert server.prompts() == ["p"]


def test_half_a_surrogate_pair_is_a_row_error_and_no_request(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.data("lone-surrogates")

        ended = job.run()

        assert ended.code == 3, ended.err
        assert sorted(server.prompts()) == sorted(["good", "whole emoji \U0001f600 here", "good"])
        classes = job.error_classes()
        assert classes == [None, "invalid_input", None, "invalid_input", None]
        assert job.outputs()[2] == "ok:whole emoji \U0001f600 here"
        assert all("surrogate" in line["error"]["message"] for line in job.failures())
        assert job.verify().startswith("5 rows")


def test_half_a_surrogate_pair_in_a_reply_is_kept_as_valid_utf8(tmp_path: Path) -> None:
    content = b'{"choices":[{"message":{"content":"bad \\ud83d end"},"finish_reason":"stop"}]}'

    def script(prompt: str, attempt: int) -> Step | None:
        return Step(body=content) if prompt == "p r002" else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server, output__include_response=True)
        prompts = job.plain(3)

        ended = job.run()

        assert ended.code == 0, ended.err
        one, two, three = job.outputs()
        assert [one, three] == ok([prompts[0], prompts[2]])
        assert two == "bad \ufffd end"
        for name in ("success.jsonl", "results.jsonl"):
            text = job.file(name).read_bytes().decode()
            assert "ud83d" not in text
        kept = {line["id"]: line["response"] for line in job.successes()}
        assert kept["r002"]["choices"][0]["message"]["content"] == "bad \ufffd end"
        assert job.verify().startswith("3 rows")


def test_an_integer_of_thousands_of_digits_is_a_row_error(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.data("huge-integer")

        ended = job.run()

        assert ended.code == 3, ended.err
        assert job.error_classes() == [None, "invalid_input", None]
        assert len(server.log) == 2
        assert "number" in job.failures()[0]["error"]["message"]


def test_an_integer_of_thousands_of_digits_in_an_answer_is_text_like_any_other(
    tmp_path: Path,
) -> None:
    digits = '{"price": ' + "9" * 8000
    reply = {"choices": [{"message": {"content": digits}, "finish_reason": "stop"}]}

    def script(prompt: str, attempt: int) -> Step | None:
        return Step(body=reply) if prompt == "p r002" else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)

        assert job.run().code == 0
        assert job.outputs() == [f"ok:{prompts[0]}", digits, f"ok:{prompts[2]}"]


def test_a_reply_with_a_number_out_of_range_is_tried_again(tmp_path: Path) -> None:
    broken = b'{"choices":[],"created":' + b"9" * 8000 + b"}"

    def script(prompt: str, attempt: int) -> Step | None:
        return Step(body=broken) if (prompt, attempt) == ("p r002", 1) else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(3)

        assert job.run().code == 0
        assert job.outputs() == ok(prompts)
        assert server.asked("p r002") == 2


def test_equal_ids_are_warned_about_and_every_row_has_its_own_answer(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        prompts = _prompts(job.data("duplicate-ids"))

        ended = job.run()

        assert ended.code == 0, ended.err
        assert "'a'" in ended.err
        assert job.outputs() == ok(prompts)
        assert len(server.log) == 6
        assert [line["id"] for line in job.results()] == ["a", "b", "a", None, "", "a"]


def test_a_resume_skips_no_row_because_another_one_has_the_same_id_or_content(
    tmp_path: Path,
) -> None:
    def script(prompt: str, attempt: int) -> Step | None:
        return Step(hold=True) if len(server.log) > 2 else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server, limits__concurrency=1)
        prompts = _prompts(job.data("duplicate-ids"))
        running = job.start_run()
        wait_for_lines(job.file("success.jsonl"), 2)
        running.kill()
        kept = len(job.successes())
        assert kept == 2
        before = len(server.log)
        server.script = None

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert sorted(server.prompts(before)) == sorted(prompts[kept:])
        assert job.outputs() == ok(prompts)
        assert job.verify().startswith("6 rows")


def test_rows_are_found_by_content_when_the_input_was_edited_between_two_runs(
    tmp_path: Path,
) -> None:
    def script(prompt: str, attempt: int) -> Step | None:
        return Step(hold=True) if len(server.log) > 3 else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server, limits__concurrency=1)
        job.data("edited-before")
        running = job.start_run()
        wait_for_lines(job.file("success.jsonl"), 3)
        running.kill()
        assert [line["output"] for line in job.successes()] == ok(["item A", "item B", "item C"])
        before = len(server.log)
        server.script = None
        after = job.data("edited-after") + b'{"prompt": 123}\n'
        job.input.write_bytes(after)

        ended = job.resume()

        assert ended.code == 3, ended.err
        assert server.prompts(before) == ["item NEW", "item D", "item E", "item F"]
        assert job.outputs() == [*ok(_prompts(after)[:-1]), None]
        assert job.error_classes()[-1] == "invalid_input"
        assert "1 answers of earlier runs" in ended.err
        assert job.verify().startswith("7 rows")


def test_an_edited_row_is_asked_anew_and_a_moved_one_is_not(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        rows: list[Line] = [{"id": n, "prompt": f"p {n}"} for n in range(5)]
        job.rows(rows)
        assert job.run().code == 0
        before = len(server.log)
        rows[2]["prompt"] = "p two"
        rows.reverse()
        job.rows(rows)

        ended = job.run()

        assert ended.code == 0, ended.err
        assert server.prompts(before) == ["p two"]
        assert job.outputs() == ok([row["prompt"] for row in rows])


def test_a_prompt_that_is_too_long_fails_alone_after_one_request(tmp_path: Path) -> None:
    def script(prompt: str, attempt: int) -> Step | None:
        if prompt != "TOO-LONG":
            return None
        return refuse(400, {"code": "context_length_exceeded", "message": "too many tokens"})

    with FakeServer(script) as server:
        job = Job(tmp_path, server)
        job.data("one-too-long-row")

        ended = job.run("--json")

        assert ended.code == 3, ended.err
        assert job.outputs() == [*ok(["fine"] * 6), None, *ok(["fine"] * 13)]
        assert job.error_classes()[6] == "too_large"
        assert server.asked("TOO-LONG") == 1
        assert ended.summary["failures"] == {"too_large": 1}


def test_a_row_that_its_template_cannot_render_fails_alone(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, request__prompt="Q: {{ q.upper }}{{ 10 // n }}")
        rows: list[Line] = [{"q": {"upper": "A"}, "n": 1}, {"q": None, "n": 1}, {"n": 1}]
        rows += [{"q": {"upper": "B"}, "n": 0}, {"q": {"upper": "C"}, "n": 5}]
        job.rows(rows)

        ended = job.run()

        assert ended.code == 3, ended.err
        assert job.error_classes() == [None, *["invalid_input"] * 3, None]
        assert sorted(server.prompts()) == ["Q: A10", "Q: C2"]
        assert "q" in job.failures()[1]["error"]["message"]


def test_batch_lines_bodies_and_templates_each_reach_the_server_as_they_should(
    tmp_path: Path,
) -> None:
    messages = [{"role": "user", "content": "own"}]
    body = {"model": "other", "messages": messages, "temperature": 0.25}
    url = "/v1/chat/completions"
    with FakeServer() as server:
        job = Job(tmp_path, server, request__params__max_tokens=7)
        batch = {"custom_id": "x", "method": "POST", "url": url, "body": body}
        job.rows([batch, {"id": "y", "messages": messages, "metadata": {"k": "v"}}])

        ended = job.run()

        assert ended.code == 0, ended.err
        sent = {json.loads(seen.body)["model"]: json.loads(seen.body) for seen in server.log}
        assert sent == {"other": body, "m": {"model": "m", "max_tokens": 7, "messages": messages}}
        assert [line["id"] for line in job.results()] == ["x", "y"]
        assert {seen.path for seen in server.log} == {"/v1/chat/completions"}


def _prompts(text: bytes) -> list[str]:
    return [json.loads(line)["prompt"] for line in text.split(b"\n")[:-1]]
