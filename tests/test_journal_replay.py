import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchinfer.errors import DamagedJournalError, Exit, LockedError, StorageError
from batchinfer.journal import replay
from batchinfer.journal.files import lock, open_append
from batchinfer.journal.record import encode, intact
from batchinfer.journal.replay import Repaired, heal, quarantine, repair, scan
from batchinfer.model import Answer, Success, Usage


def record(number: int, text: str = "数\u2028é🙂") -> bytes:
    answer = Answer(f'"{text}{number}"'.encode(), Usage(3, 1), "stop", "m", None)
    return encode(
        Success(
            row=number,
            id=f"ü{number}",
            key=number.to_bytes(16, "big"),
            attempts=1,
            latency_ms=1.0,
            cost_usd=None,
            at="2025-01-31T12:00:00.000Z",
            answer=answer,
        )
    )


RECORDS = [record(number) for number in range(20)]
WHOLE = b"".join(RECORDS)
MIDDLE = RECORDS[10]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.success.jsonl"


def seen(path: Path) -> list[bytes]:
    return [entry.line + b"\n" for entry in scan(path)]


def healed(path: Path) -> int:
    fd = open_append(path)
    try:
        return heal(fd, path)
    finally:
        os.close(fd)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def test_a_missing_or_empty_sidecar_has_no_records(path: Path) -> None:
    assert seen(path) == []
    path.touch()
    assert seen(path) == []
    assert not path.stat().st_size


def test_every_record_is_found_where_it_stands(path: Path) -> None:
    path.write_bytes(WHOLE)
    entries = list(scan(path))

    assert [entry.line + b"\n" for entry in entries] == RECORDS
    assert all(WHOLE[e.offset : e.offset + e.length] == e.line for e in entries)


@pytest.mark.parametrize("block", [1, 7, 64, len(RECORDS[0]), len(WHOLE)])
def test_records_may_lie_across_blocks(
    path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(replay, "BLOCK", block)
    path.write_bytes(WHOLE)
    entries = list(scan(path))

    assert [entry.line + b"\n" for entry in entries] == RECORDS
    assert all(WHOLE[e.offset : e.offset + e.length] == e.line for e in entries)


def test_a_record_longer_than_many_blocks_is_read(path: Path) -> None:
    long = record(1, "x" * 5_000_000)
    path.write_bytes(RECORDS[0] + long + RECORDS[2])

    assert seen(path) == [RECORDS[0], long, RECORDS[2]]


def test_a_sidecar_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: Is a directory"):
        list(scan(tmp_path))


def test_looking_at_a_running_job_changes_nothing(path: Path) -> None:
    """The last line is being written: it is passed over now and found whole later."""
    path.write_bytes(WHOLE + MIDDLE[:50])
    looking = scan(path)

    assert len(list(looking)) == 20
    assert looking.torn == 50
    assert path.read_bytes() == WHOLE + MIDDLE[:50]
    append(path, MIDDLE[50:])
    assert seen(path) == [*RECORDS, MIDDLE]


def test_records_appended_during_a_look_do_no_harm(path: Path) -> None:
    path.write_bytes(RECORDS[0])
    lines = []
    for entry in scan(path):
        lines.append(entry.line + b"\n")
        if len(lines) < 5:
            append(path, RECORDS[len(lines)])

    assert lines == RECORDS[: len(lines)]


# ── torn tails ───────────────────────────────────────────────────────────────────────────────


def test_a_cut_at_every_byte_loses_the_cut_record_only_and_heals_before_the_next_append(
    path: Path,
) -> None:
    ends = [0]
    for line in RECORDS:
        ends.append(ends[-1] + len(line))
    for cut in range(len(WHOLE) + 1):
        path.write_bytes(WHOLE[:cut])
        # A record that lacks nothing but its newline is whole.
        whole = sum(end - 1 <= cut for end in ends[1:])
        torn = max(0, cut - ends[whole])
        looking = scan(path)

        assert [entry.line + b"\n" for entry in looking] == RECORDS[:whole]
        assert looking.torn == torn
        assert healed(path) == torn
        append(path, MIDDLE)
        assert path.read_bytes() == b"".join(RECORDS[:whole]) + MIDDLE


@given(
    keep=st.integers(0, 20),
    tail=st.binary(max_size=40)
    | st.integers(1, 9000).map(bytes)
    | st.binary(max_size=40).map(lambda some: some + b"\n")
    | st.tuples(st.integers(0, 200), st.integers(0, 200)).map(
        lambda cut: MIDDLE[: cut[0]] + bytes(cut[1])
    ),
    block=st.sampled_from([16, 100, 1000, 1 << 20]),
)
@settings(max_examples=300)
def test_whatever_follows_the_last_record_is_a_torn_tail(
    tmp_path_factory: pytest.TempPathFactory, keep: int, tail: bytes, block: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "torn.success.jsonl"
    whole = b"".join(RECORDS[: keep + 1])
    path.write_bytes(whole + tail)
    looking = scan(path)
    lines = [entry.line + b"\n" for entry in looking]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(replay, "BLOCK", block)
        cut = healed(path)

    assert lines == RECORDS[: keep + 1]
    assert cut == looking.torn == len(tail)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("start", range(0, len(RECORDS[0]), 7))
def test_a_zero_filled_first_record_is_torn(path: Path, start: int) -> None:
    path.write_bytes(RECORDS[0][:start] + bytes(4096))

    assert seen(path) == []
    assert healed(path) == start + 4096
    assert path.read_bytes() == b""


def test_a_damaged_last_line_is_a_torn_tail_even_with_its_newline(path: Path) -> None:
    torn = MIDDLE.replace(b'"stop"', b'"st\0\0\0')
    path.write_bytes(b"".join(RECORDS[:2]) + torn)

    assert seen(path) == RECORDS[:2]
    assert healed(path) == len(torn)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_an_edited_last_line_is_damage_and_stays(path: Path, ending: bytes) -> None:
    edited = MIDDLE.replace(b"stop", b"st0p").rstrip() + ending
    path.write_bytes(b"".join(RECORDS[:2]) + edited)
    before = path.read_bytes()

    for look in (seen, healed):
        with pytest.raises(DamagedJournalError, match="that no crash leaves"):
            look(path)
    assert path.read_bytes() == before


def test_a_record_glued_to_a_torn_one_is_torn_too_wherever_reading_begins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BLOCK", len(MIDDLE))
    path.write_bytes(RECORDS[0] + b"torn" + MIDDLE)

    assert seen(path) == RECORDS[:1]
    assert healed(path) == 4 + len(MIDDLE)


def test_healing_a_whole_sidecar_changes_nothing(path: Path) -> None:
    path.write_bytes(WHOLE)
    before = path.stat()

    assert healed(path) == 0
    assert path.read_bytes() == WHOLE
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    "foreign",
    [
        b"my own file\n",
        b'{"id":1}\n{"id":2}\n',
        b'{"v":2,"row":0}\n',
        b"x" * 3000,
        b"\xef\xbb\xbf" + RECORDS[0],
    ],
)
def test_a_file_that_is_no_sidecar_is_never_touched(
    path: Path, monkeypatch: pytest.MonkeyPatch, foreign: bytes
) -> None:
    monkeypatch.setattr(replay, "BLOCK", 1000)
    path.write_bytes(foreign)

    with pytest.raises(DamagedJournalError, match="not a sidecar"):
        list(scan(path))
    with pytest.raises(DamagedJournalError, match="not a sidecar"):
        healed(path)
    assert path.read_bytes() == foreign


# ── damage ───────────────────────────────────────────────────────────────────────────────────


def flip(line: bytes, at: int, bit: int) -> bytes:
    return line[:at] + bytes([line[at] ^ 1 << bit]) + line[at + 1 :]


DAMAGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "cut and glued": lambda one, other: one[:40] + other,
    "zero-filled": lambda one, other: one[:40] + bytes(len(one) - 41) + b"\n" + other,
    "interleaved": lambda one, other: one[:40] + other[:60] + one[40:] + other[60:],
    "newline lost": lambda one, other: one[:-1] + other,
    "line split": lambda one, other: one[:40] + b"\n" + one[40:] + other[:-2] + b"\n",
    "blank line": lambda one, other: one[:-2] + b"\n\n" + other[1:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_before_intact_records_stops_and_repair_moves_it_aside(
    path: Path, damage: Callable[[bytes, bytes], bytes]
) -> None:
    broken = damage(RECORDS[5], RECORDS[6])
    kept = [line for line in (RECORDS[6],) if b"\n" + line in b"\n" + broken]
    bad = broken.replace(kept[0], b"") if kept else broken
    path.write_bytes(b"".join(RECORDS[:5]) + broken + b"".join(RECORDS[7:]))

    with pytest.raises(DamagedJournalError, match="--repair") as caught:
        list(scan(path))
    assert caught.value.exit_code is Exit.DAMAGED
    assert f"at byte {sum(map(len, RECORDS[:5]))};" in str(caught.value)
    assert str(path) in str(caught.value)
    assert quarantine(path) == bad.count(b"\n")
    assert seen(path) == [*RECORDS[:5], *kept, *RECORDS[7:]]
    assert path.with_name(path.name + ".bad").read_bytes() == bad


def test_the_damage_message_counts_all_damaged_lines_among_intact_ones(path: Path) -> None:
    path.write_bytes(RECORDS[0] + b"x\n" + RECORDS[1] + b"y\nz\n" + RECORDS[2] + b"torn")

    with pytest.raises(DamagedJournalError, match=f"3 damaged lines .* byte {len(RECORDS[0])};"):
        list(scan(path))


@given(at=st.integers(0, len(MIDDLE) - 1), bit=st.integers(0, 7))
@settings(max_examples=200)
def test_a_flipped_bit_in_the_middle_is_always_found_and_costs_at_most_its_neighbour(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.success.jsonl"
    path.write_bytes(b"".join(RECORDS[:10]) + flip(MIDDLE, at, bit) + b"".join(RECORDS[11:]))

    with pytest.raises(DamagedJournalError):
        list(scan(path))
    assert quarantine(path) in {1, 2}
    # A flipped newline glues the next record to this one; any other bit costs this one only.
    lost = 2 if at == len(MIDDLE) - 1 else 1
    assert seen(path) == [*RECORDS[:10], *RECORDS[10 + lost :]]
    path.with_name(path.name + ".bad").unlink()


@given(
    st.lists(st.sampled_from(RECORDS) | st.binary(min_size=1, max_size=30).map(lambda b: b + b"\n"))
)
def test_repair_keeps_every_intact_record_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "mixed.success.jsonl"
    path.write_bytes(b"".join(lines))
    quarantine(path)

    pieces = b"".join(lines).split(b"\n")
    assert seen(path) == [piece + b"\n" for piece in pieces if intact(piece)]
    assert quarantine(path) == 0


def test_bad_lines_of_a_second_repair_are_added_to_the_first_ones(path: Path) -> None:
    for bad in (b"one\n", b"two\n"):
        path.write_bytes(RECORDS[0] + bad + RECORDS[1])
        quarantine(path)

    assert path.with_name(path.name + ".bad").read_bytes() == b"one\ntwo\n"


def test_repairing_a_whole_sidecar_changes_nothing(path: Path) -> None:
    path.write_bytes(WHOLE)
    inode = path.stat().st_ino

    assert quarantine(path) == 0
    assert path.stat().st_ino == inode
    assert list(path.parent.iterdir()) == [path]


def test_repair_mends_both_sidecars(path: Path) -> None:
    failure = path.with_name("a.failure.jsonl")
    path.write_bytes(RECORDS[0] + b"x\n" + RECORDS[1])
    failure.write_bytes(b"y\n" + RECORDS[2] + b"z\n" + RECORDS[3])

    assert repair(path, failure) == Repaired(success=1, failure=2)
    assert (seen(path), seen(failure)) == (RECORDS[:2], RECORDS[2:4])


def test_repair_replaces_the_locked_sidecar_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = path.with_name("a.failure.jsonl")
    for file in (path, failure):
        file.write_bytes(b'{"v":1,x\n' + RECORDS[0])
    replaced: list[Path] = []
    monkeypatch.setattr(replay, "replace_file", lambda file, _: replaced.append(file))
    repair(path, failure)

    assert replaced == [failure, path]


def test_repair_waits_for_no_one(path: Path) -> None:
    failure = path.with_name("a.failure.jsonl")
    for file in (path, failure):
        file.write_bytes(RECORDS[0] + b"x\n" + RECORDS[1])
    before = path.read_bytes()
    fd = open_append(path)
    lock(fd, path)

    with pytest.raises(LockedError):
        repair(path, failure)
    os.close(fd)
    assert path.read_bytes() == failure.read_bytes() == before


def test_a_repair_that_breaks_off_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(RECORDS[0] + b"x\n" + RECORDS[1])
    before = path.read_bytes()

    def no_room(target: Path, chunks: Iterator[bytes]) -> None:
        raise StorageError(f"{target}: cannot be written: No space left on device")

    monkeypatch.setattr(replay, "replace_file", no_room)

    with pytest.raises(StorageError):
        quarantine(path)
    assert path.read_bytes() == before
    assert path.with_name(path.name + ".bad").read_bytes() == b"x\n"
