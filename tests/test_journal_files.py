import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchinfer.errors import BatchinferError, CannotCreateError, LockedError, StorageError
from batchinfer.journal.files import fsync_dir, lock, open_append, replace_file, write_all


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of the system calls that make a replacement last."""
    made: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted_fsync(fd: int) -> None:
        made.append("sync dir" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
        fsync(fd)

    def noted_rename(old: Path, new: Path) -> Path:
        made.append("rename")
        return rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    return made


def failing(code: int) -> object:
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_write_all_goes_on_after_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    fd = open_append(tmp_path / "a")
    write_all(fd, b"0123456789")
    os.close(fd)

    assert (tmp_path / "a").read_bytes() == b"0123456789"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_for_their_user_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        os.close(open_append(tmp_path / "a"))
        replace_file(tmp_path / "b", [b"x"])
    finally:
        os.umask(old)

    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600


def test_a_descriptor_does_not_reach_child_processes(tmp_path: Path) -> None:
    fd = open_append(tmp_path / "a")

    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(fd)


def test_a_symbolic_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"mine")
    (tmp_path / "a").symlink_to(tmp_path / "secret")

    with pytest.raises(CannotCreateError, match="cannot be opened for writing"):
        open_append(tmp_path / "a")
    assert (tmp_path / "secret").read_bytes() == b"mine"


def test_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(CannotCreateError, match="not a regular file"):
        open_append(tmp_path / "pipe")
    with pytest.raises(CannotCreateError, match="Is a directory"):
        open_append(tmp_path)


def test_a_missing_folder_is_named_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(CannotCreateError, match=r"no/a: cannot be .*: No such file or directory"):
        open_append(tmp_path / "no" / "a")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EACCES, CannotCreateError),
        (errno.EROFS, CannotCreateError),
        (errno.ENOSPC, StorageError),
        (errno.EDQUOT, StorageError),
        (errno.EIO, StorageError),
    ],
)
def test_a_failure_to_open_is_the_path_s_or_the_disk_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[BatchinferError]
) -> None:
    monkeypatch.setattr(os, "open", failing(code))

    with pytest.raises(kind, match=os.strerror(code)):
        open_append(tmp_path / "a")
    with pytest.raises(kind, match=os.strerror(code)):
        replace_file(tmp_path / "a", [])


# ── the lock ─────────────────────────────────────────────────────────────────────────────────


def test_a_lock_is_taken_once_and_free_after_closing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    first, second = open_append(path), open_append(path)
    lock(first, path)

    with pytest.raises(LockedError, match=r"a: another process .* \(process 5 on b\)"):
        lock(second, path, "process 5 on b")
    os.close(first)
    lock(second, path)
    os.close(second)


@pytest.mark.parametrize("after", ["replaced", "removed"])
def test_a_lock_on_a_file_that_is_no_longer_there_is_no_lock(tmp_path: Path, after: str) -> None:
    path = tmp_path / "a"
    fd = open_append(path)
    path.unlink()
    if after == "replaced":
        path.write_bytes(b"new")

    with pytest.raises(LockedError, match="replaced"):
        lock(fd, path)
    os.close(fd)


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    fd = open_append(tmp_path / "a")

    with pytest.raises(CannotCreateError, match="cannot be locked"):
        lock(fd, tmp_path / "a")
    os.close(fd)


# ── whole-file replacement ───────────────────────────────────────────────────────────────────


def test_the_new_file_is_synced_before_its_name_and_its_name_before_return(
    target: Path, calls: list[str]
) -> None:
    replace_file(target, [b"n", b"ew"])

    assert calls == ["sync file", "rename", "sync dir"]
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]


def test_many_small_chunks_are_written_in_order_with_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = os.write

    def noted(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(fd, data)

    monkeypatch.setattr(os, "write", noted)
    chunks = [b"%07d\n" % number for number in range(300_000)]
    replace_file(tmp_path / "a", iter(chunks))

    assert (tmp_path / "a").read_bytes() == b"".join(chunks)
    assert len(sizes) == 3


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_the_old_file_whole_and_nothing_beside_it(
    target: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    monkeypatch.setattr(os, call, failing(code))

    with pytest.raises(StorageError, match=rf"out\.json: cannot be .*: {os.strerror(code)}"):
        replace_file(target, [b"new"])
    assert target.read_bytes() == b"old"
    assert list(target.parent.iterdir()) == [target]


def test_a_short_write_then_a_full_disk_leaves_the_old_file_whole(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [2]

    def write_while_there_is_room(fd: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(data[: room.pop()]))

    monkeypatch.setattr(os, "write", write_while_there_is_room)

    with pytest.raises(StorageError, match="No space left"):
        replace_file(target, [b"new"])
    assert target.read_bytes() == b"old"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_a_break_among_the_chunks_leaves_the_old_file_whole(
    target: Path, error: type[BaseException]
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * (1 << 21)
        raise error

    with pytest.raises(error):
        replace_file(target, chunks())
    assert target.read_bytes() == b"old"
    assert list(target.parent.iterdir()) == [target]


def test_what_a_killed_replacement_left_is_cleared_away(target: Path) -> None:
    left = target.with_name(f".{target.name}.tmp")
    left.write_bytes(b"half of a lo")
    replace_file(target, [b"new"])

    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]


def test_two_replacements_at_once_do_not_mix(target: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"one"
        with pytest.raises(LockedError):
            replace_file(target, [b"other"])
        yield b"!"

    replace_file(target, chunks())

    assert target.read_bytes() == b"one!"
    assert list(target.parent.iterdir()) == [target]


def test_a_link_planted_as_the_temporary_file_is_not_followed(target: Path) -> None:
    victim = target.with_name("victim")
    victim.write_bytes(b"mine")
    target.with_name(f".{target.name}.tmp").symlink_to(victim)

    with pytest.raises(CannotCreateError):
        replace_file(target, [b"new"])
    assert (victim.read_bytes(), target.read_bytes()) == (b"mine", b"old")


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(CannotCreateError, match="cannot be replaced: Is a directory"):
        replace_file(tmp_path / "a", [b"new"])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_system_that_cannot_sync_folders_is_no_error_but_a_failing_one_is(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    fsync_dir(target.parent)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        fsync_dir(target.parent)


def test_no_descriptor_is_left_open(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def descriptors() -> int:
        highest = os.dup(2)
        os.close(highest)
        return highest

    before = descriptors()
    replace_file(target, [b"new"])
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", failing(errno.EWOULDBLOCK))
        with pytest.raises(LockedError):
            replace_file(target, [b"new"])

    assert descriptors() == before
