"""When the next request of an endpoint may leave: all its rate limits together.

Owns: which limits there are, what a reply, a refusal and a server's headers change, what outlives
the process. Refuses to know: clocks, sleeping, who waits; `now` is monotonic seconds.

Tokens are paced by what a request will probably cost, and settled by what it did; a refund that
comes later is forfeited, so that to pace by what a server sets aside (`max_tokens`) would waste
half of the limit. Where a server does set aside, a ledger keeps that count beside the pace.
"""

from collections.abc import Mapping
from typing import Final

from batchinfer.config.schema import Limits
from batchinfer.flow.estimate import Booking, TokenEstimate, most_output
from batchinfer.flow.gcra import MAX_DEBT, UTILISATION, Gcra
from batchinfer.flow.headers import Told, Unit
from batchinfer.flow.ledger60 import DAY, MINUTE, WINDOWS, Past
from batchinfer.flow.limit import Limit, Paced
from batchinfer.flow.share import Share

__all__ = ["MAX_DEBT", "UTILISATION", "Gcra", "Pacer", "TokenEstimate"]

EARS: Final = 1.0
"""Seconds from one look at the headers of replies to the next."""
GUARD: Final = 0.98
"""Share of a limit that may be set aside at once, where a server counts like that."""

_WORDS: Final[Mapping[Unit, str]] = {
    Unit.REQUESTS: "requests",
    Unit.TOKENS: "tokens",
    Unit.INPUT: "input tokens",
    Unit.OUTPUT: "output tokens",
}
_NOTHING: Final = Booking(0.0)


class Pacer:
    """All limits of one endpoint; a request leaves when every one of them allows it.

    `max_tokens`: output that a request asks for if its body does not say. `more`: the limits
    besides rpm and tpm.
    """

    def __init__(
        self,
        rpm: float | None,
        tpm: float | None,
        max_tokens: float | None,
        now: float,
        more: Limits | None = None,
    ) -> None:
        more = more or Limits()
        self._reserves = more.tpm_accounting == "reserve"
        self._max_tokens = max_tokens
        self._estimate = TokenEstimate(max_tokens)
        self._share = Share()
        self._listens_at = now
        self._said: set[Unit] = set()
        days = {Unit.REQUESTS: more.rpd, Unit.TOKENS: more.tpd}
        self._days = [Limit(unit, most, DAY) for unit, most in days.items() if most]
        self._paced: dict[Unit, Paced] = {}
        users = (rpm, tpm, more.input_tpm, more.output_tpm)
        for unit, most in zip(Unit, users, strict=True):
            if most:
                self._pace(unit, most, now, most)
        self._sort()

    def _pace(self, unit: Unit, per_minute: float, now: float, own: float | None) -> None:
        guard = GUARD if self._reserves and unit in {Unit.TOKENS, Unit.OUTPUT} else 1.0
        self._paced[unit] = Paced(unit, per_minute, now, own, guard)

    def _sort(self) -> None:
        self._all: list[Limit] = [*self._paced.values(), *self._days]
        self.unlimited = not self._all
        self._counts_tokens = any(limit.unit is not Unit.REQUESTS for limit in self._all)

    # ── one request ──────────────────────────────────────────────────────────────────────────

    def expect(self, body: bytes) -> float:
        """Return the `cost` of a request with this body, cut to what the limits ever allow.

        An estimate fails no row: a request that is too large is the server's to refuse.
        """
        if not self._counts_tokens:
            return 0.0
        most = (most_output(body) or self._max_tokens) if self._reserves else None
        cost = self._estimate.of(len(body), most)
        while not self.fits(cost):
            cost = Booking(cost.input / 2, cost.output / 2, cost.most / 2)
        return cost

    def cost(self, body_bytes: int) -> float:
        """Return the estimated tokens of a request; 0 where tokens are not limited.

        The other methods want this very value back.
        """
        if not self._counts_tokens:
            return 0.0
        return self._estimate.of(body_bytes, self._max_tokens if self._reserves else None)

    def fits(self, cost: float) -> bool:
        """Whether a request of `cost` tokens can ever be sent under the limits."""
        return self.excess(cost) is None

    def excess(self, cost: float) -> str | None:
        """Say which limit a request exceeds all by itself; None: it fits."""
        if not self._counts_tokens:
            return None
        booking = Booking.of(cost)
        for limit in self._all:
            if not limit.fits(booking):
                span = "minute" if limit.span == MINUTE else "day"
                held = booking.held(limit.unit)
                return f"about {held:,.0f} tokens: more than {limit.name} allows in a whole {span}"
        return None

    def wait(self, now: float, cost: float = _NOTHING) -> float:
        """Return the seconds until a request of `cost` tokens may leave, limits of a day aside.

        It may be more for a big request than for a small one behind it.
        """
        booking = Booking.of(cost)
        return max((limit.wait(now, booking) for limit in self._paced.values()), default=0.0)

    def take(self, now: float, cost: float, *, waited: bool) -> bool:
        """Book a request that leaves now; False, and nothing booked: a limit of a day is used up.

        Who gives up while waiting was never booked; who gives up under way stays booked.
        """
        booking = Booking.of(cost)
        if self._days and self.used_up(now, booking):
            return False
        if not self._share.full:
            self._use(self._share.at(now))
        for limit in self._all:
            limit.take(now, booking, waited=waited)
        booking.at = now
        return True

    def settle(
        self, body_bytes: int, cost: float, input_tokens: int | None, output_tokens: int | None
    ) -> None:
        """Correct the booking by the usage of a reply (None: unknown, the estimate stands)."""
        if not self._counts_tokens or (input_tokens is None and output_tokens is None):
            return
        total = (input_tokens or 0) + (output_tokens or 0)
        used = {Unit.TOKENS: total, Unit.INPUT: input_tokens, Unit.OUTPUT: output_tokens}
        self._correct(cost, used)
        self._estimate.learn(body_bytes, input_tokens, output_tokens)

    def refund(self, cost: float) -> None:
        """Give back the tokens of a request that never reached the server."""
        self._correct(cost, {Unit.TOKENS: 0, Unit.INPUT: 0, Unit.OUTPUT: 0})

    def used_up(self, now: float, cost: float) -> str | None:
        """Say which limit of a day has no room for a request, and for how long; None: none."""
        booking = Booking.of(cost)
        for limit in self._days:
            if (wait := limit.wait(now, booking)) > 0:
                used = f"{limit.name}: {limit.most:,.0f} {_WORDS[limit.unit]} in 24 hours"
                return f"{used} are used up; there is room again in {_hours(wait)}"
        return None

    def _correct(self, cost: float, used: Mapping[Unit, int | None]) -> None:
        booking = Booking.of(cost)
        for limit in self._all:
            amount = used.get(limit.unit)
            if amount is not None:
                limit.settle(booking, amount)

    def _use(self, share: float) -> None:
        for limit in self._paced.values():
            limit.use(share)

    # ── what the server says ─────────────────────────────────────────────────────────────────

    def refused(self, sent_at: float, now: float, after: float | None) -> None:
        """Slow down after a 429 to a request that left at `sent_at`; `after`: its Retry-After."""
        if self._paced and self._share.refused(sent_at, now, after):
            self._use(self._share.at(now))
            for limit in self._paced.values():
                limit.calm()

    def listens(self, now: float) -> bool:
        """Whether it is time to look at the headers of a reply again; at most once in EARS s."""
        if now < self._listens_at:
            return False
        self._listens_at = now + EARS
        return True

    def learn(self, told: Told, now: float) -> list[str]:
        """Take in what a server told of its limits; return what the user should know, once each.

        The lowest counts. It is kept to if it is below the user's own limit, and never raised above
        that. Where the user set none, it is taken over if its window is surely a minute.
        """
        lowest: dict[Unit, tuple[float, bool]] = {}
        for quota in told:
            if (rate := quota.per_minute) is not None:
                seen = (rate, quota.window == MINUTE)
                lowest[quota.unit] = min(lowest.get(quota.unit, seen), seen)
        said = [
            self._adopt(unit, rate, now, surely=surely) for unit, (rate, surely) in lowest.items()
        ]
        for quota in told:
            limit = self._paced.get(quota.unit)
            if limit is not None and quota.window == MINUTE and quota.remaining is not None:
                limit.left(now, quota.remaining, quota.reset)
        return [text for text in said if text]

    def _adopt(self, unit: Unit, rate: float, now: float, *, surely: bool) -> str:
        if unit in self._paced:
            why = self._paced[unit].adopt(rate, self._share.at(now))
        elif surely:
            self._pace(unit, rate, now, None)
            self._sort()
            why = ""
        else:
            return ""
        if why is None or unit in self._said:
            return ""
        self._said.add(unit)
        return f"the server allows {rate:,.0f} {_WORDS[unit]} a minute{why}; that is kept to"

    # ── from process to process ──────────────────────────────────────────────────────────────

    def snapshot(self, now: float, now_epoch: float) -> Past:
        """Return what was used of the windows that run: JSON values, with Unix seconds."""
        return {
            window: {
                limit.unit.value: limit.ledger.slots(now, now_epoch)
                for limit in self._all
                if limit.span == span
            }
            for window, span in WINDOWS.items()
        }

    def restore(self, past: Past, now: float, now_epoch: float) -> None:
        """Charge what earlier processes used; limits that are not set now need none of it."""
        for limit in self._all:
            for window, span in WINDOWS.items():
                if limit.span == span:
                    slots = past.get(window, {}).get(limit.unit.value, [])
                    limit.charge(now, now_epoch, slots)


def _hours(seconds: float) -> str:
    hours, minutes = divmod(max(1, round(seconds / MINUTE)), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
