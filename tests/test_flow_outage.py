import pytest

from batchinfer.flow.outage import Episodes, Outage, Reach


def failing(outage: Outage, times: list[float], rest: float = 10.0) -> list[Reach]:
    """What follows from connections that fail at once, each followed by a rest."""
    found = []
    for time in times:
        found.append(outage.failed(time, time))
        outage.episodes.rest(time + rest)
    return found


def test_what_fails_together_is_one_trouble() -> None:
    episodes = Episodes()

    assert episodes.trouble(0.0) == 1
    episodes.rest(10.0)
    assert episodes.trouble(0.0) == 1
    assert episodes.trouble(9.9) == 1
    assert episodes.trouble(10.0) == 2


def test_a_shorter_rest_does_not_end_a_longer_one() -> None:
    episodes = Episodes()
    episodes.trouble(0.0)
    episodes.rest(10.0)
    episodes.rest(5.0)

    assert episodes.trouble(7.0) == 1


def test_after_something_went_well_counting_starts_anew() -> None:
    episodes = Episodes()
    for time in (0.0, 1.0, 2.0):
        episodes.trouble(time)
    episodes.over()

    assert episodes.trouble(3.0) == 1


@pytest.mark.parametrize("patience", [1, 3, 5])
def test_an_endpoint_that_was_never_there_is_given_up_after_so_many_tries(patience: int) -> None:
    found = failing(Outage(patience, 1000.0), [10.0 * n for n in range(patience)])

    assert found == [Reach.WAIT] * (patience - 1) + [Reach.NEVER_THERE]


def test_many_connections_that_fail_at_once_are_one_try() -> None:
    outage = Outage(3, 1000.0)

    assert failing(outage, [0.0] * 50) == [Reach.WAIT] * 50


def test_an_endpoint_that_was_there_is_waited_for() -> None:
    outage = Outage(2, 1000.0)
    outage.reached()

    assert failing(outage, [0.0, 10.0, 500.0, 999.0]) == [Reach.WAIT] * 4


def test_an_endpoint_that_stays_away_too_long_is_gone() -> None:
    outage = Outage(2, 100.0)
    outage.reached()

    assert failing(outage, [50.0, 149.9, 150.0]) == [Reach.WAIT, Reach.WAIT, Reach.GONE]


def test_the_time_away_begins_with_the_first_connection_that_failed() -> None:
    outage = Outage(2, 100.0)
    outage.reached()

    assert outage.failed(sent_at=0.0, now=30.0) is Reach.WAIT
    assert outage.failed(sent_at=99.0, now=100.0) is Reach.GONE


def test_an_endpoint_that_came_back_has_all_the_time_again() -> None:
    outage = Outage(2, 100.0)
    outage.reached()
    failing(outage, [0.0, 90.0])
    outage.reached()

    assert outage.episodes.count == 0
    assert failing(outage, [95.0, 190.0]) == [Reach.WAIT, Reach.WAIT]


def test_an_answer_ends_the_patience_of_the_start() -> None:
    outage = Outage(2, 1000.0)
    failing(outage, [0.0])
    outage.reached()

    assert failing(outage, [20.0, 40.0, 60.0]) == [Reach.WAIT] * 3
