"""What fields may not say together, and what a field's type cannot check.

Owns: contradictions between valid values. Refuses to know: where the values came from.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from batchinfer.config.address import problem
from batchinfer.config.fingerprint import hidden
from batchinfer.config.layers import EXCLUSIVE, Table, at, shown
from batchinfer.config.schema import Config, Endpoint
from batchinfer.config.secrets import endpoint_url
from batchinfer.config.shape import Mistake

_NOT_KEPT: Final = (
    "the earlier run kept no copy of a value in it, which may be a secret; say it again by "
    "--config FILE, and write secrets as ${env:NAME} to have them found the next time"
)


def contradictions(config: Config, values: Table, env: Mapping[str, str]) -> Iterator[Mistake]:
    """Return what is wrong with a configuration of the right shape.

    `values` is the table that it was made of. Raises ConfigError for an unset `${env:NAME}`.
    """
    for one, other in EXCLUSIVE:
        if at(values, one) and at(values, other):
            yield Mistake(one, f"excludes {shown(other)}; keep one of them")
    yield from _numbers(config)
    if config.endpoint is not None:
        yield from _endpoint(config.endpoint, env)
        yield from _request(config, config.endpoint)
        yield from _money(config, config.endpoint)


def _numbers(config: Config) -> Iterator[Mistake]:
    retry = config.retry
    if retry.cap < retry.base:
        yield Mistake(("retry", "cap"), f"{retry.cap:g} is less than retry.base ({retry.base:g})")


def _money(config: Config, endpoint: Endpoint) -> Iterator[Mistake]:
    model = endpoint.model
    priced = model in config.prices if model else bool(config.prices)
    if config.budget.max_cost is not None and not priced:
        yield Mistake(
            ("budget", "max_cost"),
            f'cannot be kept without a price: add [prices."{model or "MODEL"}"] with input and'
            " output in USD per million tokens",
        )


def _endpoint(endpoint: Endpoint, env: Mapping[str, str]) -> Iterator[Mistake]:
    if endpoint.provider == "simulated":
        return
    wrong = problem(endpoint_url(endpoint, env))
    if wrong is not None:
        yield Mistake(("endpoint", "base_url"), wrong)
    for name in hidden(endpoint):
        yield Mistake(("endpoint", name), _NOT_KEPT)
    names = [name.lower() for name in endpoint.headers]
    twice = sorted({name for name in names if names.count(name) > 1})
    for name in twice:
        yield Mistake(("endpoint", "headers", name), "given twice, in different letter case")
    if "authorization" in names and (endpoint.api_key_env or endpoint.api_key_file):
        yield Mistake(
            ("endpoint", "headers", "Authorization"),
            "excludes an API key, which is sent in that header",
        )


def _request(config: Config, endpoint: Endpoint) -> Iterator[Mistake]:
    request = config.request
    has_template = bool(request.prompt or request.messages)
    if has_template and not endpoint.model and endpoint.provider != "simulated":
        yield Mistake(
            ("endpoint", "model"),
            "missing; rows made by a template name no model: say --model NAME, "
            "or model = in [endpoint]",
        )
    api = config.simulate.api if endpoint.provider == "simulated" else endpoint.provider
    if request.messages and api != "openai-chat":
        yield Mistake(("request", "messages"), f"for chat only; {api} takes request.prompt")
