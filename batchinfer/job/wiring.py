"""From a configuration to the parts of a run.

Owns: which provider, transport, limits and headers a config means. Refuses to know: the input and
the journal.
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from orjson import dumps

from batchinfer.config.address import shown
from batchinfer.config.schema import Config
from batchinfer.dispatch.attempt import Attempt
from batchinfer.dispatch.endpoint import Endpoint, Surroundings, Wire
from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.lane import Lane, Seats
from batchinfer.dispatch.steering import Steering
from batchinfer.errors import ConfigError
from batchinfer.events import Event
from batchinfer.flow.controller import Controller
from batchinfer.flow.ledger import Ledger
from batchinfer.flow.ledger60 import DAY, MINUTE, Recent
from batchinfer.flow.outage import Episodes, Outage
from batchinfer.flow.pacer import Pacer
from batchinfer.flow.retry import RetryPolicy
from batchinfer.intake.rows import Recipe, Shape
from batchinfer.intake.templates import Template
from batchinfer.providers.base import Provider
from batchinfer.providers.registry import provider
from batchinfer.transport.base import Transport

MOST_IN_FLIGHT: Final = 1024
"""What `limits.concurrency = "auto"` never exceeds."""

MIN_SECRET: Final = 6
"""Characters below which a text is too common to be blotted out of a message."""

_LIKE_A_KEY: Final = re.compile(r"(?=.*[0-9]).{8,}")
"""What is blotted out of answers too: not a word such as `ollama`, which many servers take."""

_SHAPES: Final = {
    "chat/completions": Shape.CHAT,
    "completions": Shape.COMPLETIONS,
    "embeddings": Shape.EMBEDDINGS,
}


def wire_api(config: Config) -> str:
    """Return the name of the wire API that the job speaks."""
    if config.endpoint is None:
        raise ConfigError("no endpoint is configured")
    if config.endpoint.provider == "simulated":
        return config.simulate.api
    return config.endpoint.provider


def recipe(config: Config) -> Recipe:
    """Return how a line of this job's input is read."""
    shape = _SHAPES[provider(wire_api(config)).path]
    return Recipe(shape, Template(config.request), config.intake.max_line)


def concurrency(config: Config) -> int:
    """Return how many requests may be in flight at the most."""
    limit = config.limits.concurrency
    return MOST_IN_FLIGHT if limit == "auto" else limit


def wire(
    config: Config, api: Provider, url: str, headers: Mapping[str, str], secrets: Iterable[str]
) -> Wire:
    """Return where requests go and what they all carry."""
    hidden = sorted(set(secrets), key=len, reverse=True)
    return Wire(
        provider=api,
        url=url,
        host=shown(url),
        headers={"content-type": "application/json", **headers},
        model=config.endpoint.model if config.endpoint else None,
        params=config.request.params,
        secrets=tuple(text for text in hidden if len(text) >= MIN_SECRET),
        keys=tuple(dumps(text)[1:-1] for text in hidden if _LIKE_A_KEY.fullmatch(text)),
        keep_response=config.output.include_response,
    )


def recent(config: Config) -> Recent:
    """Return what gathers the usage of earlier runs that this job's limits still charge."""
    daily = config.limits.rpd or config.limits.tpd
    return Recent(time.time(), DAY if daily else MINUTE)


def attempt(
    config: Config,
    to: Wire,
    transport: Transport,
    spent: float,
    sink: Callable[[Event], None],
) -> tuple[Attempt, Lane]:
    """Return the attempt and the lane of the job's endpoint; `spent` USD by earlier runs."""
    outside = Surroundings(time.monotonic, time.time, stamp, random.random, sink)
    limits, retry = config.limits, config.retry
    params = config.request.params
    most = params.get("max_completion_tokens", params.get("max_tokens"))
    asked = float(most) if isinstance(most, int | float) else None
    gate = Gate(Pacer(limits.rpm, limits.tpm, asked, outside.clock(), limits), outside.clock)
    controller = None
    if limits.concurrency == "auto":
        controller = Controller(outside.clock(), most=MOST_IN_FLIGHT)
    seats = Seats(controller.limit if controller else concurrency(config))
    steering = Steering(seats, controller, outside.clock)
    outage = Outage(retry.attempts, retry.max_outage)
    endpoint = Endpoint(to, transport, gate, outage, Episodes(), steering)
    ledger = Ledger(config.prices, config.budget.max_cost, spent)
    tries = Attempt(endpoint, RetryPolicy.of(config), ledger, outside)
    return tries, Lane(tries, gate, seats)


def stamp() -> str:
    """Return the time as RFC 3339 UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
