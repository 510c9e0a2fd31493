import os
import resource
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from batchinfer.errors import AmbiguousTargetError, CannotCreateError, NoInputError, UsageError
from batchinfer.job.resume import any_target, max_line, targets
from batchinfer.job.target import (
    make_folder,
    manifests,
    raise_file_limit,
    target_of,
    the_unfinished,
    unfinished,
)
from batchinfer.journal.manifest import Input, Manifest, write


def manifest(path: str, ended: str = "partial", config: dict[str, Any] | None = None) -> Manifest:
    return Manifest(
        tool_version="0",
        run_id="r",
        input=Input(path),
        fingerprint="f",
        config=config or {},
        started_at="s",
        updated_at="u",
        ended=ended,
        pid=1,
        host="h",
    )


def job(folder: Path, name: str, ended: str = "partial", **config: Any) -> Path:
    path = folder / f"{name}.run.json"
    write(path, manifest(str(folder / f"{name}.jsonl"), ended, config))
    return path


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("a/reviews.jsonl", "a/reviews"),
        ("reviews.jsonl.gz", "reviews"),
        ("reviews.ndjson.zst", "reviews"),
        ("reviews.json.zstd", "reviews"),
        ("reviews.txt", "reviews.txt"),
        ("reviews", "reviews"),
        ("reviews.gz", "reviews"),
        ("a.b/.jsonl", "a.b/.jsonl"),
        ("x.jsonl.jsonl", "x.jsonl"),
    ],
)
def test_outputs_are_named_after_the_input(path: str, prefix: str) -> None:
    target = target_of(path, None)

    assert target.prefix == prefix
    assert target.paths.success == Path(f"{prefix}.success.jsonl")
    assert (target.input, target.again, target.streamed) == (path, path, False)


def test_a_prefix_of_the_users_own_counts() -> None:
    target = target_of("reviews.jsonl", "out/mine")

    assert target.paths.results == Path("out/mine.results.jsonl")
    assert target.again == "reviews.jsonl"


def test_what_comes_only_once_is_read_again_from_a_copy(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for path in ("-", str(pipe)):
        target = target_of(path, "out/mine")
        assert (target.streamed, target.again) == (True, "out/mine.input.jsonl")


def test_what_comes_only_once_needs_a_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(UsageError, match="standard input has no name"):
        target_of("-", None)
    with pytest.raises(UsageError, match=r"pipe has no name"):
        target_of(str(pipe), None)


@pytest.mark.parametrize(
    "ending", [".success.jsonl", ".failure.jsonl", ".run.json", ".results.jsonl"]
)
def test_an_input_is_never_an_output_of_itself(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"

    with pytest.raises(UsageError, match="an output of itself"):
        target_of(str(path), str(tmp_path / "sub" / ".." / "x"))


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.jsonl")

    with pytest.raises(UsageError, match="not valid UTF-8"):
        target_of(name, None)
    with pytest.raises(UsageError, match="not valid UTF-8"):
        target_of("x.jsonl", name)


def test_the_folder_of_the_outputs_is_made(tmp_path: Path) -> None:
    target = target_of("x.jsonl", str(tmp_path / "a" / "b" / "mine"))
    make_folder(target)
    make_folder(target)

    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CannotCreateError, match=r"cannot create the folder .*file/sub"):
        make_folder(target_of("x.jsonl", str(tmp_path / "file" / "sub" / "mine")))


# ── finding a job again ──────────────────────────────────────────────────────────────────────


def test_the_jobs_of_a_folder_are_told_by_their_manifests(tmp_path: Path) -> None:
    b, a = job(tmp_path, "b", "finished"), job(tmp_path, "a")
    (tmp_path / "c.success.jsonl").touch()

    assert [path for path, _ in manifests(tmp_path)] == [a, b]
    assert [path for path, _ in unfinished(tmp_path)] == [a]
    assert the_unfinished(tmp_path)[0] == a


def test_several_unfinished_jobs_are_listed(tmp_path: Path) -> None:
    job(tmp_path, "a", "interrupted")
    job(tmp_path, "b", "running")

    with pytest.raises(AmbiguousTargetError, match=r"--all:\n  .*a\.jsonl .*\n  .*b\.jsonl"):
        the_unfinished(tmp_path)


def test_a_folder_without_an_unfinished_job_says_so(tmp_path: Path) -> None:
    job(tmp_path, "a", "finished")

    with pytest.raises(AmbiguousTargetError, match="no unfinished run in"):
        the_unfinished(tmp_path)


def test_a_resume_takes_the_named_the_one_or_all(tmp_path: Path) -> None:
    job(tmp_path, "a")

    [named] = targets(str(tmp_path / "a.jsonl"), None, tmp_path, every=False)
    assert named.prefix == str(tmp_path / "a")
    [only] = targets(None, None, tmp_path, every=False)
    assert (only.input, only.prefix) == (str(tmp_path / "a.jsonl"), str(tmp_path / "a"))
    job(tmp_path, "b")
    both = targets(None, None, tmp_path, every=True)
    assert [Path(t.prefix).name for t in both] == ["a", "b"]


def test_a_stream_that_was_read_in_part_only_is_not_continued_from_its_copy(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "a.input.jsonl"
    write(tmp_path / "a.run.json", manifest(str(copy)))

    with pytest.raises(NoInputError, match="not read to its end"):
        targets(None, None, tmp_path, every=False)

    whole = structs.replace(manifest(str(copy)), input=Input(str(copy), 5, 1))
    write(tmp_path / "a.run.json", whole)
    assert [t.input for t in targets(None, None, tmp_path, every=False)] == [str(copy)]


def test_a_job_may_be_named_by_its_manifest_or_its_prefix(tmp_path: Path) -> None:
    path = job(tmp_path, "a")

    by_manifest = any_target(str(path), None, tmp_path)
    by_prefix = any_target(None, str(tmp_path / "a"), tmp_path)

    assert by_manifest == by_prefix
    assert by_manifest.input == str(tmp_path / "a.jsonl")


def test_a_prefix_without_a_job_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match="there is no run at"):
        any_target(None, str(tmp_path / "none"), tmp_path)


def test_without_a_name_the_folders_only_job_is_meant(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the input file"):
        any_target(None, None, tmp_path)
    job(tmp_path, "a", "finished")
    assert any_target(None, None, tmp_path).prefix == str(tmp_path / "a")
    job(tmp_path, "b")
    with pytest.raises(UsageError, match=r"several jobs here, name one: .*a\.jsonl, .*b\.jsonl"):
        any_target(None, None, tmp_path)


def test_the_longest_line_is_what_the_job_was_started_with(tmp_path: Path) -> None:
    target = target_of(str(tmp_path / "a.jsonl"), None)
    assert max_line(target) == 16 * 1024 * 1024
    job(tmp_path, "a")
    assert max_line(target) == 16 * 1024 * 1024
    job(tmp_path, "a", intake={"max_line": 500})
    assert max_line(target) == 500


# ── open files ───────────────────────────────────────────────────────────────────────────────


class Limits:
    """The limit on open files, as a system may have set it."""

    def __init__(self, patch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.now = (soft, hard)
        patch.setattr(resource, "getrlimit", lambda _: self.now)
        patch.setattr(resource, "setrlimit", self.set)

    def set(self, _: int, limits: tuple[int, int]) -> None:
        assert limits[1] == self.now[1]
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "after", "warned"),
    [
        (1024, 4096, 1024, False),
        (100, 4096, 500, False),
        (100, resource.RLIM_INFINITY, 500, False),
        (100, 300, 300, True),
    ],
)
def test_as_many_files_may_be_open_as_the_concurrency_needs(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int, warned: bool
) -> None:
    limits = Limits(monkeypatch, soft, hard)

    warning = raise_file_limit(500)

    assert limits.now == (after, hard)
    assert (warning is not None) == warned
    assert warning is None or "only 300 files" in warning
