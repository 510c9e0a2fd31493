"""What a pacer gets out of providers that count differently, and how seldom it is refused.

Used: accepted ÷ allowed after the first minute. All of it in virtual time, seeded.
"""

import json
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ratemodels import (
    Client,
    Make,
    Row,
    Server,
    World,
    bucket,
    chats,
    fixed,
    openai_headers,
    plain,
    sliding,
)

from batchinfer.config.schema import Limits
from batchinfer.events import Recalled, Sent
from batchinfer.flow.estimate import Booking, most_output
from batchinfer.flow.gcra import UTILISATION
from batchinfer.flow.headers import Quota, Unit
from batchinfer.flow.ledger60 import DAY, MINUTE, Ledger, Recent
from batchinfer.flow.pacer import Pacer
from batchinfer.flow.share import CUT, EPISODE, FLOOR, RECOVERY, Share
from batchinfer.model import Answer, ErrorClass, Failure, Problem, Success, Usage

EPOCH: Final = 1.7e9
"""Unix seconds at the beginning of virtual time."""
TPM: Final = 120_000.0
MODELS: Final = {
    "minute": fixed(),
    "sliding": sliding(),
    "bucket": bucket(60),
    "small bucket": bucket(1),
    "10 s slices": fixed(10),
    "1 s slices": fixed(1),
}


def by_requests(
    rate: float, model: str, seed: int, minutes: float, **server: object
) -> tuple[Server, Client]:
    """A run under a limit on requests that the client knows."""
    limit = MODELS[model](rate, random.Random(seed))
    world = World(Server(requests=limit, **server), seed)  # type: ignore[arg-type]
    client = Client(Pacer(rate, None, None, 0.0), plain())
    world.add(client)
    world.run(60 * minutes)
    return world.server, client


def most_within(times: list[float], seconds: float) -> int:
    """The most moments in any stretch of so many seconds."""
    return max(bisect_right(times, at + seconds) - i for i, at in enumerate(times))


# ── limits on requests ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("model", "used", "refused"),
    [
        ("minute", 0.97, 0.0005),
        ("sliding", 0.97, 0.0005),
        ("bucket", 0.97, 0.0005),
        ("small bucket", 0.97, 0.0005),
        ("10 s slices", 0.97, 0.001),
    ],
)
def test_a_limit_is_used_whole_and_hardly_ever_tripped(
    model: str, used: float, refused: float, seed: int
) -> None:
    server, _ = by_requests(600, model, seed, 10)

    assert used <= server.used(600, 600) <= 0.985
    assert server.refused() <= refused


def test_slices_of_a_second_are_lived_with() -> None:
    """On the way requests come a little closer together than they left."""
    servers = [by_requests(600, "1 s slices", seed, 15)[0] for seed in range(4)]

    assert sum(server.used(600, 900) for server in servers) / 4 >= 0.9
    assert all(server.refused() <= 0.005 for server in servers)


@pytest.mark.parametrize("model", ["minute", "sliding", "bucket", "10 s slices"])
@pytest.mark.parametrize(("rate", "minutes"), [(60, 15), (6000, 2)])
def test_slow_and_fast_limits_are_used_alike(rate: int, minutes: int, model: str) -> None:
    server, _ = by_requests(rate, model, 1, minutes)

    assert server.used(rate, 60 * minutes) >= 0.97
    assert server.refused() <= 0.0005


@pytest.mark.parametrize("rejects_count", [False, True])
@pytest.mark.parametrize("model", ["minute", "sliding", "bucket"])
def test_a_limit_that_is_set_a_fifth_too_high_is_found_by_its_refusals(
    model: str, rejects_count: bool
) -> None:
    limit = MODELS[model](600, random.Random(2))
    world = World(Server(requests=limit, rejects_count=rejects_count), 2)
    world.add(Client(Pacer(720, None, None, 0.0), plain()))
    world.run(600)

    settled = [at for at in world.server.accepted if at >= 120]
    assert world.server.used(600, 600) >= 0.9
    assert world.server.refused() <= 0.02
    assert max(later - at for at, later in pairwise(settled)) <= 10


@pytest.mark.parametrize("rate", [60, 600, 6000])
def test_no_second_holds_a_burst_not_even_the_first(rate: int) -> None:
    _, client = by_requests(rate, "small bucket", 1, 0.5)

    assert most_within(client.sent, 1.0) <= rate / 60 + 1


def test_a_process_that_was_suspended_does_not_catch_up() -> None:
    world = World(Server(requests=MODELS["bucket"](600, random.Random(1))), 1)
    client = Client(Pacer(600, None, None, 0.0), plain())
    world.add(client)
    world.at(20.0, lambda: setattr(client, "held_until", 80.0))
    world.run(100)

    after = [at for at in client.sent if at >= 80]
    assert after
    assert most_within(client.sent, 1.0) <= 11
    assert len(after) <= 20 * 10 + 1


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("model", list(MODELS))
def test_two_processes_on_one_key_share_its_limit(model: str, told: bool) -> None:
    limit = MODELS[model](600, random.Random(1))
    world = World(Server(requests=limit), 1)
    if told:
        world.server.told = openai_headers(600)
    clients = [Client(Pacer(600, None, None, 0.0), plain()) for _ in range(2)]
    for client in clients:
        world.add(client)
    world.run(400)

    shares = [sum(at >= 60 for at in client.sent) for client in clients]
    jain = sum(shares) ** 2 / (2 * sum(share**2 for share in shares))
    assert world.server.used(600, 400) >= 0.88
    assert world.server.refused(60) <= 0.02
    assert jain >= 0.9


# ── limits on tokens ─────────────────────────────────────────────────────────────────────────


def by_tokens(
    make: Make, seed: int, accounting: str, rows: Iterator[Row], latency: float = 1.0
) -> Server:
    """Ten minutes under a limit on tokens."""
    reserves = accounting == "reserve"
    world = World(Server(tokens=make(TPM, random.Random(seed)), reserves=reserves), seed)
    world._latency = latency
    more = Limits(tpm_accounting=accounting)  # type: ignore[arg-type]
    world.add(Client(Pacer(None, TPM, None, 0.0, more), rows))
    world.run(600)
    return world.server


TOKENS: Final = {"minute": fixed(), "sliding": sliding(), "bucket": bucket(60), "6 s": bucket(6)}


@pytest.mark.parametrize("model", list(TOKENS))
def test_tokens_are_used_up_to_the_limit_and_hardly_ever_beyond(model: str) -> None:
    server = by_tokens(TOKENS[model], 1, "actual", chats(1))

    assert server.used(TPM, 600, tokens=True) >= 0.97
    assert server.refused() <= 0.001


@pytest.mark.parametrize("model", list(TOKENS))
def test_tokens_that_a_server_sets_aside_are_counted_like_that(model: str) -> None:
    server = by_tokens(TOKENS[model], 1, "reserve", chats(1))

    assert server.used(TPM, 600, tokens=True) >= 0.92
    assert server.refused() <= 0.002


def test_to_count_as_the_server_does_spares_refusals() -> None:
    def refused(accounting: str) -> float:
        world = World(Server(tokens=sliding()(TPM, random.Random(1)), reserves=True), 1)
        more = Limits(tpm_accounting=accounting)  # type: ignore[arg-type]
        world.add(Client(Pacer(None, TPM, None, 0.0, more), chats(1)))
        world.run(600)
        return world.server.refused()

    assert refused("reserve") == 0 < refused("actual")


@pytest.mark.parametrize("wrong", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("model", ["sliding", "bucket"])
def test_a_wrong_guess_of_tokens_is_soon_a_right_one(model: str, wrong: float) -> None:
    server = by_tokens(TOKENS[model], 1, "actual", chats(1, bytes_per_token=4 * wrong))

    assert server.used(TPM, 600, tokens=True) >= 0.94
    assert server.refused(server.accepted[200]) <= 0.001


def test_a_too_large_guess_of_the_answers_is_corrected_too() -> None:
    rows = (Row(400, 100, 10, 1000) for _ in iter(int, 1))
    server = by_tokens(TOKENS["sliding"], 1, "actual", rows)

    assert server.used(TPM, 600, tokens=True) >= 0.94
    assert server.refused() == 0


def test_input_and_output_have_limits_of_their_own() -> None:
    def longest(more: Limits) -> float:
        pacer = Pacer(None, None, 500, 0.0, more)
        pacer.take(0.0, pacer.expect(b"x" * 4000), waited=False)  # 1000 in, 256 out
        return pacer.wait(0.0)

    assert longest(Limits(input_tpm=6000)) == pytest.approx(10 / UTILISATION)
    assert longest(Limits(output_tpm=6000)) == pytest.approx(2.56 / UTILISATION)
    assert longest(Limits(output_tpm=6000, input_tpm=60_000)) == pytest.approx(2.56 / UTILISATION)


def test_each_limit_is_settled_by_its_own_part_of_the_usage() -> None:
    pacer = Pacer(None, None, None, 0.0, Limits(input_tpm=6000, output_tpm=6000))
    cost = pacer.expect(b"x" * 4000)
    pacer.take(0.0, cost, waited=False)
    pacer.settle(4000, cost, 100, 300)

    assert pacer.wait(0.0) == pytest.approx(3 / UTILISATION)


@pytest.mark.parametrize(
    ("more", "body", "said"),
    [
        (Limits(input_tpm=100), 401, None),
        (Limits(input_tpm=100), 500, "limits.input_tpm allows in a whole minute"),
        (Limits(tpd=300), 500, "limits.tpd allows in a whole day"),
        (Limits(output_tpm=255), 4, "limits.output_tpm allows in a whole minute"),
        (Limits(rpd=1), 10**9, None),
    ],
)
def test_a_request_that_no_window_holds_is_refused_at_once(
    more: Limits, body: int, said: str | None
) -> None:
    pacer = Pacer(None, None, None, 0.0, more)
    found = pacer.excess(pacer.cost(body)) if body != 401 else pacer.excess(pacer.cost(400))

    assert (found is None) if said is None else (found is not None and said in found)


def test_what_is_set_aside_must_fit_into_the_guarded_part_of_a_minute() -> None:
    pacer = Pacer(None, 1000, None, 0.0, Limits(tpm_accounting="reserve"))

    assert pacer.fits(pacer.expect(b'{"max_tokens": 970}'))
    assert not pacer.fits(Booking(5.0, 256.0, 980.0))
    assert pacer.fits(pacer.expect(b'{"max_tokens": 980}'))


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (b'{"max_tokens":7}', 7),
        (b'{"max_tokens" : 7, "n": 1}', 7),
        (b'{"max_completion_tokens":12}', 12),
        (b'{"max_output_tokens": 12}', 12),
        (rb'{"prompt":"say \"max_tokens\": 5"}', None),
        (b'{"max_tokens":null}', None),
        (b"{}", None),
    ],
)
def test_a_body_says_how_much_output_it_asks_for(body: bytes, most: float | None) -> None:
    assert most_output(body) == most


# ── big rows among small ones ────────────────────────────────────────────────────────────────


def mixed(every: int) -> Iterator[Row]:
    """Rows of 1 kB, and one of 4 MB in `every`."""
    number = 0
    while True:
        number += 1
        big = number % every == 0
        yield Row(4_000_000, 1_000_000, 200) if big else Row(1000, 250, 200)


@pytest.mark.parametrize("passing", [0, 16])
def test_huge_rows_do_not_idle_the_small_ones(passing: int) -> None:
    tpm = 10e6
    server = Server(
        requests=sliding()(600, random.Random(1)), tokens=sliding()(tpm, random.Random(1))
    )
    world = World(server, 1)
    world.add(Client(Pacer(600, tpm, None, 0.0), mixed(100), passing=passing))
    world.run(900)

    assert server.used(600, 900) >= 0.95
    assert server.refused() <= 0.001


def test_a_small_request_may_leave_before_a_big_one_that_has_no_room() -> None:
    pacer = Pacer(None, 60_000, None, 0.0)
    now = 0.0
    for _ in range(20):
        now += pacer.wait(now, 1000.0)
        pacer.take(now, 1000.0, waited=False)
    now += pacer.wait(now, 1000.0)

    assert pacer.wait(now, 1000.0) == 0
    assert pacer.wait(now, 50_000.0) > 30


def test_a_big_request_lets_the_next_ones_keep_their_pace_and_the_minute_holds() -> None:
    pacer = Pacer(None, 60_000, None, 0.0)
    now, left = 0.0, []
    for number in range(200):
        cost = 20_000.0 if number == 10 else 100.0
        now += pacer.wait(now, cost)
        pacer.take(now, cost, waited=True)
        left.append((now, cost))

    assert left[11][0] - left[10][0] <= 0.2
    for at, _ in left:
        assert sum(cost for moment, cost in left if at <= moment < at + 60) <= 60_000


# ── limits of a day ──────────────────────────────────────────────────────────────────────────


def test_a_days_requests_are_used_up_and_come_back_after_24_hours() -> None:
    pacer = Pacer(None, None, None, 0.0, Limits(rpd=3))

    assert not pacer.unlimited
    assert pacer.wait(0.0) == 0
    assert [pacer.take(100.0, 0.0, waited=False) for _ in range(5)] == [True] * 3 + [False] * 2
    said = pacer.used_up(100.0, 0.0)
    assert said is not None
    assert "limits.rpd: 3 requests in 24 hours are used up" in said
    assert "room again in 24 h 0" in said
    assert not pacer.take(DAY + 99.0, 0.0, waited=False)
    assert pacer.take(DAY + 700.0, 0.0, waited=False)


def test_a_days_tokens_count_as_they_were_really_used() -> None:
    pacer = Pacer(None, None, None, 0.0, Limits(tpd=1000))
    cost = pacer.cost(1600)  # 400 in, 256 out
    assert pacer.take(0.0, cost, waited=False)
    assert not pacer.take(1.0, pacer.cost(1600), waited=False)

    pacer.settle(1600, cost, 100, 50)

    assert pacer.used_up(1.0, pacer.cost(1600)) is None
    assert pacer.take(1.0, pacer.cost(1600), waited=False)


def test_a_refused_day_books_nothing_elsewhere() -> None:
    pacer = Pacer(60, None, None, 0.0, Limits(rpd=1))
    pacer.take(0.0, 0.0, waited=False)
    before = pacer.wait(0.0)

    assert not pacer.take(0.0, 0.0, waited=False)
    assert pacer.wait(0.0) == before


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


def test_each_episode_of_refusals_cuts_the_rate_and_time_brings_it_back() -> None:
    share = Share()

    assert share.refused(0.0, 1.0, None)
    assert share.at(1.0) == pytest.approx(UTILISATION * CUT)
    assert not share.refused(0.5, 3.0, None)
    assert not share.refused(1.0 + EPISODE - 0.1, 99.0, None)
    assert share.at(11.0) == pytest.approx(UTILISATION * CUT + 10 * RECOVERY)
    assert share.at(1000.0) == UTILISATION
    assert share.full


def test_a_retry_after_makes_the_episode_longer_and_recovery_later() -> None:
    share = Share()
    share.refused(0.0, 0.0, 30.0)

    assert not share.refused(29.0, 29.5, None)
    assert share.at(30.0) == pytest.approx(UTILISATION * CUT)
    assert share.refused(30.0, 30.5, None)


def test_refusals_do_not_cut_without_end() -> None:
    share = Share()
    for number in range(100):
        share.refused(number * 6.0, number * 6.0, None)

    assert share.at(600.0) >= FLOOR


def test_a_refusal_slows_every_limit_that_is_paced() -> None:
    pacer = Pacer(60, None, None, 0.0)
    pacer.refused(0.0, 0.0, None)
    pacer.take(0.0, 0.0, waited=False)

    assert pacer.wait(0.0) == pytest.approx(1 / (UTILISATION * CUT))


def test_without_limits_a_refusal_changes_nothing() -> None:
    pacer = Pacer(None, None, None, 0.0)
    pacer.refused(0.0, 0.0, 30.0)

    assert pacer.unlimited
    assert pacer.wait(0.0) == 0


# ── what the server tells ────────────────────────────────────────────────────────────────────


def requests(
    limit: float | None, remaining: float | None = None, window: float | None = MINUTE
) -> Quota:
    return Quota(Unit.REQUESTS, window, limit, remaining, None)


@pytest.mark.parametrize("model", ["minute", "sliding", "bucket", "10 s slices"])
def test_half_the_configured_limit_is_adopted_from_the_headers(model: str) -> None:
    limit = MODELS[model](300, random.Random(1))
    world = World(Server(requests=limit, told=openai_headers(300)), 1)
    world.add(Client(Pacer(600, None, None, 0.0), plain()))
    world.run(600)

    assert world.server.used(300, 600) >= 0.95
    assert world.server.refused() <= 0.001


def test_a_lower_limit_is_adopted_at_once_and_said_once() -> None:
    pacer = Pacer(600, None, None, 0.0)

    (said,) = pacer.learn((requests(300),), 0.0)
    pacer.take(0.0, 0.0, waited=False)

    assert said == (
        "the server allows 300 requests a minute, fewer than limits.rpm (600); that is kept to"
    )
    assert pacer.wait(0.0) == pytest.approx(0.2 / UTILISATION)
    assert pacer.learn((requests(250),), 1.0) == []


def test_a_higher_limit_is_never_used_and_not_said() -> None:
    pacer = Pacer(600, None, None, 0.0)

    assert pacer.learn((requests(6000),), 0.0) == []
    pacer.take(0.0, 0.0, waited=False)
    assert pacer.wait(0.0) == pytest.approx(0.1 / UTILISATION)


def test_a_limit_that_rises_again_is_followed_up_to_the_users() -> None:
    pacer = Pacer(600, None, None, 0.0)
    for limit in (300, 6000):
        pacer.learn((requests(limit),), 0.0)
    pacer.take(0.0, 0.0, waited=False)

    assert pacer.wait(0.0) == pytest.approx(0.1 / UTILISATION)


def test_the_lowest_of_several_limits_counts() -> None:
    pacer = Pacer(600, None, None, 0.0)
    pacer.learn((requests(300), requests(2, window=1.0), requests(500)), 0.0)
    pacer.take(0.0, 0.0, waited=False)

    assert pacer.wait(0.0) == pytest.approx(0.5 / UTILISATION)


def test_without_a_limit_of_the_users_a_minutes_limit_is_taken_over() -> None:
    pacer = Pacer(None, None, None, 0.0)

    said = pacer.learn((requests(300), Quota(Unit.TOKENS, MINUTE, 6000, None, None)), 0.0)

    assert [text.partition(";")[0] for text in said] == [
        "the server allows 300 requests a minute",
        "the server allows 6,000 tokens a minute",
    ]
    assert not pacer.unlimited
    pacer.take(0.0, pacer.cost(0), waited=False)
    assert pacer.wait(0.0) == pytest.approx(2.56 / UTILISATION)


@pytest.mark.parametrize("window", [None, 1.0, 10.0, 3600.0, DAY])
def test_without_a_limit_of_the_users_no_other_window_is_taken_over(window: float | None) -> None:
    pacer = Pacer(None, None, None, 0.0)

    assert pacer.learn((requests(5, 0, window),), 0.0) == []
    assert pacer.unlimited


def test_a_server_that_has_less_left_than_we_think_is_believed() -> None:
    pacer, now = Pacer(100, None, None, 0.0), 0.0
    pacer.take(now, 0.0, waited=False)
    pacer.learn((Quota(Unit.REQUESTS, MINUTE, 100, 0, 40.0),), now)
    left = []
    while now < 60:
        if (wait := pacer.wait(now)) > 0:
            now += wait
        else:
            pacer.take(now, 0.0, waited=False)
            left.append(now)

    assert sum(at < 39 for at in left) == 100 * FLOOR - 1
    assert sum(41 < at < 51 for at in left) in {16, 17}


def test_a_server_that_has_more_left_is_not_believed() -> None:
    pacer = Pacer(2, None, None, 0.0)
    for now in (0.0, 30.7):
        assert pacer.wait(now) == 0
        pacer.take(now, 0.0, waited=False)
    before = pacer.wait(30.7)
    pacer.learn((requests(2, 2),), 30.7)

    assert pacer.wait(30.7) == before > 0


def test_headers_are_looked_at_once_a_second() -> None:
    pacer = Pacer(None, None, None, 0.0)

    assert [pacer.listens(now) for now in (0.0, 0.5, 0.99, 1.0, 1.5, 7.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


# ── from process to process ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rate", [20, 60, 600])
@pytest.mark.parametrize("model", ["minute", "sliding"])
def test_a_process_that_is_killed_every_20_s_keeps_the_limit_all_the_same(
    model: str, rate: float
) -> None:
    server = Server(requests=MODELS[model](rate, random.Random(1)))

    restarted(World(server, 1), lambda now: Pacer(rate, None, None, now), plain())

    assert server.used(rate, 600) >= 0.95
    assert server.refused() <= 0.001


def test_tokens_are_charged_again_too() -> None:
    server = Server(tokens=sliding()(TPM, random.Random(1)))

    restarted(World(server, 1), lambda now: Pacer(None, TPM, None, now), chats(1))

    assert server.used(TPM, 600, tokens=True) >= 0.95
    assert server.refused() <= 0.001


def restarted(world: World, make: Callable[[float], Pacer], rows: Iterator[Row]) -> None:
    """Ten minutes, with a kill every 20 s: what is in flight then is never heard of again."""
    clients = [Client(make(0.0), rows)]
    world.add(clients[0])

    def restart() -> None:
        old, new = clients[-1], Client(make(world.now), rows)
        old.dead = True
        past = old.pacer.snapshot(world.now, EPOCH + world.now)
        new.pacer.restore(json.loads(json.dumps(past)), world.now, EPOCH + world.now)
        clients.append(new)
        world.add(new)

    for number in range(1, 30):
        world.at(20.0 * number + 0.001, restart)
    world.run(600)


def test_a_snapshot_is_charged_by_the_wall_clock() -> None:
    old = Pacer(2, None, None, 0.0, Limits(rpd=10))
    for _ in range(2):
        old.take(500.0, 0.0, waited=False)
    past = old.snapshot(510.0, EPOCH)
    soon, late = (Pacer(2, None, None, 7.0, Limits(rpd=10)) for _ in range(2))

    soon.restore(past, 7.0, EPOCH + 20)
    late.restore(past, 7.0, EPOCH + 70)

    assert 29 <= soon.wait(7.0) <= 31.5
    assert late.wait(7.0) == 0
    taken = [late.take(7.0, 0.0, waited=False) for _ in range(10)]
    assert taken == [True] * 8 + [False] * 2


def test_a_snapshot_of_the_future_charges_nothing() -> None:
    pacer = Pacer(2, None, None, 7.0)
    pacer.restore({"minute": {"requests": [(EPOCH + 3600, 5.0)]}}, 7.0, EPOCH)

    assert pacer.wait(8.0, 0.0) <= MINUTE


def test_without_limits_there_is_nothing_to_remember() -> None:
    pacer = Pacer(None, None, None, 0.0)
    pacer.restore({"minute": {"requests": [(EPOCH, 5.0)]}}, 0.0, EPOCH)

    assert pacer.snapshot(0.0, EPOCH) == {"minute": {}, "day": {}}
    assert pacer.unlimited


def a_success(at: str, **fields: int) -> Success:
    answer = Answer(b'"x"', Usage(input=30, output=12), "stop", "m", None)
    return Success(
        row=0,
        id=None,
        key=b"k" * 16,
        attempts=fields.get("attempts", 1),
        latency_ms=1.0,
        cost_usd=None,
        at=at,
        rate_limited=fields.get("rate_limited", 0),
        wasted=fields.get("wasted", 0),
        answer=answer,
    )


def a_failure(at: str) -> Failure:
    return Failure(
        row=0,
        id=None,
        key=b"k" * 16,
        attempts=3,
        latency_ms=1.0,
        cost_usd=None,
        at=at,
        problem=Problem(ErrorClass.TIMEOUT, "x"),
        usage=Usage(input=5),
    )


def test_sidecars_tell_what_earlier_runs_used() -> None:
    recent = Recent(EPOCH, DAY)  # 2023-11-14T22:13:20Z
    for outcome in (
        a_success("2023-11-14T22:13:10.000Z", attempts=2, rate_limited=1, wasted=8),
        a_success("2023-11-14T22:13:10.100Z"),
        a_success("2023-11-14T10:00:00.000Z"),
        a_success("2023-11-13T22:00:00.000Z"),
        a_failure("2023-11-14T22:13:00.000Z"),
        a_success("nonsense"),
    ):
        recent.fold(Recalled(outcome))
    recent.fold(Sent())
    past = recent.past

    minute = {unit: sum(n for _, n in slots) for unit, slots in past["minute"].items()}
    day = {unit: sum(n for _, n in slots) for unit, slots in past["day"].items()}
    assert minute == {"requests": 7, "tokens": 97, "input": 65, "output": 32}
    assert day == {"requests": 8, "tokens": 139, "input": 95, "output": 44}
    pacer = Pacer(None, None, None, 0.0, Limits(rpd=9))
    pacer.restore(past, 0.0, EPOCH)
    assert [pacer.take(0.0, 0.0, waited=False) for _ in range(2)] == [True, False]


def test_where_no_day_matters_only_the_last_minute_is_gathered() -> None:
    recent = Recent(EPOCH, MINUTE)
    for at in ("2023-11-14T22:12:00.000Z", "2023-11-14T22:13:00.000Z"):
        recent.fold(Recalled(a_success(at)))

    assert set(recent.past) == {"minute"}
    assert [amount for _, amount in recent.past["minute"]["requests"]] == [1]


# ── properties ───────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 50)), max_size=200),
    st.floats(50, 200),
)
def test_no_minute_holds_more_than_a_ledger_lets_in(
    asked: list[tuple[float, float]], most: float
) -> None:
    ledger, now = Ledger(), 0.0
    taken: list[tuple[float, float]] = []
    for pause, amount in asked:
        now += pause
        while (wait := ledger.wait(now, amount, most)) > 0:
            now += wait
        ledger.add(now, amount)
        taken.append((now, amount))

    for at, _ in taken:
        assert sum(amount for moment, amount in taken if at <= moment < at + 60) <= most + 1e-3


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["take", "settle", "refund", "cancel"]),
            st.floats(0, 30),
            st.floats(0, 1000),
        ),
        max_size=80,
    )
)
def test_a_ledger_is_never_negative_and_what_is_cancelled_stays_booked(
    steps: list[tuple[str, float, float]],
) -> None:
    """What the ledger holds is what was booked of late, each with what is known of it by then."""
    pacer = Pacer(None, 1e6, None, 0.0)
    ledger = pacer._paced[Unit.TOKENS].ledger
    now, flying = 0.0, list[Booking]()
    known: list[tuple[float, float]] = []
    booked: dict[int, int] = {}
    for what, pause, amount in steps:
        now += pause
        if what == "take" or not flying:
            cost = Booking(amount)
            pacer.take(now, cost, waited=False)
            booked[id(cost)] = len(known)
            known.append((now, amount))
            flying.append(cost)
        else:
            cost = flying.pop(0)
            place = booked[id(cost)]
            if what == "settle":
                pacer.settle(10, cost, int(amount), 0)
                known[place] = (known[place][0], float(int(amount)))
            elif what == "refund":
                pacer.refund(cost)
                known[place] = (known[place][0], 0.0)
        used = ledger.used(now)
        surely = sum(amount for at, amount in known if at > now - MINUTE)
        perhaps = sum(amount for at, amount in known if at > now - MINUTE - 0.25)
        assert used >= 0
        assert surely - 1e-6 <= used <= perhaps + 1e-6


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 900), st.integers(0, 900)), max_size=120),
    st.booleans(),
)
def test_at_the_whole_limit_no_minute_of_bookings_exceeds_it(
    rows: list[tuple[float, int, int]], reserve: bool
) -> None:
    """Tokens as booked, whatever the mix of small and huge requests that come one by one."""
    tpm = 2000.0
    more = Limits(tpm_accounting="reserve" if reserve else "actual")
    pacer = Pacer(None, tpm, None, 0.0, more)
    now, held = 0.0, list[tuple[float, float]]()
    for pause, inward, most in rows:
        cost = Booking(inward, min(most, 50), most if reserve else None)
        now += pause
        while (wait := pacer.wait(now, cost)) > 0:
            now += wait
        assert pacer.take(now, cost, waited=bool(pause))
        held.append((now, cost.held(Unit.TOKENS)))

    for at, _ in held:
        assert sum(n for moment, n in held if at <= moment < at + 60) <= tpm + 1e-3
