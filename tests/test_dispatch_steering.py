import pytest

from batchinfer.dispatch.lane import Seats
from batchinfer.dispatch.steering import Steering
from batchinfer.flow.controller import Controller
from batchinfer.model import Accept, Answer, ErrorClass, Halt, Problem, Retry, Usage, Verdict

GOOD = Accept(Answer(b'"x"', Usage(1, 10), "stop", "m", None))


class Server:
    """Answers in one second as long as no more than `slots` are asked at once."""

    def __init__(self, controller: Controller, seats: Seats, slots: int) -> None:
        self.now = 0.0
        self.seats = seats
        self.slots = slots
        self.steering = Steering(seats, controller, lambda: self.now)

    def round(self, verdict: Verdict = GOOD) -> None:
        """All seats ask once; what is above the slots takes its turn after the others."""
        limit = self.seats.limit
        for _ in range(limit):
            self.steering.started(limit)
        seconds = max(1.0, limit / self.slots)
        for _ in range(limit):
            self.now += seconds / limit
            self.steering.ended(verdict, seconds, limit - 1)


def test_seats_follow_the_controller_up_to_what_the_server_can_do() -> None:
    seats = Seats(8)
    server = Server(Controller(0.0), seats, slots=64)
    for _ in range(200):
        server.round()

    assert 48 <= seats.limit <= 160


@pytest.mark.parametrize("error", [ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD, ErrorClass.TIMEOUT])
def test_refusals_take_seats_away(error: ErrorClass) -> None:
    seats = Seats(8)
    server = Server(Controller(0.0), seats, slots=10_000)
    for _ in range(20):
        server.round()
    before = seats.limit
    for _ in range(3):
        server.round(Retry(Problem(error, "no"), counts=False))

    assert seats.limit < before


def test_a_fixed_limit_stays_whatever_happens() -> None:
    seats = Seats(8)
    steering = Steering(seats, None, lambda: 0.0)
    refused = Retry(Problem(ErrorClass.OVERLOAD, "no"))
    for verdict in (GOOD, refused, Halt(Problem(ErrorClass.AUTH, ""))):
        steering.started(8)
        steering.ended(verdict, 1.0, 7)

    assert seats.limit == 8
