import pytest

from batchinfer.flow.refusals import BLACKOUT, CLEAN, EPISODE, PRESSURE, Refusals


def over(refusals: Refusals, now: float, answers: int) -> bool:
    """Refuse until it is one too many; the last call's answer."""
    return [refusals.weigh(now, answers) for _ in range(int(PRESSURE))][-1]


def test_a_lone_refusal_is_none_too_many() -> None:
    refusals = Refusals(0.0, 100)
    verdicts = [refusals.weigh(float(n), answers=100 * n) for n in range(100)]

    assert not any(verdicts)


def test_one_in_twenty_is_too_many_soon() -> None:
    refusals = Refusals(0.0, 100)
    verdicts = [refusals.weigh(float(n), answers=20 * n) for n in range(12)]

    assert any(verdicts)


def test_a_proven_limit_falls_once_an_episode() -> None:
    refusals = Refusals(0.0, 200)
    assert over(refusals, 100.0, 1000)

    assert refusals.cut(100.0, 99.9, 100, limit=100, proven=100) == 85
    assert refusals.cut(101.0, 100.9, 90, limit=85, proven=100) is None
    refusals.over()
    assert refusals.cut(100.0 + EPISODE, 114.9, 85, limit=85, proven=100) == 72


def test_what_was_sent_before_the_cut_belongs_to_it() -> None:
    refusals = Refusals(0.0, 200)
    assert over(refusals, 100.0, 1000)
    refusals.cut(100.0, 99.9, 100, limit=100, proven=100)
    refusals.over()

    assert refusals.cut(160.0, 99.0, 84, limit=85, proven=100) is None


def test_a_limit_being_tried_falls_to_what_was_let_in_and_not_below_the_proven_one() -> None:
    refusals = Refusals(0.0, 200)
    assert over(refusals, 100.0, 1000)

    assert refusals.cut(100.0, 99.9, 52, limit=64, proven=32) == 50
    assert refusals.cut(100.1, 99.9, 48, limit=50, proven=32) == 48
    assert refusals.cut(100.2, 100.1, 47, limit=48, proven=32) == 46
    assert refusals.cut(100.3, 99.9, 10, limit=46, proven=32) == 32


def test_the_ceiling_is_what_was_let_in_and_rises_with_clean_minutes() -> None:
    refusals = Refusals(0.0, 60)
    assert refusals.ceiling(1.0) == 60
    assert over(refusals, 10.0, 1000)
    refusals.cut(10.0, 9.9, 48, limit=60, proven=32)

    assert refusals.ceiling(10.0 + CLEAN - 1) == 48
    assert refusals.ceiling(10.0 + CLEAN) == 51
    assert refusals.ceiling(10.0 + 2 * CLEAN) == 54
    assert refusals.ceiling(1e6) == 60


def test_an_outage_is_undone_and_a_refusal_is_not() -> None:
    refusals = Refusals(0.0, 200)
    assert over(refusals, 100.0, 1000)
    refusals.cut(100.0, 99.9, 80, limit=80, proven=80)
    assert refusals.over() is None

    for second in range(100):
        refusals.weigh(101.0 + second, 1001)
    assert refusals.cut(150.0, 149.0, 50, limit=68, proven=80) == 49
    assert refusals.row >= BLACKOUT
    assert refusals.over() == 80
    assert refusals.ceiling(202.0) == 200


def test_a_row_of_refusals_without_a_cut_restores_nothing() -> None:
    refusals = Refusals(0.0, 200)
    for second in range(300):
        refusals.weigh(float(second), 0)

    assert refusals.over() is None


@pytest.mark.parametrize(("gap", "frozen"), [(CLEAN - 1, False), (CLEAN, True)])
def test_only_the_first_failure_after_a_quiet_minute_freezes(gap: float, frozen: bool) -> None:
    refusals = Refusals(0.0, 100)
    refusals.failed(100.0)
    assert refusals.frozen(100.0 + EPISODE - 0.1)
    assert not refusals.frozen(100.0 + EPISODE)
    refusals.failed(100.0 + gap)

    assert refusals.frozen(100.0 + gap) is frozen
