"""kill -9 at random moments: what is on the disk stays, what stands there is never asked again."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from cli import Job, lines_of
from fakeserver import FakeServer, Step, answer

CONCURRENCY = 32
UNSYNCED = 64


def _slow(prompt: str, attempt: int) -> Step:
    """Answer in 15 to 55 ms, the same text whenever it is asked."""
    return answer(f"ok:{prompt}", delay=0.015 + (hash((prompt, attempt)) % 40) / 1000)


def _recorded(path: Path) -> list[str]:
    """Return the rows with a whole record; a kill may have torn the last line."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    copy = path.with_suffix(".copy")
    copy.write_bytes(whole + b"\n" if whole else b"")
    return [str(line["id"]) for line in lines_of(copy)]


def _kill_again_and_again(folder: Path, rows: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    with FakeServer(_slow) as server:
        job = Job(folder, server, limits__concurrency=CONCURRENCY)
        prompts = job.plain(rows)
        recorded: list[str] = []
        for _ in range(kills):
            since = len(server.log)
            running = job.start_run()
            server.wait_for(lambda at=since: len(server.log) > at)  # type: ignore[misc]
            time.sleep(chance.random() * 0.1)
            running.kill()
            asked = server.prompts(since)
            assert not {f"p {name}" for name in recorded} & set(asked)
            now = _recorded(job.file("success.jsonl"))
            assert now[: len(recorded)] == recorded
            assert len(asked) - (len(now) - len(recorded)) <= CONCURRENCY + UNSYNCED
            recorded = now
        last = job.run()

        assert 0 < len(recorded) < rows
        assert last.code == 0, last.err
        assert job.outputs() == [f"ok:{prompt}" for prompt in prompts]
        assert max(Counter(line["key"] for line in job.successes()).values()) == 1
        assert set(server.prompts()) == set(prompts)
        job.verify()


def test_a_job_killed_a_few_times_loses_nothing_and_asks_nothing_twice(tmp_path: Path) -> None:
    _kill_again_and_again(tmp_path, rows=600, kills=4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_job_killed_thirty_times_loses_nothing_and_asks_nothing_twice(
    tmp_path: Path, seed: int
) -> None:
    _kill_again_and_again(tmp_path, rows=2000, kills=30, seed=seed)
