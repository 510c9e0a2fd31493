"""Reading the input: where a line ends, compression, streams; through the real command line."""

import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import Job, ok, wait_for_lines
from fakeserver import FakeServer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SEPARATORS = ["plain", "before\u2028after", "before\u2029after", "before\u0085after", "plain"]
Pack = Callable[[bytes], bytes]


def _two_rows() -> tuple[bytes, bytes]:
    return b'{"id":"a","prompt":"one"}\n', b'{"id":"b","prompt":"two"}\n'


def test_unicode_separators_are_content_in_prompts_answers_sidecars_and_results(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.data("unicode-separators")

        ended = job.run()

        assert ended.code == 0, ended.err
        assert sorted(server.prompts()) == sorted(SEPARATORS)
        assert job.outputs() == ok(SEPARATORS)
        assert job.file("results.jsonl").read_bytes().count(b"\n") == len(SEPARATORS)
        assert job.file("success.jsonl").read_bytes().count(b"\n") == len(SEPARATORS)


def test_unicode_separators_survive_a_kill_and_a_resume(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, limits__concurrency=1)
        job.data("unicode-separators")
        running = job.start_run("--set", "limits.rpm=240")
        server.wait_for_answers(3)
        wait_for_lines(job.file("success.jsonl"), 3)
        running.kill()
        before = len(server.log)
        kept = job.file("success.jsonl").read_bytes().count(b"\n")

        ended = job.resume()

        assert ended.code == 0, ended.err
        assert len(server.log) - before == len(SEPARATORS) - kept
        assert job.outputs() == ok(SEPARATORS)
        assert job.stats()["rows"]["succeeded"] == len(SEPARATORS)


@pytest.mark.parametrize("block", [64, 4096, 65_536, 262_144])
def test_crlf_line_ends_make_no_rows_of_their_own_wherever_a_block_ends(
    tmp_path: Path, block: int
) -> None:
    head, tail = b'{"id":"a","prompt":"', b'"}'
    first = head + b"x" * (block - 1 - len(head) - len(tail)) + tail + b"\r\n"
    lone = b'{"id":"b",\r"prompt":"lone CR between tokens"}\r\n'
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.input.write_bytes(first + lone + b'{"id":"c","prompt":"last"}\r\n')
        assert first[block - 1 : block + 1] == b"\r\n"

        ended = job.run()

        assert ended.code == 0, ended.err
        assert [line["id"] for line in job.results()] == ["a", "b", "c"]
        assert [line["row"] for line in job.results()] == [0, 1, 2]
        assert sorted(map(len, server.prompts())) == sorted([len(first) - 24, 22, 4])
        assert not any("\r" in prompt for prompt in server.prompts())
        assert job.file("results.jsonl").read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    "text",
    [
        b'\xef\xbb\xbf{"id":"a","prompt":"one"}\n{"id":"b","prompt":"two"}\n',
        b'{"id":"a","prompt":"one"}\n{"id":"b","prompt":"two"}',
        b'\n{"id":"a","prompt":"one"}\n\n  \t\r\n{"id":"b","prompt":"two"}\n\n',
    ],
    ids=["a byte order mark", "no final newline", "blank lines"],
)
def test_what_surrounds_rows_is_no_row(tmp_path: Path, text: bytes) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.input.write_bytes(text)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert ended.summary["rows"]["total"] == 2
        assert job.outputs() == ok(["one", "two"])
        assert job.verify().startswith("2 rows")


def test_an_empty_input_is_done_without_a_request_and_has_empty_results(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.input.write_bytes(b"")

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert ended.summary["rows"]["total"] == 0
        assert job.results() == []
        assert server.log == []


def test_an_input_that_is_not_there_is_named_and_ends_with_66(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)

        ended = job.run()

        assert ended.code == 66
        assert "input.jsonl" in ended.err
        assert not job.file("success.jsonl").exists()


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip.compress), ("zst", zstd.compress)], ids=["gzip", "zstd"]
)
def test_every_member_of_a_compressed_input_is_read(
    tmp_path: Path, ending: str, pack: Pack
) -> None:
    one, two = _two_rows()
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.input = tmp_path / f"input.jsonl.{ending}"
        job.input.write_bytes(pack(one) + pack(two))

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert ended.summary["rows"]["total"] == 2
        assert job.outputs() == ok(["one", "two"])
        assert job.verify().startswith("2 rows")


def test_a_compressed_input_that_is_cut_short_keeps_its_rows_and_says_so(tmp_path: Path) -> None:
    rows = b"".join(b'{"prompt":"%d %d"}\n' % (n, n**7) for n in range(2000))
    packed = gzip.compress(rows)
    with FakeServer() as server:
        job = Job(tmp_path, server, limits__concurrency=8)
        job.input = tmp_path / "input.jsonl.gz"
        job.input.write_bytes(packed[: len(packed) // 2])

        ended = job.run()

        assert ended.code == 66
        assert "cut short" in ended.err
        assert "Traceback" not in ended.err


def test_standard_input_is_read_and_its_job_can_be_looked_at_afterwards(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.prefix = str(tmp_path / "out")
        read_end, write_end = os.pipe()
        arguments = ("run", "-", "--config", str(job.config), "--output", job.prefix)
        running = job.start(*arguments, stdin=read_end)
        os.close(read_end)
        os.write(write_end, b"".join(_two_rows()))
        os.close(write_end)

        ended = running.wait()

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(["one", "two"])
        verified = job.command("verify", "--output", job.prefix)
        assert verified.code == 0, verified.err
        stats = job.command("stats", "--output", job.prefix, "--json")
        assert stats.summary["rows"]["succeeded"] == 2


def test_standard_input_without_an_output_is_a_usage_error(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)

        ended = job.command("run", "-", "--config", str(job.config))

        assert ended.code == 2
        assert "--output" in ended.err


def test_rows_of_a_slow_pipe_are_sent_before_its_end(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.prefix = str(tmp_path / "out")
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        arguments = ("run", str(fifo), "--config", str(job.config), "--output", job.prefix)
        running = job.start(*arguments)
        one, two = _two_rows()
        with fifo.open("wb", buffering=0) as pipe:
            pipe.write(one)
            server.wait_for_answers(1)  # the pipe is still open
            pipe.write(two[:9])
            pipe.write(two[9:])
            server.wait_for_answers(2)

        ended = running.wait()

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(["one", "two"])


def test_a_run_on_the_same_stream_again_sends_only_new_rows(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.prefix = str(tmp_path / "out")
        feed = tmp_path / "feed"
        for prompts in (["one", "two"], ["one", "two", "three"]):
            feed.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
            with feed.open("rb") as stream:
                arguments = ("run", "-", "--config", str(job.config), "--output", job.prefix)
                ended = job.start(*arguments, stdin=stream.fileno()).wait()
            assert ended.code == 0, ended.err
            assert job.outputs() == ok(prompts)

        assert sorted(server.prompts()) == sorted(["one", "two", "three"])
