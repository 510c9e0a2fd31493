"""What an inference server tells about itself, and what that means for the requests in flight.

Owns: reading the gauges of vLLM, SGLang, llama.cpp and the simulator out of their Prometheus
text; keeping the server's queue small and none of its slots idle. Refuses to know: where the text
comes from, how often, what the limit is otherwise.
"""

import math
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from batchinfer.flow.climb import Bounds

QUEUE_SHARE: Final = 0.12
QUEUE_LEAST: Final = 2
"""The queue that is kept: a share of what runs, and never less than this many requests. With none
a slot that falls free would wait for the next request to travel."""
CACHE_FULL: Final = 0.95
"""Share of the KV cache in use from which more in flight would only be preempted."""
STALE: Final = 15.0
"""Seconds after which an observation says nothing any more."""


class Load(Struct, frozen=True):
    """Requests running and waiting at the server, whoever sent them.

    `cache`: share of the KV cache in use, 0 to 1. `slots`: how many can run at once.
    """

    running: int
    waiting: int
    cache: float | None = None
    slots: int | None = None


class _Names(Struct, frozen=True):
    running: str
    waiting: str
    cache: tuple[str, ...] = ()
    slots: str = ""


_SERVERS: Final = (
    _Names(
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ),
    _Names("sglang:num_running_reqs", "sglang:num_queue_reqs", ("sglang:token_usage",)),
    _Names(
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        ("llamacpp:kv_cache_usage_ratio",),
    ),
    _Names("simulated_running", "simulated_waiting", slots="simulated_slots"),
)


def parse_metrics(text: str) -> Load | None:
    """Read a server's load from the text of its `/metrics`; None: none of the known servers.

    Requests are summed over engines and models, the fullest cache counts. Lines that are not
    samples are passed over.
    """
    samples = _samples(text)
    for names in _SERVERS:
        running, waiting = samples.get(names.running), samples.get(names.waiting)
        if running and waiting:
            cache = max((v for name in names.cache for v in samples.get(name, ())), default=None)
            slots = int(sum(samples.get(names.slots, ()))) or None
            return Load(int(sum(running)), int(sum(waiting)), cache, slots)
    return None


_WANTED: Final = frozenset(
    name for s in _SERVERS for name in (s.running, s.waiting, s.slots, *s.cache) if name
)


def _samples(text: str) -> Mapping[str, list[float]]:
    """Collect the values of the gauges that matter: name → one value a set of labels."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _WANTED:
            rest = line[len(name) :].rpartition("}")[2].split()
            value = _number(rest[0]) if rest else None
            if value is not None:
                found.setdefault(name, []).append(value)
    return found


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


class ServerLoad:
    """`observe` the server from time to time; `bounds` say what follows for our requests."""

    def __init__(self, least: int, most: int) -> None:
        self._bounds = self._all = Bounds(least, most)
        self._until = -math.inf
        self._queued = 0
        self._capacity = 0

    def observe(self, now: float, load: Load, in_flight: int) -> None:
        """Take in the server's load while `in_flight` of the requests there are ours.

        A queue counts when two observations in a row show it: requests that have just arrived
        wait a moment at any server.
        """
        lasting = load.waiting if now >= self._until else min(self._queued, load.waiting)
        self._queued = load.waiting
        self._until = now + STALE
        self._bounds = self._within(load, lasting, in_flight)

    def bounds(self, now: float) -> Bounds:
        """Return the least and the largest limit that make sense now."""
        return self._bounds if now < self._until else self._all

    def _within(self, load: Load, lasting: int, in_flight: int) -> Bounds:
        queue = max(QUEUE_LEAST, math.ceil(QUEUE_SHARE * load.running))
        ours = min(1.0, in_flight / max(1, load.running + load.waiting))
        if lasting:
            self._capacity = load.running
            # Others wait there too: each gives way by its share.
            excess = math.ceil((lasting - queue) * ours) if lasting > queue else lasting - queue
            floor = math.ceil(load.running * ours) + 1
            return self._clip(min(floor, in_flight), in_flight - excess)
        if (load.cache or 0.0) >= CACHE_FULL:
            return self._clip(self._all.floor, in_flight)
        # Once a queue has been seen, there is room for what then ran, and for a queue.
        self._capacity = max(self._capacity, load.running) if self._capacity else 0
        room = (load.slots or self._capacity) - load.running
        if load.slots or self._capacity:
            return self._clip(in_flight + room + 1, in_flight + room + queue)
        return self._all

    def _clip(self, floor: int, roof: int) -> Bounds:
        roof = max(self._all.floor, min(self._all.roof, roof))
        return Bounds(max(self._all.floor, min(floor, roof)), roof)
