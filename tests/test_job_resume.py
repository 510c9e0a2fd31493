from pathlib import Path

import pytest
from jobbench import CONFIG, Bench

from batchinfer.config.schema import Config
from batchinfer.errors import (
    NoInputError,
)
from batchinfer.job.resume import any_target, stored_config


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


# ── the configuration that a job keeps ───────────────────────────────────────────────────────


def stored(bench: Bench, config: str | None = None, sets: tuple[str, ...] = ()) -> Config:
    return stored_config(bench.target, config, sets, {}, lambda path: Path(path).read_bytes())


def test_a_job_goes_on_with_the_configuration_it_was_started_with(bench: Bench) -> None:
    bench.whole()

    again = stored(bench, sets=("limits.concurrency=2",))

    assert again.limits.concurrency == 2
    assert again.endpoint == CONFIG.endpoint
    assert again.request == CONFIG.request
    bench.run(again)
    assert len(bench.posts) == 5


def test_another_file_may_be_named(bench: Bench) -> None:
    file = bench.folder / "job.toml"
    file.write_text('[endpoint]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "other"\n')

    loaded = stored(bench, str(file))

    assert loaded.endpoint is not None
    assert loaded.endpoint.model == "other"


def test_without_a_job_there_is_nothing_to_resume(bench: Bench) -> None:
    with pytest.raises(NoInputError, match="there is no run of"):
        any_target(str(bench.input), None, bench.input.parent)
