"""How many may be in flight: the controller's word, carried from exchanges to seats.

Owns: which exchange is progress, a refusal or a hurt to the controller. Refuses to know: how a
limit is found.
"""

from collections.abc import Callable

from batchinfer.dispatch.lane import Seats
from batchinfer.flow.controller import Controller
from batchinfer.model import Accept, ErrorClass, Reject, Retry, Verdict

_REFUSALS = frozenset({ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD, ErrorClass.TIMEOUT})


class Steering:
    """One endpoint's; `controller` None: the limit is fixed, and nothing is done here."""

    def __init__(
        self, seats: Seats, controller: Controller | None, clock: Callable[[], float]
    ) -> None:
        self._seats = seats
        self._controller = controller
        self._clock = clock

    def started(self, in_flight: int) -> None:
        """Note that a request leaves; it is counted in `in_flight`."""
        if self._controller is not None:
            self._controller.started(in_flight)

    def ended(self, verdict: Verdict, seconds: float, in_flight: int) -> None:
        """Note what an exchange of so many seconds came to; it is not in flight any more."""
        controller = self._controller
        if controller is None:
            return
        now = self._clock()
        match verdict:
            case Accept(answer):
                controller.finished(now, seconds, answer.usage.output or answer.usage.input or 0)
            case Retry(problem=problem) if problem.error in _REFUSALS:
                controller.refused(now, seconds, in_flight)
            case Retry() | Reject():
                controller.hurt(now, seconds)
            case _:
                return
        if controller.limit != self._seats.limit:
            self._seats.set(controller.limit)
