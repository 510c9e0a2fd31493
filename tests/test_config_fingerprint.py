"""Which configurations ask the same, and what of one is written down."""

import pytest
from msgspec import json
from msgspec.structs import replace

from batchinfer.config.fingerprint import differences, fingerprint, hidden, public
from batchinfer.config.schema import (
    Budget,
    Config,
    Endpoint,
    Limits,
    Price,
    RequestTemplate,
    Retry,
    Simulate,
    Timeouts,
    Turn,
)

BASE = Config(
    endpoint=Endpoint(base_url="https://h/v1", model="m"),
    request=RequestTemplate(prompt="{{ text }}", params={"temperature": 0.0, "max_tokens": 5}),
)


def _endpoint(**changes: object) -> Config:
    return replace(BASE, endpoint=replace(BASE.endpoint or Endpoint(), **changes))


def _request(**changes: object) -> Config:
    return replace(BASE, request=replace(BASE.request, **changes))


SAME = {
    "address": _endpoint(base_url="http://127.0.0.1:1/v1?key=x"),
    "key": _endpoint(api_key_env="K"),
    "headers": _endpoint(headers={"a": "b"}),
    "transport": _endpoint(transport="httpx"),
    "limits": replace(BASE, limits=Limits(concurrency=3, rpm=5)),
    "retry": replace(BASE, retry=Retry(attempts=1)),
    "timeouts": replace(BASE, timeouts=Timeouts(read=1)),
    "budget": replace(BASE, budget=Budget(max_cost=1)),
    "prices": replace(BASE, prices={"m": Price(input=1)}),
    "another provider's simulation": replace(BASE, simulate=Simulate(api="openai-embeddings")),
    "order of parameters": _request(params={"max_tokens": 5, "temperature": 0.0}),
    "way to write a number": _request(params={"max_tokens": 5.0, "temperature": 0}),
}
OTHER = {
    "endpoint.provider": _endpoint(provider="openai-completions"),
    "endpoint.model": _endpoint(model="n"),
    "request.system": _request(system="s"),
    "request.prompt": _request(prompt="{{ text }} "),
    "request.messages": _request(messages=[Turn("user", "c")]),
    "request.params.temperature": _request(params={"temperature": 0.5, "max_tokens": 5}),
    "request.params.stop": _request(params=BASE.request.params | {"stop": ["a"]}),
    "request.params.max_tokens": _request(params={"temperature": 0.0}),
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_change_a_request_does_not_change_the_fingerprint(name: str) -> None:
    assert fingerprint(SAME[name]) == fingerprint(BASE)
    assert differences(public(BASE), public(SAME[name])) == []


@pytest.mark.parametrize("name", OTHER)
def test_what_changes_a_request_changes_the_fingerprint_and_is_named(name: str) -> None:
    told = differences(public(BASE), public(OTHER[name]))

    assert fingerprint(OTHER[name]) != fingerprint(BASE)
    assert [line.split(": ")[0] for line in told] == [name]


def test_true_is_not_one() -> None:
    one, true = _request(params={"n": 1}), _request(params={"n": True})

    assert fingerprint(one) != fingerprint(true)


def test_the_api_of_a_simulation_counts_where_it_is_the_provider() -> None:
    chat = _endpoint(provider="simulated", base_url=None)
    embeddings = replace(chat, simulate=Simulate(api="openai-embeddings"))

    assert fingerprint(chat) != fingerprint(embeddings)
    assert differences(public(chat), public(embeddings)) == [
        'simulate.api: was "openai-chat", now "openai-embeddings"'
    ]


def test_a_fingerprint_stays_what_it_is_from_release_to_release() -> None:
    assert fingerprint(BASE) == "127ac4078cbf351421523ea9b4badedc"


def test_a_difference_says_what_was_and_what_is_on_one_printable_line() -> None:
    old = public(_request(prompt="a\n\x1b[31m" + "é" * 200))
    (line,) = differences(old, public(_request(prompt="")))

    assert line.startswith('request.prompt: was "a\\n\\u001b[31m\\u00e9')
    assert line.endswith('..., now ""')
    assert line.isprintable()
    assert len(line) < 120


def test_a_field_that_only_one_side_has_is_absent_on_the_other() -> None:
    old = public(_request(params={}))
    new = public(_request(params={"n": 2}))

    assert "request.params.n: was absent, now 2" in differences(old, new)
    assert "request.params.n: was 2, now absent" in differences(new, old)


def test_the_public_configuration_holds_no_secret_and_survives_json() -> None:
    config = _endpoint(
        base_url="https://SECRET:SECRET@h/v1?key=SECRET",
        headers={"X-Api-Key": "SECRET"},
        api_key_env="MY_KEY",
    )
    table = public(config)

    assert b"SECRET" not in json.encode(table)
    assert table["endpoint"] == public(config)["endpoint"]
    assert json.decode(json.encode(table)) == table
    assert differences(json.decode(json.encode(table)), public(config)) == []
    assert json.decode(json.encode(table))["endpoint"]["base_url"] == "https://h/v1?key=***"
    assert json.decode(json.encode(table))["endpoint"]["headers"] == {"X-Api-Key": "***"}
    assert json.decode(json.encode(table))["endpoint"]["api_key_env"] == "MY_KEY"


def test_what_refers_to_a_secret_or_holds_none_is_kept() -> None:
    headers = {
        "Authorization": "Bearer ${env:A}",
        "X-Api-Key": "${env:A}",
        "X-Title": "batchinfer",
        "X-Mixed": "SECRET${env:A}",
        "X-Other": "SECRET",
    }
    url = "https://${env:HOST}/v1?key=${env:A}&api-version=2024-06-01&SECRET&k=SECRET#SECRET"
    table = json.decode(json.encode(public(_endpoint(base_url=url, headers=headers))))

    assert table["endpoint"]["headers"] == headers | {"X-Mixed": "***", "X-Other": "***"}
    assert table["endpoint"]["base_url"] == (
        "https://${env:HOST}/v1?key=${env:A}&api-version=2024-06-01&***&k=***"
    )


def test_what_was_not_kept_is_known() -> None:
    assert hidden(Endpoint(base_url="https://h/v1?a=***", headers={"X-A": "***"})) == [
        "headers",
        "base_url",
    ]
    assert hidden(Endpoint(base_url="https://h/v1", headers={"X-A": "${env:A}"})) == []


def test_a_manifest_of_another_shape_is_compared_without_a_crash() -> None:
    assert differences({"endpoint": 5, "request": "x"}, public(BASE)) != []
    assert differences({}, {}) == []
