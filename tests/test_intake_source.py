import contextlib
import gzip
import os
import random
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchinfer.errors import CannotCreateError, NoInputError, StorageError
from batchinfer.intake.source import Input, is_stream, open_input

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DATA = b"".join(b'{"n": %d}\n' % number for number in range(3000))
HALF = len(DATA) // 2
NOISE = random.Random(1).randbytes(100_000)


def everything(source: Input, size: int = 1000) -> bytes:
    return b"".join(iter(lambda: source.read(size), b""))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[bytes], Input]]:
    with contextlib.ExitStack() as stack:

        def make(content: bytes) -> Input:
            path = tmp_path / "in.jsonl"
            path.write_bytes(content)
            return stack.enter_context(contextlib.closing(open_input(str(path))))

        yield make


@pytest.mark.parametrize(
    "content",
    [
        DATA,
        gzip.compress(DATA),
        gzip.compress(DATA[:HALF]) + gzip.compress(DATA[HALF:]),
        gzip.compress(DATA) + b"\0" * 100,
        zstd.compress(DATA),
        zstd.compress(DATA[:HALF]) + zstd.compress(DATA[HALF:]),
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstd.compress(DATA),
    ],
    ids=["plain", "gzip", "gzip members", "gzip padded", "zstd", "zstd frames", "zstd skippable"],
)
def test_the_content_tells_how_it_is_compressed(
    made: Callable[[bytes], Input], content: bytes
) -> None:
    assert everything(made(content)) == DATA


def test_an_empty_file_is_an_empty_input(made: Callable[[bytes], Input]) -> None:
    assert everything(made(b"")) == b""


def damaged(content: bytes) -> bytes:
    middle = len(content) // 2
    return (
        content[:middle]
        + bytes(b ^ 0xFF for b in content[middle : middle + 40])
        + content[middle + 40 :]
    )


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(NOISE)[:-20],
        gzip.compress(DATA)[:-4],
        damaged(gzip.compress(DATA)),
        damaged(gzip.compress(NOISE)),
        gzip.compress(DATA) + b"junk",
        zstd.compress(DATA)[:-4],
        damaged(zstd.compress(NOISE, options={zstd.CompressionParameter.checksum_flag: 1})),
        zstd.compress(DATA) + b"junk",
    ],
)
def test_damaged_or_cut_compressed_data_is_told_as_such(
    made: Callable[[bytes], Input], content: bytes
) -> None:
    source = made(content)

    with pytest.raises(NoInputError, match=r"cannot read .*in\.jsonl further: .*again continues"):
        everything(source)


def test_a_disk_that_cannot_read_on_is_told_as_such(
    made: Callable[[bytes], Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(DATA)

    class Bad:
        def read(self, _: int) -> bytes:
            raise OSError(5, "Input/output error")

        def close(self) -> None:
            return None

    monkeypatch.setattr(source, "_stream", Bad())

    with pytest.raises(NoInputError, match="further: Input/output error; what"):
        source.read(10)


def test_a_missing_file_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match=r"cannot read .*none\.jsonl: No such file"):
        open_input(str(tmp_path / "none.jsonl"))


def test_a_folder_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match="is a folder"):
        open_input(str(tmp_path))


def test_a_file_says_how_far_it_has_been_read(made: Callable[[bytes], Input]) -> None:
    source = made(DATA)

    assert source.fraction() == 0.0
    source.read(HALF)
    assert source.fraction() == pytest.approx(0.5, abs=0.01)
    everything(source)
    assert source.fraction() == 1.0


def test_a_compressed_file_says_how_far_its_own_bytes_have_been_read(
    made: Callable[[bytes], Input],
) -> None:
    source = made(gzip.compress(NOISE))

    assert source.fraction() == 0.0
    source.read(len(NOISE) // 2)
    assert 0.3 < (source.fraction() or 0.0) < 0.9


def test_a_regular_file_is_no_stream_and_all_else_is(tmp_path: Path) -> None:
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)

    assert not is_stream(str(file))
    assert not is_stream(str(tmp_path / "missing"))
    assert is_stream(str(pipe))
    assert is_stream("/dev/null")
    assert is_stream("-")


def test_a_pipe_is_read_to_its_end_and_copied(tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    feeding = threading.Thread(target=pipe.write_bytes, args=(DATA,))
    feeding.start()

    with contextlib.closing(open_input(str(pipe))) as source:
        source.keep(copy)
        assert everything(source) == DATA
        assert source.fraction() is None
    feeding.join()

    assert copy.read_bytes() == DATA
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_standard_input_is_read_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        os.write(writing, DATA[:4096])
        os.close(writing)
        source = open_input("-")
        assert source.path == "standard input"
        assert everything(source) == DATA[:4096]
        source.close()
        os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reading)


def test_the_copy_is_complete_whenever_a_block_has_been_returned(
    made: Callable[[bytes], Input], tmp_path: Path
) -> None:
    source, copy = made(DATA), tmp_path / "copy"
    source.keep(copy)
    read = b""

    while block := source.read(1000):
        read += block
        assert copy.read_bytes() == read


def test_a_copy_that_cannot_be_created_is_told(
    made: Callable[[bytes], Input], tmp_path: Path
) -> None:
    with pytest.raises(CannotCreateError, match=r"cannot create .*missing/copy: No such"):
        made(DATA).keep(tmp_path / "missing" / "copy")


def test_a_full_disk_under_the_copy_is_a_storage_error(
    made: Callable[[bytes], Input], tmp_path: Path
) -> None:
    source, copy = made(DATA), tmp_path / "copy"
    source.keep(copy)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"copy cannot be written: File too large"):
            everything(source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert copy.read_bytes() == DATA[:HALF]


def test_a_reader_that_outlives_the_close_gets_an_error_of_the_family(
    made: Callable[[bytes], Input], tmp_path: Path
) -> None:
    source = made(DATA)
    source.keep(tmp_path / "copy")
    assert source._copy is not None
    source._copy[1].close()

    with pytest.raises(StorageError, match="it is closed"):
        source.read(10)

    source.close()
    with pytest.raises(NoInputError):
        source.read(10)
