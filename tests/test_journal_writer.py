import errno
import os
import resource
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchinfer.errors import (
    CannotCreateError,
    DamagedJournalError,
    LockedError,
    StorageError,
)
from batchinfer.journal.replay import scan
from batchinfer.journal.writer import JournalWriter


def record(number: int, size: int = 10) -> bytes:
    body = b'{"v":1,"row":%d,"output":"%b"' % (number, b"x" * size)
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


RECORDS = [record(number) for number in range(20)]


@pytest.fixture
def success(tmp_path: Path) -> Path:
    return tmp_path / "a.success.jsonl"


@pytest.fixture
def failure(tmp_path: Path) -> Path:
    return tmp_path / "a.failure.jsonl"


@pytest.fixture
def writer(success: Path, failure: Path) -> Iterator[JournalWriter]:
    with JournalWriter(success, failure) as opened:
        yield opened


class Disk:
    """Counts the writes and syncs that reach files, and lets some of them fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: list[int] = []
        self.written: list[int] = []
        self.room: int | None = None
        self.sync_error: int | None = None
        self._write, self._sync = os.write, os.fdatasync
        patch.setattr(os, "write", self.write)
        patch.setattr(os, "fdatasync", self.sync)

    def write(self, fd: int, data: bytes) -> int:
        self.written.append(fd)
        if self.room is None:
            return self._write(fd, data)
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._write(fd, bytes(data[: self.room]))
        self.room -= done
        return done

    def sync(self, fd: int) -> None:
        self.synced.append(fd)
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        self._sync(fd)


@pytest.fixture
def disk(writer: JournalWriter, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def lines(path: Path) -> list[bytes]:
    return [entry.line + b"\n" for entry in scan(path)]


# ── opening ──────────────────────────────────────────────────────────────────────────────────


def test_opening_makes_both_sidecars_for_their_user_alone(
    writer: JournalWriter, success: Path, failure: Path
) -> None:
    assert writer.healed == 0
    for path in (success, failure):
        assert path.read_bytes() == b""
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_names_of_new_sidecars_are_synced_before_the_first_commit(
    success: Path, failure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    JournalWriter(success, failure).close()

    assert synced == [success.parent.stat().st_ino]


@pytest.mark.parametrize("which", ["success", "failure"])
def test_a_sidecar_that_is_a_symbolic_link_is_refused(
    success: Path, failure: Path, which: str
) -> None:
    victim = success.with_name("victim")
    victim.write_bytes(b"mine")
    (success if which == "success" else failure).symlink_to(victim)

    with pytest.raises(CannotCreateError):
        JournalWriter(success, failure)
    assert victim.read_bytes() == b"mine"


def test_a_failed_opening_frees_the_lock(success: Path, failure: Path) -> None:
    failure.mkdir()
    with pytest.raises(CannotCreateError):
        JournalWriter(success, failure)
    failure.rmdir()

    JournalWriter(success, failure).close()


def test_torn_tails_are_removed_before_the_first_append(success: Path, failure: Path) -> None:
    success.write_bytes(RECORDS[0] + RECORDS[1][:17])
    failure.write_bytes(RECORDS[2] + bytes(5))
    with JournalWriter(success, failure) as writer:
        writer.commit(RECORDS[3], RECORDS[4])

        assert writer.healed == 22
    assert success.read_bytes() == RECORDS[0] + RECORDS[3]
    assert failure.read_bytes() == RECORDS[2] + RECORDS[4]


def test_a_record_without_its_newline_is_kept_and_ended(success: Path, failure: Path) -> None:
    success.write_bytes(RECORDS[0][:-1])
    with JournalWriter(success, failure) as writer:
        writer.commit(RECORDS[1], b"")

        assert writer.healed == 0
    assert success.read_bytes() == RECORDS[0] + RECORDS[1]


def test_what_an_earlier_process_left_unsynced_is_synced_at_opening(
    success: Path, failure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    success.write_bytes(RECORDS[0])
    disk = Disk(monkeypatch)
    JournalWriter(success, failure).close()

    assert len(disk.synced) == 2


def test_a_file_that_is_no_sidecar_is_left_as_it_is(success: Path, failure: Path) -> None:
    success.write_bytes(b"my own notes")

    with pytest.raises(DamagedJournalError):
        JournalWriter(success, failure)
    assert success.read_bytes() == b"my own notes"


# ── one writer ───────────────────────────────────────────────────────────────────────────────

SECOND = """
import sys
from pathlib import Path
from batchinfer.errors import BatchinferError
from batchinfer.journal.writer import JournalWriter
try:
    JournalWriter(Path(sys.argv[1]), Path(sys.argv[2]), "process 5 on b")
except BatchinferError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def second_process(success: Path, failure: Path) -> tuple[int, str]:
    command = [sys.executable, "-c", SECOND, str(success), str(failure)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_a_second_process_leaves_at_once_and_changes_no_byte(success: Path, failure: Path) -> None:
    success.write_bytes(RECORDS[0])
    with JournalWriter(success, failure) as writer:
        # What a second writer would heal away is here an append under way.
        os.write(writer._success.fd, RECORDS[1][:9])
        os.write(writer._failure.fd, RECORDS[1][:9])
        before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in (success, failure)]
        code, text = second_process(success, failure)
        after = [(path.read_bytes(), path.stat().st_mtime_ns) for path in (success, failure)]

    assert code == 75
    assert "(process 5 on b)" in text
    assert before == after
    assert second_process(success, failure) == (0, "")


def test_the_same_sidecar_by_another_name_is_locked_too(
    writer: JournalWriter, success: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(LockedError):
        JournalWriter(tmp_path / "link" / success.name, tmp_path / "link" / "other")
    assert not (tmp_path / "other").exists()


# ── committing ───────────────────────────────────────────────────────────────────────────────


def test_a_commit_is_one_write_and_one_sync_of_each_touched_file(
    writer: JournalWriter, disk: Disk, success: Path, failure: Path
) -> None:
    writer.commit(RECORDS[0] + RECORDS[1], b"")
    writer.commit(b"", RECORDS[2])
    writer.commit(RECORDS[3], RECORDS[4])
    writer.commit(b"", b"")

    one, other = writer._success.fd, writer._failure.fd
    assert disk.written == disk.synced == [one, other, one, other]
    assert lines(success) == [RECORDS[0], RECORDS[1], RECORDS[3]]
    assert lines(failure) == [RECORDS[2], RECORDS[4]]


def test_a_short_write_is_continued(
    writer: JournalWriter, success: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:7])))
    writer.commit(b"".join(RECORDS), b"")

    assert lines(success) == RECORDS


@pytest.mark.parametrize("room", range(0, 3 * len(RECORDS[0]), 5))
def test_a_full_disk_leaves_whole_records_only_and_stops_all_commits(
    writer: JournalWriter, disk: Disk, success: Path, failure: Path, room: int
) -> None:
    writer.commit(RECORDS[0], b"")
    disk.room, disk.synced = room, []

    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        writer.commit(b"".join(RECORDS[1:5]), RECORDS[6])
    fitted = room // len(RECORDS[0])
    assert success.read_bytes() == b"".join(RECORDS[: 1 + fitted])
    disk.room = None
    with pytest.raises(StorageError, match="cannot be written"):
        writer.commit(RECORDS[7], b"")
    with pytest.raises(StorageError, match="cannot be written"):
        writer.commit(b"", RECORDS[8])
    assert success.read_bytes() == b"".join(RECORDS[: 1 + fitted])
    assert failure.read_bytes() == b""
    assert disk.synced == []


@pytest.mark.parametrize("good", [0, 1, 4])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_after_a_failed_sync_the_batch_is_removed_and_the_file_is_never_synced_again(
    writer: JournalWriter, disk: Disk, success: Path, good: int, code: int
) -> None:
    for line in RECORDS[:good]:
        writer.commit(line, b"")
    disk.sync_error, disk.synced = code, []

    with pytest.raises(StorageError, match=f"cannot be synced: {os.strerror(code)}"):
        writer.commit(RECORDS[10] + RECORDS[11], RECORDS[12])
    disk.sync_error = None
    with pytest.raises(StorageError):
        writer.commit(RECORDS[13], RECORDS[14])
    writer.close()
    assert disk.synced == [disk.written[-1]]
    assert success.read_bytes() == b"".join(RECORDS[:good])


def test_a_failing_failure_sidecar_keeps_the_synced_successes_but_acknowledges_nothing(
    writer: JournalWriter, disk: Disk, success: Path, failure: Path
) -> None:
    disk.room = len(RECORDS[0]) + 4

    with pytest.raises(StorageError, match=r"a\.failure\.jsonl: cannot be written"):
        writer.commit(RECORDS[0], RECORDS[1])
    assert success.read_bytes() == RECORDS[0]
    assert failure.read_bytes() == b""


def test_if_even_cutting_fails_the_next_opening_heals(
    success: Path, failure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, JournalWriter(success, failure) as writer:
        disk = Disk(patched)
        writer.commit(RECORDS[0], b"")
        disk.room = len(RECORDS[1]) + 9
        patched.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "io")))
        with pytest.raises(StorageError, match="No space left"):
            writer.commit(b"".join(RECORDS[1:4]), b"")

    with JournalWriter(success, failure) as again:
        assert again.healed == 9
    assert success.read_bytes() == RECORDS[0] + RECORDS[1]


@pytest.mark.parametrize("room", [0, 1, 30, 100, 333])
def test_a_file_size_limit_is_a_storage_error_and_the_job_goes_on_after_it(
    success: Path, failure: Path, room: int
) -> None:
    _, hard = soft = resource.getrlimit(resource.RLIMIT_FSIZE)
    with JournalWriter(success, failure) as writer:
        writer.commit(b"".join(RECORDS), b"")
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(b"".join(RECORDS)) + room, hard))
        try:
            with pytest.raises(StorageError, match="File too large"):
                writer.commit(record(20, 150) + record(21, 150), b"")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, soft)
    with JournalWriter(success, failure) as writer:
        writer.commit(RECORDS[0], b"")

        assert writer.healed == 0
    kept = [record(20, 150)] if room >= len(record(20, 150)) else []
    assert lines(success) == [*RECORDS, *kept, RECORDS[0]]


@pytest.mark.parametrize("kill_in", ["write", "fdatasync"])
def test_a_kill_at_any_call_loses_no_returned_commit(
    success: Path, failure: Path, kill_in: str
) -> None:
    """The child is killed in its n-th call; a commit is told to the parent when it returns."""
    program = f"""
import os, signal, sys
from pathlib import Path
from batchinfer.journal.writer import JournalWriter
left, call = int(sys.argv[3]), os.{kill_in}
def dying(fd, *rest):
    global left
    if fd > 2:
        left -= 1
        if not left:
            if rest:
                call(fd, rest[0][:50])
            os.kill(os.getpid(), signal.SIGKILL)
    return call(fd, *rest)
with JournalWriter(Path(sys.argv[1]), Path(sys.argv[2])) as writer:
    os.{kill_in} = dying
    for line in sys.stdin.buffer.read().splitlines(keepends=True):
        writer.commit(line, line)
        print(line.decode(), end="", flush=True)
"""
    for calls in (1, 2, 5):
        for path in (success, failure):
            path.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", program, str(success), str(failure), str(calls)],
            input=b"".join(RECORDS),
            capture_output=True,
            timeout=60,
            check=False,
        )
        told = done.stdout.splitlines(keepends=True)

        assert done.returncode == -9, done.stderr
        assert len(told) == (calls - 1) // 2
        JournalWriter(success, failure).close()
        for path in (success, failure):
            assert lines(path)[: len(told)] == told
            assert len(lines(path)) <= len(told) + 1


def test_a_closed_writer_writes_nothing(success: Path, failure: Path) -> None:
    writer = JournalWriter(success, failure)
    writer.close()

    with pytest.raises(StorageError):
        writer.commit(RECORDS[0], b"")
    assert success.read_bytes() == b""
    writer.close()


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CannotCreateError) as caught:
        JournalWriter(tmp_path / "no" / "a", tmp_path / "no" / "b")
    assert caught.value.exit_code == 73
