from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.errors import UsageError
from batchinfer.events import Skipped
from batchinfer.intake.plan import CLASSES, Names, Plan, failures_to_retry
from batchinfer.journal.index import KeyIndex
from batchinfer.model import TRANSIENT, BadRow, ErrorClass, Fields, Row

ALL = frozenset(ErrorClass)
NONE: frozenset[ErrorClass] = frozenset()
ERRORS = st.sampled_from(CLASSES)


def key(number: int) -> bytes:
    return number.to_bytes(1, "big") * 16


def row(number: int) -> Row:
    return Row(number, None, key(number), Fields({}))


def bad(number: int) -> BadRow:
    return BadRow(number, None, key(number), "no")


def plan_of(
    succeeded: list[int],
    failed: dict[int, ErrorClass] | None = None,
    again: frozenset[ErrorClass] = NONE,
) -> Plan:
    done, lost = KeyIndex(0), KeyIndex(1)
    for number in succeeded:
        done.add(key(number))
    for number, error in (failed or {}).items():
        lost.add(key(number), CLASSES.index(error))
    return Plan(done, lost, again)


@given(st.lists(st.integers(0, 4)), st.lists(st.integers(0, 4)))
def test_so_many_equal_rows_are_satisfied_as_there_are_successes(
    succeeded: list[int], rows: list[int]
) -> None:
    plan = plan_of(succeeded)

    skipped = Counter(n for n in rows if plan.decide(row(n)) == Skipped("succeeded"))

    assert skipped == Counter(succeeded) & Counter(rows)
    assert plan.vanished == len(succeeded) - skipped.total()


def test_a_new_row_is_done() -> None:
    assert plan_of([1], {2: ErrorClass.TIMEOUT}).decide(row(3)) is None


@given(ERRORS, st.frozensets(ERRORS))
def test_a_failed_row_is_sent_again_where_its_class_is_asked_for(
    error: ErrorClass, again: frozenset[ErrorClass]
) -> None:
    plan = plan_of([], {1: error}, again)

    decided = plan.decide(row(1))

    looked_at_again = error in again or error is ErrorClass.INVALID_INPUT
    assert decided == (None if looked_at_again else Skipped("failed", error))


def test_a_success_beats_a_failure_of_the_same_row() -> None:
    plan = plan_of([1], {1: ErrorClass.REFUSED}, ALL)

    assert plan.decide(row(1)) == Skipped("succeeded")


def test_a_failure_speaks_for_every_row_of_its_key() -> None:
    plan = plan_of([], {1: ErrorClass.REFUSED})

    assert [plan.decide(row(1)) for _ in range(3)] == [Skipped("failed", ErrorClass.REFUSED)] * 3


def test_a_line_that_still_cannot_be_sent_is_not_written_down_again() -> None:
    plan = plan_of([], {1: ErrorClass.INVALID_INPUT}, ALL)

    assert plan.decide(bad(1)) == Skipped("failed", ErrorClass.INVALID_INPUT)


def test_a_line_that_failed_otherwise_and_can_no_longer_be_sent_says_so_now() -> None:
    assert plan_of([], {1: ErrorClass.REFUSED}).decide(bad(1)) is None


def test_a_line_that_was_answered_stays_answered_though_it_can_no_longer_be_sent() -> None:
    assert plan_of([1]).decide(bad(1)) == Skipped("succeeded")


def test_looking_only_settles_without_asking_which_classes_to_repeat() -> None:
    plan = plan_of([1], {2: ErrorClass.INVALID_INPUT}, ALL)

    assert plan.settled(key(1)) == Skipped("succeeded")
    assert plan.settled(key(1)) is None
    assert plan.settled(key(2)) == Skipped("failed", ErrorClass.INVALID_INPUT)
    assert plan.settled(key(3)) is None


def test_by_default_the_failures_that_time_may_cure_are_repeated() -> None:
    assert failures_to_retry(None) == TRANSIENT
    assert ErrorClass.TIMEOUT in TRANSIENT
    assert ErrorClass.INVALID_REQUEST not in TRANSIENT


def test_all_failures_or_those_named_are_repeated() -> None:
    assert failures_to_retry([]) == ALL
    assert failures_to_retry([" refused", "timeout ", ""]) == {
        ErrorClass.REFUSED,
        ErrorClass.TIMEOUT,
    }


def test_an_unknown_class_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown failure class sunspots; .*timeout"):
        failures_to_retry(["timeout", "sunspots"])


def test_an_id_on_several_rows_is_noticed() -> None:
    names = Names()

    for name in ("a", None, 1, "b", None, "b", 1, "b"):
        names.note(name)

    assert (names.repeated, names.repeats) == ("b", 3)


def test_only_so_many_ids_are_remembered() -> None:
    names = Names()

    for number in range(2 * Names.LIMIT):
        names.note(number)
    names.note(5)

    assert len(names._seen) == Names.LIMIT
    assert names.repeats == 0
