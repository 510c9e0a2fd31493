import asyncio
import re

import pytest
from fakes import FakeTransport, Recorder, a_row, ok
from msgspec import structs

from batchinfer.config.schema import (
    Budget,
    Config,
    Endpoint,
    Intake,
    Limits,
    Output,
    RequestTemplate,
    Simulate,
)
from batchinfer.dispatch.work import Done, Stop, Work
from batchinfer.errors import BudgetError, ConfigError
from batchinfer.events import Sent
from batchinfer.intake.rows import Shape
from batchinfer.job import wiring
from batchinfer.providers.openai_chat import OPENAI_CHAT

CONFIG = Config(endpoint=Endpoint(base_url="http://host/v1", model="m"))


def speaking(provider: str, **simulate: str) -> Config:
    endpoint = structs.replace(Endpoint(), provider=provider)
    return Config(endpoint=endpoint, simulate=structs.replace(Simulate(), **simulate))


@pytest.mark.parametrize(
    ("config", "api", "shape"),
    [
        (speaking("openai-chat"), "openai-chat", Shape.CHAT),
        (speaking("openai-completions"), "openai-completions", Shape.COMPLETIONS),
        (speaking("openai-embeddings"), "openai-embeddings", Shape.EMBEDDINGS),
        (speaking("simulated"), "openai-chat", Shape.CHAT),
        (
            speaking("simulated", api="openai-embeddings"),
            "openai-embeddings",
            Shape.EMBEDDINGS,
        ),
    ],
)
def test_the_wire_api_gives_the_shape_of_the_rows(config: Config, api: str, shape: Shape) -> None:
    assert wiring.wire_api(config) == api
    assert wiring.recipe(config).shape is shape


def test_a_recipe_has_the_template_and_the_longest_line() -> None:
    config = structs.replace(
        CONFIG, request=RequestTemplate(prompt="{{ a }}"), intake=Intake(max_line=77)
    )

    recipe = wiring.recipe(config)

    assert recipe.template.names == {"a"}
    assert recipe.max_line == 77


def test_without_an_endpoint_there_is_no_wire_api() -> None:
    with pytest.raises(ConfigError, match="no endpoint"):
        wiring.wire_api(Config())


def test_the_concurrency_is_the_users_or_climbs_within_bounds() -> None:
    assert wiring.concurrency(structs.replace(CONFIG, limits=Limits(concurrency=5))) == 5
    assert wiring.concurrency(CONFIG) == wiring.MOST_IN_FLIGHT


def test_a_fixed_concurrency_has_its_seats_and_auto_begins_with_few() -> None:
    def seats(limits: Limits) -> int:
        config = structs.replace(CONFIG, limits=limits)
        wire = wiring.wire(config, OPENAI_CHAT, "http://h/", {}, [])
        _, lane = wiring.attempt(config, wire, FakeTransport([ok()]), 0.0, Recorder())
        return lane.seats.limit

    assert seats(Limits(concurrency=5)) == 5
    assert seats(Limits()) == 8


def test_a_wire_shows_a_host_without_secrets_and_knows_what_to_blot_out() -> None:
    config = structs.replace(CONFIG, output=Output(include_response=True))

    wire = wiring.wire(
        config,
        OPENAI_CHAT,
        "http://user:pass@host/v1/chat/completions?key=sk-secret",
        {"authorization": "Bearer sk-secret"},
        ["sk-secret", "short"],
    )

    assert wire.headers == {
        "content-type": "application/json",
        "authorization": "Bearer sk-secret",
    }
    assert "sk-secret" not in wire.host
    assert "pass" not in wire.host
    assert (wire.secrets, wire.keys) == (("sk-secret",), ())
    assert (wire.model, wire.keep_response) == ("m", True)


def test_a_header_of_the_users_own_wins() -> None:
    wire = wiring.wire(CONFIG, OPENAI_CHAT, "http://h/", {"content-type": "text/x"}, [])

    assert wire.headers == {"content-type": "text/x"}


@pytest.mark.parametrize(
    ("params", "guess"),
    [({}, 256.0), ({"max_tokens": 20}, 20.0), ({"max_tokens": "many"}, 256.0)],
)
def test_the_limits_of_the_config_are_those_of_the_gate(
    params: dict[str, object], guess: float
) -> None:
    config = structs.replace(
        CONFIG, limits=Limits(rpm=60, tpm=6000), request=RequestTemplate(params=params)
    )
    wire = wiring.wire(config, OPENAI_CHAT, "http://h/", {}, [])

    _, lane = wiring.attempt(config, wire, FakeTransport([ok()]), 0.0, Recorder())

    assert not lane.gate.pacer.unlimited
    assert lane.gate.pacer.cost(0) == guess


def test_the_parts_make_an_attempt_that_answers() -> None:
    async def main() -> object:
        transport = FakeTransport([ok()], seconds=0.0)
        wire = wiring.wire(CONFIG, OPENAI_CHAT, "http://h/", {}, [])
        attempt, _ = wiring.attempt(CONFIG, wire, transport, 0.0, told)
        return await attempt(Work(a_row(1)))

    told = Recorder()
    step = asyncio.run(main())

    assert isinstance(step, Done)
    assert told.of(Sent) == [Sent()]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", step.outcome.at)


def test_what_earlier_runs_spent_is_of_the_same_budget() -> None:
    config = structs.replace(CONFIG, budget=Budget(max_cost=5.0))

    async def main() -> object:
        wire = wiring.wire(config, OPENAI_CHAT, "http://h/", {}, [])
        attempt, _ = wiring.attempt(config, wire, FakeTransport([ok()]), 5.0, Recorder())
        return await attempt(Work(a_row(1)))

    step = asyncio.run(main())

    assert isinstance(step, Stop)
    assert isinstance(step.reason, BudgetError)
