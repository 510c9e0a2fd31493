"""What a request will cost before it is known.

Owns: the running means of tokens, the booking that they make, and the reading of the output that a
body asks for. Refuses to know: limits, time.
"""

import re
from typing import Final, Self, assert_never

from batchinfer.flow.headers import Unit

_MOST: Final = re.compile(rb'"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})\b')
"""A quote inside a JSON text is escaped, so that no prompt can look like this."""


class Booking(float):
    """The tokens that a request will probably cost in all, and what must be known to correct that.

    `most`: output tokens that the server sets aside for it. `at`: when it left, once it has.
    """

    __slots__ = ("at", "input", "most", "output")

    input: float
    output: float
    most: float
    at: float | None

    def __new__(cls, inward: float, output: float = 0.0, most: float | None = None) -> Self:
        """Take the expected input and output; `most` None: no more than expected is set aside."""
        self = super().__new__(cls, inward + output)
        self.input = inward
        self.output = output
        self.most = output if most is None else most
        self.at = None
        return self

    @classmethod
    def of(cls, cost: float) -> "Booking":
        """Return the cost itself if it is a booking; a plain number is all input."""
        return cost if isinstance(cost, Booking) else cls(cost)

    def expected(self, unit: Unit) -> float:
        """Return what will probably be used of a limit on `unit`."""
        match unit:
            case Unit.REQUESTS:
                return 1.0
            case Unit.TOKENS:
                return float(self)
            case Unit.INPUT:
                return self.input
            case Unit.OUTPUT:
                return self.output
            case _:
                assert_never(unit)

    def held(self, unit: Unit) -> float:
        """Return what a limit on `unit` must have room for."""
        match unit:
            case Unit.TOKENS:
                return self.input + self.most
            case Unit.OUTPUT:
                return self.most
            case Unit.REQUESTS | Unit.INPUT:
                return self.expected(unit)
            case _:
                assert_never(unit)


class TokenEstimate:
    """The cost of a request before it is known: input by bytes, output by the running mean.

    Both ratios follow the usage that replies report (exponential mean, weight 0.05).
    """

    WEIGHT: Final = 0.05
    BYTES_PER_TOKEN: Final = 4.0

    def __init__(self, max_tokens: float | None) -> None:
        self._per_byte = 1 / self.BYTES_PER_TOKEN
        self._output = min(max_tokens or 256.0, 256.0)

    def of(self, body_bytes: int, most: float | None = None) -> Booking:
        """Return the tokens that a request with such a body will probably cost.

        `most`: the output that is set aside for it.
        """
        return Booking(body_bytes * self._per_byte, self._output, most)

    def learn(self, body_bytes: int, input_tokens: int | None, output_tokens: int | None) -> None:
        """Take in what a reply reported."""
        if input_tokens is not None and body_bytes:
            self._per_byte += self.WEIGHT * (input_tokens / body_bytes - self._per_byte)
        if output_tokens is not None:
            self._output += self.WEIGHT * (output_tokens - self._output)


def most_output(body: bytes) -> float | None:
    """Return the output tokens that a JSON request body asks for at most; None: it does not say."""
    found = _MOST.search(body)
    return float(found[1]) if found else None
