"""Pace, waiting, timeouts, outages, proxies: the real command line over real sockets."""

import time
from email.utils import formatdate
from pathlib import Path

import pytest
from cli import Job, ok
from fakeserver import RESET, FakeServer, Step, answer, refuse

TRANSPORTS = ["pyreqwest", "httpx"]


def _most_in_a_window(server: FakeServer, seconds: float) -> int:
    times = sorted(seen.at for seen in server.log)
    return max(sum(1 for at in times if start <= at < start + seconds) for start in times)


# ── pace ─────────────────────────────────────────────────────────────────────────────────────


def test_no_window_holds_more_requests_than_the_limit_at_the_start_or_after_a_standstill(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        server.script = lambda *_: answer("x", hold=20 <= len(server.log) < 60)
        job = Job(tmp_path, server, limits__rpm=1200, limits__concurrency=24)
        job.plain(90)
        running = job.start_run()
        server.wait_for(lambda: server.in_flight == 24)
        time.sleep(1.0)  # the standstill
        server.release()

        ended = running.wait()

        assert ended.code == 0, ended.err
        assert len(server.log) == 90
        # 20 a second; a few more, for requests that left in time can still arrive together.
        assert _most_in_a_window(server, 2.0) <= 40 + 10


def test_no_window_holds_more_tokens_than_the_limit(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 400, "completion_tokens": 100, "total_tokens": 500}
    with FakeServer(lambda *_: answer("x", usage=usage)) as server:
        # 600,000 a minute are 20 answers of 500 tokens a second.
        job = Job(tmp_path, server, limits__tpm=600_000, limits__concurrency=4)
        job.plain(60)

        assert job.run().code == 0
        assert _most_in_a_window(server, 1.0) <= 20 + 4 + 20  # the start is on an estimate


# ── what a server says about waiting ─────────────────────────────────────────────────────────


def test_a_spent_quota_stops_the_run_at_once_and_leaves_rows_pending(tmp_path: Path) -> None:
    error = {"code": "insufficient_quota", "type": "insufficient_quota", "message": "pay first"}
    with FakeServer() as server:
        server.script = lambda *_: refuse(429, error) if len(server.log) > 5 else None
        job = Job(tmp_path, server)
        prompts = job.plain(50)

        stopped = job.run("--json")

        assert stopped.code == 75
        assert "pay first" in stopped.err
        assert len(server.log) <= 5 + 4
        assert len(job.successes()) == 5
        assert job.failures() == []
        assert stopped.summary["rows"]["pending"] == 45
        assert stopped.summary["ended"] == "partial"

        server.script = None
        assert job.resume().code == 0
        assert job.outputs() == ok(prompts)
        assert set(server.billed().values()) == {1}


@pytest.mark.parametrize("text", ["Thu, 01 Jan 1998 00:00:00 GMT", "soon", "-5", "0.5", ""])
def test_a_wait_that_makes_no_sense_is_no_reason_to_break(tmp_path: Path, text: str) -> None:
    def script(prompt: str, attempt: int) -> Step | None:
        return refuse(429, {"message": "slow"}, retry_after=text) if attempt == 1 else None

    with FakeServer(script) as server:
        job = Job(tmp_path, server)
        prompts = job.plain(2)

        ended = job.run()

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert [server.asked(prompt) for prompt in prompts] == [2, 2]


def test_a_date_to_wait_for_is_waited_for_by_every_row(tmp_path: Path) -> None:
    until = int(time.time()) + 3
    monotonic = until - time.time() + time.monotonic()

    def script(prompt: str, attempt: int) -> Step | None:
        if (prompt, attempt) != ("p r001", 1):
            return None
        return refuse(429, {"message": "slow"}, retry_after=formatdate(until, usegmt=True))

    with FakeServer(script) as server:
        job = Job(tmp_path, server, limits__concurrency=1)
        prompts = job.plain(4)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert server.prompts()[0] == "p r001"
        assert all(seen.at >= monotonic - 0.05 for seen in server.log[1:])
        assert ended.summary["requests"]["rate_limited"] == 1


# ── connections and timeouts ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_waiting_for_a_slot_never_times_a_request_out(tmp_path: Path, transport: str) -> None:
    with FakeServer(lambda prompt, _: answer(f"ok:{prompt}", delay=0.5)) as server:
        job = Job(tmp_path, server, limits__concurrency=200, endpoint__transport=transport)
        job.settings["timeouts.total"] = 3
        job.write_config()
        prompts = job.plain(400)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert ended.summary["requests"]["sent"] == len(server.log) == 400
        assert 100 < server.most_in_flight <= 200


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_drips_is_cut_off_at_the_total_timeout(
    tmp_path: Path, transport: str
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    drip = [(0.0, head), *[(0.1, b" ")] * 1000]
    with FakeServer(lambda prompt, _: Step(raw=drip) if prompt == "p r003" else None) as server:
        job = Job(tmp_path, server, endpoint__transport=transport, retry__attempts=2)
        job.settings |= {"timeouts.total": 0.6, "timeouts.read": 0.5}
        job.write_config()
        prompts = job.plain(10)
        prompts[2] = ""

        ended = job.run("--json")

        assert ended.code == 3, ended.err
        assert job.outputs() == [f"ok:{prompt}" if prompt else None for prompt in prompts]
        assert job.error_classes()[2] == "timeout"
        assert server.asked("p r003") == 2
        assert ended.summary["requests"]["ambiguous"] == 2
        assert ended.summary["elapsed_s"] < 10


def test_a_row_is_given_up_at_its_deadline(tmp_path: Path) -> None:
    with FakeServer(lambda *_: refuse(500, {"message": "broken"})) as server:
        job = Job(tmp_path, server, retry__attempts=1000, timeouts__deadline=0.6)
        job.plain(1)

        ended = job.run()

        assert ended.code == 3, ended.err
        assert job.error_classes() == ["deadline"]
        assert 2 <= server.asked("p r001") < 1000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_connection_that_breaks_is_made_again(tmp_path: Path, transport: str) -> None:
    with FakeServer(lambda _, attempt: RESET if attempt == 1 else None) as server:
        job = Job(tmp_path, server, endpoint__transport=transport)
        prompts = job.plain(8)

        ended = job.run("--json")

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)
        assert ended.summary["requests"]["ambiguous"] == 8


def test_connections_are_used_again(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.plain(60)

        assert job.run().code == 0
        assert len({seen.connection for seen in server.log}) <= 8


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_too_few_open_files_are_warned_about_and_fail_no_row(
    tmp_path: Path, transport: str
) -> None:
    with FakeServer(lambda prompt, _: answer(f"ok:{prompt}", delay=0.05)) as server:
        job = Job(tmp_path, server, limits__concurrency=64, endpoint__transport=transport)
        prompts = job.plain(150)

        ended = job.start_run("--json", before="ulimit -n 40").wait()

        assert ended.code == 0, ended.err
        assert "ulimit -n" in ended.err
        assert job.outputs() == ok(prompts)
        sent = {"sent": 150, "retried": 0, "ambiguous": 0, "rate_limited": 0}
        assert ended.summary["requests"] == job.stats()["requests"] == sent


# ── outages ──────────────────────────────────────────────────────────────────────────────────


def test_an_endpoint_that_was_never_there_ends_the_run_with_69_and_fails_no_row(
    tmp_path: Path,
) -> None:
    with FakeServer() as server:
        server.shut()
        job = Job(tmp_path, server)
        job.plain(5)

        stopped = job.run()

        assert stopped.code == 69
        assert f"127.0.0.1:{server.port}" in stopped.err
        assert job.failures() == []
        assert job.stats()["rows"]["pending"] == 5


def test_an_endpoint_that_goes_away_ends_the_run_with_75_and_fails_no_row(tmp_path: Path) -> None:
    with FakeServer() as server, FakeServer() as other:
        job = Job(tmp_path, server, retry__max_outage=0.8, limits__rpm=1200)
        prompts = job.plain(40)
        running = job.start_run()
        server.wait_for_answers(8)
        server.shut()

        stopped = running.wait()

        assert stopped.code == 75, stopped.err
        assert "did not come back" in stopped.err
        assert job.failures() == []
        kept = len(job.successes())
        assert kept >= 8

        elsewhere = ("--set", f"endpoint.base_url={other.url}", "--set", "limits.rpm=60000")
        assert job.resume(*elsewhere).code == 0
        assert job.outputs() == ok(prompts)
        assert len(other.log) == 40 - kept


# ── proxies ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("env", "transport"),
    [
        ({"NO_PROXY": "localhost,fe80::/10"}, "pyreqwest"),
        ({"NO_PROXY": "localhost,[::1]"}, "pyreqwest"),
        ({"NO_PROXY": "localhost,fe80::/10,[::1]"}, "httpx"),
        ({"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}, "pyreqwest"),
        ({"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "fe80::/10,127.0.0.0/8"}, "httpx"),
        ({"ALL_PROXY": "socks5://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}, "pyreqwest"),
        ({"ALL_PROXY": "socks5://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}, "httpx"),
    ],
    ids=str,
)
def test_odd_proxy_variables_do_not_keep_a_run_from_a_host_they_exclude(
    tmp_path: Path, env: dict[str, str], transport: str
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, endpoint__transport=transport)
        job.env = env
        prompts = job.plain(3)

        ended = job.run()

        assert ended.code == 0, ended.err
        assert job.outputs() == ok(prompts)


@pytest.mark.parametrize(
    ("variable", "value", "transport"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "pyreqwest"),
        ("ALL_PROXY", "socks5://127.0.0.1:9", "httpx"),
        ("HTTP_PROXY", "http://127.0.0.1:port", "pyreqwest"),
        ("http_proxy", "ftp://127.0.0.1", "httpx"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_before_a_row_is_sent(
    tmp_path: Path, variable: str, value: str, transport: str
) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server, endpoint__transport=transport)
        job.env = {variable: value}
        job.plain(3)

        ended = job.run()

        assert ended.code == 78, ended.err
        assert variable in ended.err
        assert "127.0.0.1" in ended.err
        assert job.failures() == []
        assert server.log == []


def test_a_proxy_that_is_not_there_fails_no_row(tmp_path: Path) -> None:
    with FakeServer() as server:
        job = Job(tmp_path, server)
        job.env = {"HTTP_PROXY": "http://127.0.0.1:9"}
        job.plain(3)

        ended = job.run()

        assert ended.code == 69, ended.err
        assert "127.0.0.1:9" in ended.err
        assert job.failures() == []
