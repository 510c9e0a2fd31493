"""Whether and when a row is asked again; tenacity's stop and wait strategies are the policy.

Owns: the count of attempts, the back-off, the server's delay as a floor. Refuses to know: sleeping
and chance; `luck` is a number in [0, 1) that the caller draws.
"""

from msgspec import Struct
from tenacity import RetryCallState, stop_after_attempt, stop_before_delay, wait_exponential
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from batchinfer.config.schema import Config


class Backoff(Struct, frozen=True):
    """The decision about an attempt that did not settle its row: wait `delay` s, or give up."""

    delay: float
    give_up: bool
    out_of_time: bool = False


class Tries(Struct, frozen=True):
    """What a row has had: exchanges, attempts (those that count), seconds since the first."""

    exchanges: int
    attempts: int
    elapsed: float


class RetryPolicy:
    """The config's retry section as a function of the attempt number."""

    def __init__(self, stop: stop_base, wait: wait_base, deadline: float) -> None:
        self._stop = stop
        self._wait = wait
        self._deadline = stop_before_delay(deadline)

    @classmethod
    def of(cls, config: Config) -> "RetryPolicy":
        """Build the policy; waits grow as base · 2^(n-1) up to the cap (seconds)."""
        return cls(
            stop_after_attempt(config.retry.attempts),
            wait_exponential(multiplier=config.retry.base, max=config.retry.cap),
            config.timeouts.deadline,
        )

    def after(self, tries: Tries, floor: float | None, luck: float, at_most: int | None) -> Backoff:
        """Decide after an exchange that did not settle its row.

        Full jitter (a draw between 0 and the back-off) parts rows that failed together; a delay
        that the server asked for is a floor, and the draw comes on top of it, a tenth at most.
        """
        state = _state(tries.exchanges)
        delay = luck * self._wait(state)
        if floor is not None:
            delay = floor + min(delay, 0.1 * floor)
        state.upcoming_sleep = delay
        state.outcome_timestamp = state.start_time + tries.elapsed
        late = self._deadline(state)
        state.attempt_number = tries.attempts
        spent = self._stop(state) or (at_most is not None and tries.attempts >= at_most)
        return Backoff(delay, give_up=spent or late, out_of_time=late and not spent)

    def pause(self, episode: int, floor: float | None, luck: float) -> float:
        """Return how long the whole endpoint rests after its `episode`-th refusal in a row."""
        if floor is not None:
            return floor + luck * min(1.0, 0.1 * floor)
        return (0.5 + 0.5 * luck) * self._wait(_state(episode))


def _state(attempt: int) -> RetryCallState:
    """Return the state object that tenacity's strategies read; nothing is called through it."""
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = attempt
    return state
