import gzip
from pathlib import Path

import pytest
from fakes import a_failure, a_success
from msgspec import structs

from batchinfer.errors import DamagedJournalError, NoInputError
from batchinfer.intake.rows import identify
from batchinfer.job.history import recall
from batchinfer.job.survey import input_lines, survey, weight
from batchinfer.job.target import Target, target_of
from batchinfer.journal.record import encode
from batchinfer.model import ErrorClass, Outcome

MAX_LINE = 1000
LINES = [b'{"id":%d,"prompt":"p%d"}' % (number, number) for number in range(6)]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(LINES))
    return target_of(str(tmp_path / "in.jsonl"), None)


def of_line(outcome: Outcome, line: bytes) -> bytes:
    return encode(structs.replace(outcome, key=identify(line, MAX_LINE)[1]))


def settle(target: Target, succeeded: list[int], failed: dict[int, ErrorClass]) -> None:
    target.paths.success.write_bytes(b"".join(of_line(a_success(n), LINES[n]) for n in succeeded))
    target.paths.failure.write_bytes(
        b"".join(of_line(a_failure(n, error), LINES[n]) for n, error in failed.items())
    )


def test_the_rows_of_an_input_come_with_number_id_and_key(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id":"a","x":1}\n\n \t\nrubbish\n{"x":1}'))

    found = list(input_lines(str(path), MAX_LINE))

    assert [(number, name, line) for number, name, _, line in found] == [
        (0, "a", b'{"id":"a","x":1}'),
        (3, None, b"rubbish"),
        (4, None, b'{"x":1}'),
    ]
    assert [key for _, _, key, _ in found] == [identify(line, MAX_LINE)[1] for *_, line in found]


def test_an_input_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoInputError):
        list(input_lines(str(tmp_path / "none"), MAX_LINE))


def test_every_row_is_succeeded_failed_or_pending(target: Target) -> None:
    settle(target, [0, 2], {1: ErrorClass.REFUSED, 4: ErrorClass.INVALID_INPUT})

    tally = survey(target, MAX_LINE)

    assert (tally.total, tally.succeeded, tally.failed) == (6, 2, 2)


def test_a_success_counts_more_than_an_earlier_failure(target: Target) -> None:
    settle(target, [1], {1: ErrorClass.TIMEOUT})

    tally = survey(target, MAX_LINE)

    assert (tally.succeeded, tally.failed) == (1, 0)


def test_of_several_failures_the_last_counts_once(target: Target) -> None:
    lines = [
        of_line(a_failure(1, error), LINES[1]) for error in (ErrorClass.TIMEOUT, ErrorClass.REFUSED)
    ]
    target.paths.failure.write_bytes(b"".join(lines))

    history = recall(target.paths, lambda _: None)

    assert len(history.failed) == 1
    number = history.failed.peek(identify(LINES[1], MAX_LINE)[1])
    assert number == list(ErrorClass).index(ErrorClass.REFUSED)


def test_a_job_that_never_ran_is_all_pending(target: Target) -> None:
    tally = survey(target, MAX_LINE)

    assert (tally.total, tally.succeeded, tally.failed) == (6, 0, 0)


def test_damage_in_a_sidecar_is_told(target: Target) -> None:
    settle(target, [0, 1], {})
    good = target.paths.success.read_bytes().splitlines(keepends=True)
    target.paths.success.write_bytes(good[0] + b"rubbish\n" + good[1])

    with pytest.raises(DamagedJournalError):
        survey(target, MAX_LINE)


def test_looking_changes_nothing(target: Target) -> None:
    settle(target, [0], {1: ErrorClass.TIMEOUT})
    target.paths.success.write_bytes(target.paths.success.read_bytes() + b'{"v":1,"torn')
    before = {path: path.read_bytes() for path in target.paths.success.parent.iterdir()}

    survey(target, MAX_LINE)

    assert {path: path.read_bytes() for path in target.paths.success.parent.iterdir()} == before


def test_the_weight_is_what_there_is_to_read(target: Target) -> None:
    alone = weight(target)
    settle(target, [0], {})

    assert alone == len(b"\n".join(LINES))
    assert weight(target) == alone + target.paths.success.stat().st_size
