import stat
from pathlib import Path

import orjson
import pytest
from msgspec import structs

from batchinfer.errors import DamagedJournalError, Exit, StorageError
from batchinfer.journal import manifest
from batchinfer.journal.manifest import Chunk, Input, Manifest, Rows, Sidecars

MINE = Manifest(
    tool_version="0.1.0",
    run_id="r1",
    input=Input("reviews.jsonl", 1000, 123456789),
    fingerprint="ab" * 16,
    config={"limits": {"rpm": 500.0, "concurrency": "auto"}, "request": {"prompt": "{{ é }}"}},
    started_at="2025-01-31T12:00:00Z",
    updated_at="2025-01-31T12:00:05Z",
    ended="partial",
    reason="3 rows failed",
    concurrency=64,
    possibly_rebilled=7,
    rows=Rows(10, 6, 3, 1, 0),
    elapsed_s=5.25,
    chunks=(Chunk(0, 600, 6), Chunk(600, 400, 4)),
    sidecars=Sidecars(6000, 300),
    pid=77,
    host="a-host",
)


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "reviews.run.json"
    manifest.write(path, MINE)

    assert manifest.read(path) == MINE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_chunk_is_written_as_three_numbers(tmp_path: Path) -> None:
    path = tmp_path / "reviews.run.json"
    manifest.write(path, MINE)

    assert orjson.loads(path.read_bytes())["chunks"] == [[0, 600, 6], [600, 400, 4]]


def test_writing_again_replaces_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "reviews.run.json"
    manifest.write(path, MINE)
    manifest.write(path, structs.replace(MINE, chunks=(), ended="finished"))
    found = manifest.read(path)

    assert found is not None
    assert (found.ended, found.chunks) == ("finished", ())
    assert list(tmp_path.iterdir()) == [path]


def test_no_manifest_is_none(tmp_path: Path) -> None:
    assert manifest.read(tmp_path / "none.run.json") is None


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"v":1}', b"\xff", b'{"v":' + b"[" * 100_000]
)
def test_what_is_no_manifest_is_damage_and_names_the_file(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.run.json"
    path.write_bytes(text)

    with pytest.raises(DamagedJournalError, match=r"x\.run\.json") as caught:
        manifest.read(path)
    assert caught.value.exit_code is Exit.DAMAGED


def test_every_prefix_of_a_manifest_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.run.json"
    manifest.write(path, MINE)
    text = path.read_bytes().rstrip()
    for end in range(len(text)):
        path.write_bytes(text[:end])
        with pytest.raises(DamagedJournalError):
            manifest.read(path)


def test_a_newer_manifest_says_so_whatever_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "x.run.json"
    path.write_bytes(b'{"v":2,"other":"shape"}')

    with pytest.raises(DamagedJournalError, match="newer batchinfer"):
        manifest.read(path)


def test_a_manifest_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: Is a directory"):
        manifest.read(tmp_path)


def test_the_files_of_a_job_are_named_after_its_prefix() -> None:
    found = manifest.paths("out.d/reviews.v1")

    assert [str(path) for path in structs.astuple(found)] == [
        "out.d/reviews.v1.success.jsonl",
        "out.d/reviews.v1.failure.jsonl",
        "out.d/reviews.v1.run.json",
        "out.d/reviews.v1.results.jsonl",
    ]


def test_the_holder_is_a_phrase_for_the_lock_message() -> None:
    assert MINE.holder == "process 77 on a-host, started 2025-01-31T12:00:00Z"
