"""When the next request may leave: one GCRA per limit (requests, tokens).

Owns: the rate arithmetic. Refuses to know: clocks, sleeping, who waits; `now` is monotonic seconds.

Virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, appendix A): a theoretical
arrival time `tat` moves on by cost/rate with each request. Bursts of one, and an empty start: no
window ever holds more than its share, at the start and after an idle spell alike.
"""

from typing import Final

UTILISATION: Final = 0.98
"""Share of a limit that is used: jitter on the way, not the rate, causes the last 429s."""

MAX_DEBT: Final = 0.05
"""Seconds of a timer's lateness that are carried over; without it a pacer loses 2-25 % of its rate
to late wake-ups, with more of it an idle spell would turn into a burst."""


class Gcra:
    """One limit of `per_minute` units; `wait` asks, `take` books, `settle` corrects."""

    def __init__(self, per_minute: float, now: float, utilisation: float = UTILISATION) -> None:
        self._per_unit = 60.0 / (per_minute * utilisation)
        self._tat = now
        self.per_minute = per_minute

    def wait(self, now: float) -> float:
        """Return the seconds until the next request may leave; 0 when it may leave now."""
        return max(0.0, self._tat - now)

    def take(self, now: float, cost: float, *, waited: bool) -> None:
        """Book `cost` units for a request that leaves now.

        `waited`: it was ready before, and kept by a timer or behind one that was.
        """
        start = max(self._tat, now - MAX_DEBT) if waited else max(self._tat, now)
        self._tat = start + cost * self._per_unit

    def settle(self, estimated: float, used: float) -> None:
        """Replace an estimate that was booked by what was really used."""
        self._tat += (used - estimated) * self._per_unit


class TokenEstimate:
    """The cost of a request before it is known: input by bytes, output by the running mean.

    Both ratios follow the usage that replies report (exponential mean, weight 0.05).
    """

    WEIGHT: Final = 0.05
    BYTES_PER_TOKEN: Final = 4.0

    def __init__(self, max_tokens: float | None) -> None:
        self._per_byte = 1 / self.BYTES_PER_TOKEN
        self._output = min(max_tokens or 256.0, 256.0)

    def of(self, body_bytes: int) -> float:
        """Return the tokens that a request with such a body will probably cost."""
        return body_bytes * self._per_byte + self._output

    def learn(self, body_bytes: int, input_tokens: int | None, output_tokens: int | None) -> None:
        """Take in what a reply reported."""
        if input_tokens is not None and body_bytes:
            self._per_byte += self.WEIGHT * (input_tokens / body_bytes - self._per_byte)
        if output_tokens is not None:
            self._output += self.WEIGHT * (output_tokens - self._output)


class Pacer:
    """All limits of one endpoint together; a request leaves when every one of them allows it."""

    def __init__(
        self, rpm: float | None, tpm: float | None, max_tokens: float | None, now: float
    ) -> None:
        self._requests = Gcra(rpm, now) if rpm else None
        self._tokens = Gcra(tpm, now) if tpm else None
        self._estimate = TokenEstimate(max_tokens)
        self.unlimited = not (rpm or tpm)

    def cost(self, body_bytes: int) -> float:
        """Return the estimated tokens of a request; 0 where tokens are not limited."""
        if self._tokens is None:
            return 0.0
        # An estimate never fails a row: at most a minute's worth is booked, the server decides.
        return min(self._estimate.of(body_bytes), self._tokens.per_minute)

    def wait(self, now: float) -> float:
        """Return the seconds until the next request may leave."""
        return max(limit.wait(now) for limit in self._limits()) if not self.unlimited else 0.0

    def take(self, now: float, cost: float, *, waited: bool) -> None:
        """Book a request that leaves now."""
        if self._requests:
            self._requests.take(now, 1.0, waited=waited)
        if self._tokens:
            self._tokens.take(now, cost, waited=waited)

    def settle(
        self, body_bytes: int, cost: float, input_tokens: int | None, output_tokens: int | None
    ) -> None:
        """Correct the booking by the usage of a reply (None: unknown, the estimate stands)."""
        if self._tokens is None or (input_tokens is None and output_tokens is None):
            return
        self._tokens.settle(cost, float((input_tokens or 0) + (output_tokens or 0)))
        self._estimate.learn(body_bytes, input_tokens, output_tokens)

    def refund(self, cost: float) -> None:
        """Give back the tokens of a request that never reached the server."""
        if self._tokens:
            self._tokens.settle(cost, 0.0)

    def _limits(self) -> list[Gcra]:
        return [limit for limit in (self._requests, self._tokens) if limit]
