import fcntl
import io
import json
from pathlib import Path

import pytest
from fakes import error
from jobbench import MAX_LINE, Bench, failing
from msgspec import structs

from batchinfer.errors import (
    NoInputError,
    UsageError,
)
from batchinfer.job.finish import prove, status, write_results
from batchinfer.job.run import FINISHED
from batchinfer.journal.manifest import write


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


# ── looking ──────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_never_ran_has_no_status(bench: Bench) -> None:
    with pytest.raises(NoInputError, match=r"there is no run of .*in\.jsonl"):
        status(bench.target, MAX_LINE)


def test_the_status_comes_from_the_files_alone(bench: Bench) -> None:
    live_summary = bench.whole()

    summary = status(bench.target, MAX_LINE)

    assert summary.rows == live_summary.rows
    assert summary.tokens == live_summary.tokens
    assert (summary.ended, summary.cost_usd) == (FINISHED, live_summary.cost_usd)


def test_a_job_that_says_it_runs_is_running_while_its_journal_is_locked(bench: Bench) -> None:
    bench.whole()
    write(bench.target.paths.manifest, structs.replace(bench.manifest, ended="running"))

    assert status(bench.target, MAX_LINE).ended == "killed"
    with bench.target.paths.success.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert status(bench.target, MAX_LINE).ended == "running"
    bench.target.paths.success.unlink()
    summary = status(bench.target, MAX_LINE)
    assert summary.ended == "killed"
    assert summary.elapsed_s >= 0


def test_results_can_be_merged_at_any_time_in_any_shape(bench: Bench) -> None:
    bench.script = failing({"p1"}, error(400))
    bench.run()
    stream = io.BytesIO()

    counts = write_results(bench.target, MAX_LINE, "flat", stream)

    assert (counts.rows, counts.succeeded, counts.failed) == (5, 4, 1)
    assert [json.loads(line)["id"] for line in stream.getvalue().splitlines()] == [
        f"r{n}" for n in range(5)
    ]
    assert not bench.target.paths.results.exists()


def test_a_result_that_is_not_its_records_is_found(bench: Bench) -> None:
    bench.whole()
    results = bench.target.paths.results
    results.write_bytes(results.read_bytes().replace(b'"yes"', b'"no"', 1))

    assert prove(bench.target, MAX_LINE).problems


@pytest.mark.parametrize("name", ["in.jsonl", "in.success.jsonl", "in.failure.jsonl"])
def test_a_merge_never_replaces_what_cannot_be_made_again(bench: Bench, name: str) -> None:
    bench.whole()
    place = bench.folder / "." / name
    before = place.read_bytes()

    with pytest.raises(UsageError, match="merge to another file"):
        write_results(bench.target, MAX_LINE, "results", place)

    assert place.read_bytes() == before
