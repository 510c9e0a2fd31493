"""What the simulated provider is told to be, and the chance in it.

Owns: the fields of `Behaviour` and the draws made from its seed. Refuses to know: HTTP, the clock,
any generator with a state. A draw is a function of (seed, number), so that the same job meets the
same provider again: the n-th request meets the n-th fate, whatever else is going on.
"""

from enum import Enum, auto
from typing import Annotated, Final, Literal

from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode

from batchinfer.errors import ConfigError

NonNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

_MASK: Final = 2**64 - 1
_ROUNDING: Final = 1e-9
_FATE, _JITTER, _TRUNCATION = range(3)


class Behaviour(Struct, frozen=True, forbid_unknown_fields=True):
    """How the provider behaves. Times in seconds, shares from 0 to 1; 0 means no limit.

    `api` is the wire API that the provider is meant to stand for; all three are always served.
    An answer takes `latency` ± `jitter` (a share of it, uniform) plus `per_token` for each output
    token. `slots`: how many requests are worked on at once; others queue, as before a GPU.
    `rpm`, `tpm`: requests and tokens (prompt and output together) that any 60 seconds may hold;
    what exceeds them is answered with 429. Of the admitted requests, `hang_rate` are never
    answered, `rate_limit_rate` get a 429 without a cause, `error_rate` a 500 after their latency.
    `truncate_rate` is the share of prompts whose answer is always cut short.
    """

    api: Literal["openai-chat", "openai-completions", "openai-embeddings"] = "openai-chat"
    latency: NonNegative = 0.05
    jitter: Share = 0.2
    per_token: NonNegative = 0.0
    slots: Annotated[int, Meta(ge=0)] = 0
    rpm: NonNegative = 0
    tpm: NonNegative = 0
    error_rate: Share = 0.0
    rate_limit_rate: Share = 0.0
    hang_rate: Share = 0.0
    truncate_rate: Share = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse contradictions; raises ConfigError."""
        for name, limit in (("rpm", self.rpm), ("tpm", self.tpm)):
            if 0 < limit < 1:
                raise ConfigError(f"simulate.{name} is {limit}: it must be 0 (no limit) or >= 1.")
        shares = self.hang_rate + self.rate_limit_rate + self.error_rate
        if shares > 1 + _ROUNDING:
            raise ConfigError(
                "simulate.hang_rate, rate_limit_rate and error_rate are shares of the same "
                f"requests; together they are {shares:g}, which is more than 1."
            )


class Fate(Enum):
    """What becomes of a request that was admitted."""

    ANSWER = auto()
    ERROR = auto()
    RATE_LIMIT = auto()
    HANG = auto()


def parse_behaviour(raw: bytes) -> Behaviour:
    """Read a behaviour from JSON; raises ConfigError with the field's path."""
    try:
        return decode(raw, type=Behaviour)
    except DecodeError as error:
        raise ConfigError(f"The simulator's behaviour cannot be read: {error}") from error


def fate(behaviour: Behaviour, number: int) -> Fate:
    """Draw what becomes of the `number`-th admitted request."""
    draw = _uniform(behaviour.seed, _FATE, number)
    for share, outcome in (
        (behaviour.hang_rate, Fate.HANG),
        (behaviour.rate_limit_rate, Fate.RATE_LIMIT),
        (behaviour.error_rate, Fate.ERROR),
    ):
        if draw < share:
            return outcome
        draw -= share
    return Fate.ANSWER


def service_time(behaviour: Behaviour, number: int, output_tokens: int) -> float:
    """Seconds for which the `number`-th admitted request is worked on."""
    sway = 2 * _uniform(behaviour.seed, _JITTER, number) - 1
    return behaviour.latency * (1 + behaviour.jitter * sway) + behaviour.per_token * output_tokens


def is_truncated(behaviour: Behaviour, digest: int) -> bool:
    """Whether the prompt of that digest gets a short answer, now and at every retry."""
    return _uniform(behaviour.seed, _TRUNCATION, digest) < behaviour.truncate_rate


def _uniform(seed: int, stream: int, number: int) -> float:
    """Draw from [0, 1): splitmix64 (Steele, Lea, Flood 2014), applied once for each input."""
    return _mix(_mix(_mix(seed) + stream) + number) / 2**53


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) >> 11
