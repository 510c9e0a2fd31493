"""The controller against servers in virtual time: what it reaches, and what it must never do."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servermodels import (
    VLLM,
    Client,
    Fixed,
    Load,
    Run,
    Server,
    Speed,
    Steerer,
    collapse,
    concave,
    drive,
    knee,
)

from batchinfer.flow.controller import Controller, Decision
from batchinfer.flow.serverload import Load as ServerFigures

SEEDS = range(3)
ROWS_OF_TOKENS = 200


@dataclass(frozen=True)
class Model:
    """A server and a job. `best`: the fixed limits among which the best one is.

    `p99`: how many times the best fixed limit's p99 may be reached: (by any seed, in the mean).
    """

    server: Callable[[], Server]
    best: tuple[int, ...]
    load: Load
    p99: tuple[float, float]
    goodput: float = 0.96


def around(capacity: int) -> tuple[int, ...]:
    return tuple(sorted({math.ceil(capacity * share) for share in (1.0, 1.05, 1.1, 1.25)}))


def slots(number: int) -> Callable[[], Server]:
    return lambda: Server(float, slots=number)


def sharing(speed: Speed, number: int = 1 << 30) -> Callable[[], Server]:
    return lambda: Server(speed, slots=number)


MODELS = {
    "sharp knee at 2": Model(sharing(knee(2)), around(2), Load(), (4.5, 3.0)),
    "sharp knee at 8": Model(sharing(knee(8)), around(8), Load(), (2.5, 1.5)),
    "sharp knee at 32": Model(sharing(knee(32)), around(32), Load(), (1.3, 1.2)),
    "sharp knee at 128": Model(sharing(knee(128)), around(128), Load(), (1.3, 1.2)),
    "8 slots and a queue": Model(slots(8), around(8), Load(), (2.5, 1.5)),
    "32 slots and a queue": Model(slots(32), around(32), Load(), (1.5, 1.3)),
    "128 slots and a queue": Model(slots(128), around(128), Load(), (1.3, 1.2)),
    "32 slots, all requests alike": Model(slots(32), around(32), Load(sigma=0.0), (1.3, 1.2)),
    "concave with a plateau": Model(
        sharing(concave(VLLM, ROWS_OF_TOKENS)), (512, 1024), Load(), (1.3, 1.2)
    ),
    "concave, lengths that differ, usage known": Model(
        sharing(concave(VLLM, ROWS_OF_TOKENS)),
        (512, 1024),
        Load(sigma=0.6, tokens=ROWS_OF_TOKENS),
        (1.3, 1.2),
    ),
    "concave with 256 slots": Model(
        sharing(concave(VLLM, ROWS_OF_TOKENS), 256), around(256), Load(sigma=0.6), (1.3, 1.2)
    ),
    "collapse beyond twice 32": Model(sharing(collapse(32)), around(32), Load(), (1.3, 1.2)),
    "lengths that differ much": Model(slots(32), around(32), Load(sigma=0.6), (2.0, 1.5)),
    "lengths that differ much, usage known": Model(
        slots(32), around(32), Load(sigma=0.6, tokens=ROWS_OF_TOKENS), (3.0, 2.2)
    ),
}
CAPPED = Model(lambda: Server(float, cap=48), (48,), Load(), (1.3, 1.2))


class Watched:
    """A controller that keeps its decisions."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.decisions: list[Decision] = []

    @property
    def limit(self) -> int:
        return self.controller.limit

    def started(self, in_flight: int) -> None:
        self.controller.started(in_flight)

    def finished(self, now: float, seconds: float, tokens: int) -> None:
        self.keep(self.controller.finished(now, seconds, tokens))

    def refused(self, now: float, seconds: float, in_flight: int) -> None:
        self.keep(self.controller.refused(now, seconds, in_flight))

    def keep(self, decision: Decision | None) -> None:
        if decision is not None:
            self.decisions.append(decision)


@cache
def best_fixed(name: str) -> tuple[int, float, float]:
    """Return of the best fixed limits the smallest (within 1 %), its goodput and its p99."""
    model = MODELS.get(name, CAPPED)
    found = []
    for limit in model.best:
        rows = max(3000, 8 * limit)
        run = drive(model.server(), Fixed(limit), model.load, random.Random(99), rows=rows)
        begin, end = run.at[rows // 4], run.at[-limit]
        found.append((limit, run.goodput(begin, end), run.p99(begin)))
    most = max(goodput for _, goodput, _ in found)
    return next((limit, most, p99) for limit, goodput, p99 in found if goodput >= 0.99 * most)


def converged(name: str, seed: int) -> tuple[float, float, float]:
    """Return goodput and p99 after 150 request times, as shares of the best, and 429s in all."""
    model = MODELS.get(name, CAPPED)
    limit, goodput, p99 = best_fixed(name)
    request = limit / goodput
    until = 350 * request
    run = drive(model.server(), Controller(0.0), model.load, random.Random(seed), until=until)
    since = 150 * request
    refusals = run.refusals / (run.refusals + len(run.at))
    return run.goodput(since, until) / goodput, run.p99(since) / p99, refusals


def job(model: Model, steer: Steerer, seed: int, rows: int) -> float:
    return drive(model.server(), steer, model.load, random.Random(seed), rows=rows).at[-1]


@pytest.mark.parametrize("name", list(MODELS))
def test_it_settles_where_goodput_is_that_of_the_best_fixed_limit(name: str) -> None:
    model = MODELS[name]
    reached = [converged(name, seed) for seed in SEEDS]

    assert min(goodput for goodput, _, _ in reached) >= model.goodput
    assert max(p99 for _, p99, _ in reached) <= model.p99[0]
    assert sum(p99 for _, p99, _ in reached) / len(reached) <= model.p99[1]


def test_a_hard_cap_is_filled_and_hardly_ever_hit() -> None:
    reached = [converged("cap", seed) for seed in SEEDS]

    assert min(goodput for goodput, _, _ in reached) >= 0.96
    assert max(p99 for _, p99, _ in reached) <= 1.3
    assert max(refusals for _, _, refusals in reached) <= 0.003


@pytest.mark.parametrize(
    ("name", "rows", "ratio"),
    [
        ("sharp knee at 2", 2_000, 1.05),
        ("sharp knee at 8", 2_000, 1.06),
        ("sharp knee at 32", 2_000, 1.08),
        ("sharp knee at 128", 2_000, 1.4),
        ("concave with a plateau", 2_000, 1.5),
        ("sharp knee at 32", 20_000, 1.05),
        ("sharp knee at 128", 20_000, 1.06),
        ("concave with a plateau", 20_000, 1.08),
    ],
)
def test_a_whole_job_takes_little_longer_than_at_the_best_limit(
    name: str, rows: int, ratio: float
) -> None:
    limit, _, _ = best_fixed(name)
    auto = job(MODELS[name], Controller(0.0), 5, rows)

    assert auto <= ratio * job(MODELS[name], Fixed(limit), 5, rows)


def test_a_short_quick_job_does_not_spend_itself_climbing() -> None:
    quick = Model(slots(64), (64,), Load(work=0.038, network=0.002, sigma=0.1), (2, 2))
    auto = job(quick, Controller(0.0), 1, 500)

    assert auto <= 1.6 * job(quick, Fixed(67), 1, 500)
    assert auto <= 0.45 * job(quick, Fixed(8), 1, 500)


@pytest.mark.parametrize("capacity", [8, 32, 128])
def test_it_comes_near_the_knee_within_800_answers(capacity: int) -> None:
    for seed in SEEDS:
        run = drive(Server(knee(capacity)), Controller(0.0), Load(), random.Random(seed), rows=1500)
        reached = run.reaches(0.9 * capacity, max(30, capacity))

        assert sum(at < reached for at in run.at) <= 800


def stepping(seed: int, server: Server, change: Callable[[int], None]) -> Run:
    events = iter([(200.0, lambda _now, _n: change(12)), (500.0, lambda _now, _n: change(32))])
    return drive(server, Controller(0.0), Load(), random.Random(seed), until=900, events=events)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["shared", "slots"])
def test_it_follows_a_server_that_loses_capacity_and_regains_it(kind: str, seed: int) -> None:
    server = Server(knee(32)) if kind == "shared" else Server(float, slots=32)

    def change(capacity: int) -> None:
        if kind == "shared":
            server.speed = knee(capacity)
        else:
            server.slots = capacity

    run = stepping(seed, server, change)
    lowered = next(at for at, limit in run.limits if at > 200 and limit <= 18)

    assert lowered <= 265
    assert run.goodput(265, 500) >= 0.93 * 12
    assert max(limit for at, limit in run.limits if 300 < at < 500) <= 24
    assert run.limit_at(600) >= 0.85 * 32
    assert run.goodput(600, 900) >= 0.93 * 32


def test_most_losses_of_capacity_are_answered_within_30_seconds() -> None:
    late = 0
    for seed in range(8):
        server = Server(float, slots=32)
        run = stepping(seed, server, lambda capacity, s=server: setattr(s, "slots", capacity))  # type: ignore[misc]
        late += next(at for at, limit in run.limits if at > 200 and limit <= 18) > 230

    assert late <= 2


def test_a_demand_below_the_limit_does_not_raise_it() -> None:
    for seed in SEEDS:
        load = Load(demand=20.0)
        run = drive(Server(float), Controller(0.0), load, random.Random(seed), until=600)

        # Of 20 in flight a limit of 25 is the last that is used to 80 %: 16 may double, 32 not.
        assert max(limit for _, limit in run.limits) <= 32
        assert run.limits[-1][0] < 30


def test_no_growth_without_use() -> None:
    controller = Controller(0.0, start=8)
    for second in range(1000):
        controller.started(3)
        controller.finished(float(second), 1.0, 10)

    assert controller.limit == 8


def test_random_refusals_do_not_cut_a_good_limit_down() -> None:
    for seed in SEEDS:
        load = Load(unlucky=0.01, pause=0.05)
        run = drive(Server(knee(32)), Controller(0.0), load, random.Random(seed), until=600)

        assert run.limit_at(599) >= 27
        assert run.goodput(200, 600) >= 0.85 * 32


def test_a_request_that_hangs_now_and_then_changes_nothing() -> None:
    controller = Controller(0.0, start=64, most=64)
    now = 0.0
    for number in range(5000):
        now += 1 / 64
        controller.started(64)
        if number % 500:
            controller.finished(now, 1.0, 10)
        else:
            assert controller.refused(now, 120.0, 63) is None


def test_an_outage_leaves_the_limit_as_it_was() -> None:
    for seed in SEEDS:
        server = Server(knee(32))

        def cap(number: int, server: Server = server) -> Callable[[float, int], None]:
            return lambda _now, _n: setattr(server, "cap", number)

        events = iter([(200.0, cap(0)), (320.0, cap(1 << 30))])
        run = drive(server, Controller(0.0), Load(), random.Random(seed), until=400, events=events)

        assert run.goodput(200, 320) < 1
        assert run.goodput(335, 400) >= 0.9 * 32


def test_refusals_cut_the_limit_once_an_episode() -> None:
    controller = Controller(0.0, start=100, most=100)
    for number in range(400):
        controller.started(100)
        controller.finished(number / 100, 1.0, 0)
    before = controller.limit
    cuts = [controller.refused(4.0 + n / 1000, 0.01, before) for n in range(9)]
    kept = [cut for cut in cuts if cut is not None]

    assert [(cut.old, cut.new) for cut in kept] == [(before, math.floor(before * 0.85))]
    assert "refuses" in kept[0].reason


def test_a_refused_step_up_falls_back_to_what_was_let_in() -> None:
    watched = Watched(Controller(0.0))
    drive(Server(float, cap=48), watched, Load(), random.Random(3), until=30)
    refused = [d for d in watched.decisions if "refuses" in d.reason]

    assert refused
    assert 45 <= watched.limit <= 48


def test_after_a_cut_the_ceiling_rises_slowly() -> None:
    server = Server(float, cap=48)
    events = iter([(100.0, lambda _now, _n: setattr(server, "cap", 1 << 30))])
    run = drive(server, Controller(0.0), Load(), random.Random(1), until=330, events=events)

    assert run.limit_at(125) <= 54
    assert 54 <= run.limit_at(329) <= 65


def grown_with_failures(until: float, *, every: int) -> int:
    """Return the limit on an endless server that fails each `every`-th request."""
    controller = Controller(0.0)
    client = Client(Server(float), Failing(controller, every), Load(), random.Random(1))
    client.work(1 << 60, until, iter(()))
    return controller.limit


class Failing(Fixed):
    """Turns each `every`-th answer into a failure."""

    def __init__(self, controller: Controller, every: int) -> None:
        self.controller = controller
        self.every = every
        self.count = 0

    @property
    def limit(self) -> int:  # type: ignore[override]
        return self.controller.limit

    def started(self, in_flight: int) -> None:
        self.controller.started(in_flight)

    def finished(self, now: float, seconds: float, tokens: int) -> None:
        self.count += 1
        if self.count % self.every:
            self.controller.finished(now, seconds, tokens)
        else:
            self.controller.hurt(now, seconds)


def test_failures_hold_growth_back_for_a_while_and_not_for_ever() -> None:
    assert grown_with_failures(14.0, every=4) == 8
    assert grown_with_failures(60.0, every=4) >= 256


def test_decisions_tell_each_change_of_the_goal_and_why() -> None:
    watched = Watched(Controller(0.0))
    drive(Server(knee(32)), watched, Load(), random.Random(2), until=200)
    decisions = watched.decisions

    assert decisions[0].old == 8
    assert [d.new for d in decisions[:-1]] == [d.old for d in decisions[1:]]
    assert all(d.new != d.old and d.reason for d in decisions)
    assert [d.at for d in decisions] == sorted(d.at for d in decisions)
    assert any("%" in d.reason and "up" in d.reason for d in decisions)
    assert any("hold" in d.reason for d in decisions)


@pytest.mark.parametrize(("number", "load"), [(4, Load()), (256, Load(sigma=0.6))])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_shows_its_queue_has_a_small_one_and_no_idle_slot(
    number: int, load: Load, seed: int
) -> None:
    server, controller = Server(float, slots=number), Controller(0.0)
    queues: list[tuple[int, int]] = []

    def look(now: float, in_flight: int) -> None:
        controller.observed(now, ServerFigures(server.running, server.waiting), in_flight)
        if now > 60:
            queues.append((server.running, server.waiting))

    run = drive(server, controller, load, random.Random(seed), until=300, events=every_2s(look))

    assert run.goodput(60, 300) >= 0.98 * number
    assert max(waiting for _, waiting in queues) <= max(3, 0.2 * number)
    assert min(running for running, _ in queues) >= 0.95 * number


def every_2s(
    look: Callable[[float, int], None],
) -> Iterator[tuple[float, Callable[[float, int], None]]]:
    return ((2.0 * number, look) for number in range(1, 10_000))


def test_known_slots_are_filled_at_once() -> None:
    server, controller = Server(float, slots=200), Controller(0.0)

    def look(now: float, in_flight: int) -> None:
        figures = ServerFigures(server.running, server.waiting, slots=200)
        controller.observed(now, figures, in_flight)

    run = drive(server, controller, Load(), random.Random(1), until=8, events=every_2s(look))

    assert 200 <= run.limit_at(4.5) <= 230


MOVES = st.sampled_from(["answer", "answer", "answer", "refuse", "hurt", "observe"])


@settings(max_examples=60, deadline=None)
@given(
    least=st.integers(1, 4),
    most=st.integers(4, 300),
    moves=st.lists(st.tuples(MOVES, st.integers(1, 60), st.floats(0, 30)), max_size=60),
)
def test_whatever_happens_the_limit_stays_within_its_bounds(
    least: int, most: int, moves: list[tuple[str, int, float]]
) -> None:
    controller = Controller(0.0, most=most, least=least)
    now, goal = 0.0, controller.limit
    for kind, count, seconds in moves:
        for _ in range(count):
            now += seconds / max(1, controller.limit)
            decision = None
            controller.started(controller.limit)
            if kind == "answer":
                decision = controller.finished(now, seconds, count)
            elif kind == "refuse":
                decision = controller.refused(now, seconds, controller.limit - 1)
            elif kind == "hurt":
                controller.hurt(now, seconds)
            else:
                figures = ServerFigures(count, int(seconds), seconds / 30)
                decision = controller.observed(now, figures, controller.limit)
            if decision is not None:
                assert decision.old == goal
                goal = decision.new
            assert least <= controller.limit <= most
            assert controller.limit <= goal <= most
