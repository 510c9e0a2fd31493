"""One limit of an endpoint: a minute's, paced by a GCRA and guarded by a ledger, or a day's.

Owns: when the next request may leave as far as this limit goes, and what the server's own count
says against ours. Refuses to know: clocks (`now` is monotonic seconds), other limits, headers.
"""

from collections.abc import Mapping
from typing import Final

from batchinfer.flow.estimate import Booking
from batchinfer.flow.gcra import MAX_DEBT, Gcra
from batchinfer.flow.headers import Unit
from batchinfer.flow.ledger60 import MINUTE, Ledger, Slots
from batchinfer.flow.share import FLOOR

BIG: Final = 8.0
"""Times the usual cost from which on a request is one of those that must not stop the others."""
LEAD: Final = 30.0
"""Seconds by which such requests may run ahead of the pace; the ledger bounds the minute."""
WEIGHT: Final = 0.05
"""Of a new cost in the usual one."""
REFUNDED: Final = 0.5
"""Seconds of tokens that are carried over: a refund comes while the next request sleeps by what
was booked before."""
LOOK: Final = 1.0
"""Seconds after which what others use is looked at again."""

_FIELDS: Final[Mapping[tuple[Unit, float], str]] = {
    (Unit.REQUESTS, MINUTE): "limits.rpm",
    (Unit.TOKENS, MINUTE): "limits.tpm",
    (Unit.INPUT, MINUTE): "limits.input_tpm",
    (Unit.OUTPUT, MINUTE): "limits.output_tpm",
}


class Limit:
    """`most` units in any window of `span` seconds, used as fast as the other limits allow.

    That is all of a day's: it is used up at some time, and holds whenever a provider's day begins.
    """

    def __init__(self, unit: Unit, most: float, span: float) -> None:
        self.unit = unit
        self.most = most
        self.span = span
        self.ledger = Ledger(span)

    @property
    def name(self) -> str:
        """The field of the configuration."""
        if self.span > MINUTE:
            return "limits.rpd" if self.unit is Unit.REQUESTS else "limits.tpd"
        return _FIELDS[self.unit, self.span]

    def fits(self, cost: Booking) -> bool:
        """Whether such a request can ever be sent."""
        return cost.held(self.unit) <= self.most

    def wait(self, now: float, cost: Booking) -> float:
        """Return the seconds until a request may leave."""
        return self.ledger.wait(now, cost.held(self.unit), self.most)

    def take(self, now: float, cost: Booking, *, waited: bool) -> None:  # noqa: ARG002  # for a pace
        """Book a request that leaves now."""
        self.ledger.add(now, cost.held(self.unit))

    def settle(self, cost: Booking, used: float) -> None:
        """Put what was really used in the place of what was booked."""
        if cost.at is not None:
            self.ledger.amend(cost.at, used - cost.held(self.unit))

    def charge(self, now: float, now_epoch: float, slots: Slots) -> None:
        """Book what earlier processes used."""
        self.ledger.fill(now, now_epoch, slots)


class Paced(Limit):
    """`per_minute` units, evenly spread; `own`: the user's limit (None: only the server's).

    `guard`: the share of the limit that the ledger lets in.
    """

    def __init__(
        self, unit: Unit, per_minute: float, now: float, own: float | None, guard: float
    ) -> None:
        super().__init__(unit, guard * per_minute, MINUTE)
        self._own = own
        self._guard = guard
        debt = MAX_DEBT if unit is Unit.REQUESTS else REFUNDED
        self._gcra = Gcra(per_minute, now, debt=debt)
        self._others: Ledger | None = None
        self._lead = 0.0
        self._usual: float | None = None

    @property
    def per_minute(self) -> float:
        """The limit that holds now."""
        return self._gcra.per_minute

    def wait(self, now: float, cost: Booking) -> float:
        """Return the seconds until a request may leave: in time, and with room in the minute."""
        pace = self._gcra.wait(now) - self._lead
        if self._others is None:
            return max(pace, super().wait(now, cost))
        most = max(FLOOR * self.most, self.most - self._others.used(now))
        return max(pace, min(LOOK, self.ledger.wait(now, cost.held(self.unit), most)))

    def take(self, now: float, cost: Booking, *, waited: bool) -> None:
        """Book a request that leaves now.

        A big one does not stop those behind it: they keep their pace, that much ahead, until time
        has caught up.
        """
        expected = cost.expected(self.unit)
        self._lead = min(self._lead, self._gcra.wait(now))
        self._gcra.take(now, expected, waited=waited)
        super().take(now, cost, waited=waited)
        usual = expected if self._usual is None else self._usual
        if expected > BIG * usual > 0:
            excess = (expected - usual) * self._gcra.per_unit
            self._lead = min(LEAD, self._lead + excess)
        else:
            self._usual = usual + WEIGHT * (expected - usual)

    def settle(self, cost: Booking, used: float) -> None:
        """Put what was really used in the place of what was booked."""
        self._gcra.settle(cost.expected(self.unit), used)
        super().settle(cost, used)

    def charge(self, now: float, now_epoch: float, slots: Slots) -> None:
        """Book what earlier processes used, and go on at the pace of the last of it."""
        super().charge(now, now_epoch, slots)
        if slots:
            moment, amount = max(slots)
            rest = min(MINUTE, amount * self._gcra.per_unit)
            self._gcra.resume(min(now, now - now_epoch + moment) + rest)

    def use(self, share: float) -> None:
        """Pace at this share of the limit."""
        self._gcra.set(self.per_minute, share)

    def calm(self) -> None:
        """Let nothing run ahead of the pace any more."""
        self._lead = 0.0

    def adopt(self, told: float, share: float) -> str | None:
        """Take over a server's limit, up to the user's own; return what is below the user's."""
        limit = told if self._own is None else min(told, self._own)
        if limit == self.per_minute:
            return None
        self._gcra.set(limit, share)
        self.most = self._guard * limit
        if self._own is None or limit == self._own:
            return None
        return f", fewer than {self.name} ({self._own:,.0f})"

    def left(self, now: float, remaining: float, reset: float | None) -> None:
        """Believe a server that has less left than our ledger: others use the same limit.

        Theirs is free again after `reset` seconds. A server that has more left is not believed.
        """
        others = 0.0 if self._others is None else self._others.used(now)
        excess = self.per_minute - self.ledger.used(now) - others - remaining
        if excess <= 0:
            return
        if self._others is None:
            self._others = Ledger(MINUTE)
            self._others.used(now)
        age = MINUTE - min(MINUTE, MINUTE if reset is None else reset)
        self._others.amend(now - age, excess)
