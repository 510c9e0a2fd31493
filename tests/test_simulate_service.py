"""The whole provider in virtual time: no socket, no clock."""

import json
from typing import Any

import pytest

from batchinfer.simulate.behaviour import Behaviour
from batchinfer.simulate.service import Decision, Hang, Respond, Response, Service, Work
from batchinfer.simulate.slots import Slots

CHAT = b"/v1/chat/completions"


def service(behaviour: Behaviour) -> Service:
    return Service(behaviour, Slots[object](behaviour.slots), 0.0, 1_700_000_000.0)


def ask(of: Service, now: float = 0.0, prompt: str = "hello") -> Decision:
    body = json.dumps({"messages": [{"role": "user", "content": prompt}]}).encode()
    return of.decide(b"POST", CHAT, body, now)


def response(decision: Decision) -> Response:
    assert not isinstance(decision, Hang)
    return decision.response


def error(decision: Decision) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(response(decision).body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def headers(decision: Decision) -> dict[str, str]:
    lines = response(decision).headers.decode().splitlines()
    return dict(line.split(": ") for line in lines)


def test_an_answer_takes_its_latency_and_its_tokens() -> None:
    decision = ask(service(Behaviour(latency=2.0, jitter=0.0, per_token=0.1)))

    assert isinstance(decision, Work)
    assert decision.response.status == 200
    assert decision.seconds == pytest.approx(2.0 + 0.1 * decision.response.tokens[1])


def test_no_sliding_minute_admits_more_than_the_limit() -> None:
    limited = service(Behaviour(rpm=30))
    moments = [n * 0.37 for n in range(1000)]
    admitted = [now for now in moments if response(ask(limited, now)).status == 200]

    assert max(sum(start <= at < start + 60 for at in admitted) for start in admitted) == 30
    assert len(admitted) >= 30 * 6


def test_a_client_that_waits_as_told_gets_the_whole_quota() -> None:
    limited, now, admitted = service(Behaviour(rpm=10)), 0.0, 0
    while now < 600:
        decision = ask(limited, now)
        if response(decision).status == 200:
            admitted += 1
        else:
            now += int(headers(decision)["retry-after-ms"]) / 1000

    assert admitted == 100


def test_a_refusal_tells_the_limit_and_when_to_come_back() -> None:
    limited = service(Behaviour(rpm=2))
    ask(limited, 0.0), ask(limited, 10.0)
    refused = ask(limited, 15.5)

    assert isinstance(refused, Respond)
    assert refused.response.status == 429
    assert error(refused)["code"] == "rate_limit_exceeded"
    assert (
        "(RPM): Limit 2, Used 2, Requested 1. Please try again in 44.500s."
        in (error(refused)["message"])
    )
    assert headers(refused) == {
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "54.5s",
        "retry-after": "45",
        "retry-after-ms": "44500",
    }


def test_tokens_of_prompt_and_answer_are_charged() -> None:
    limited = service(Behaviour(tpm=1000))
    first = ask(limited)
    used = sum(response(first).tokens)

    assert headers(first) == {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": str(1000 - used),
        "x-ratelimit-reset-tokens": "1m0s",
    }
    statuses = [response(ask(limited)).status for _ in range(100)]
    assert statuses.count(200) == 1000 // used - 1
    assert set(statuses) == {200, 429}


def test_what_can_never_fit_is_refused_without_a_time_to_come_back() -> None:
    refused = ask(service(Behaviour(tpm=10)), prompt="word " * 100)

    assert error(refused)["message"].startswith("Request too large")
    assert error(refused)["type"] == "tokens"
    assert "retry-after" not in headers(refused)


def test_faults_come_as_they_were_ordered() -> None:
    assert isinstance(ask(service(Behaviour(hang_rate=1.0))), Hang)
    failed = ask(service(Behaviour(error_rate=1.0)))
    refused = ask(service(Behaviour(rate_limit_rate=1.0, rpm=5)))

    assert isinstance(failed, Work)
    assert failed.response.status == 500
    assert error(failed)["type"] == "server_error"
    assert response(refused).status == 429
    assert headers(refused)["x-ratelimit-remaining-requests"] == "4"
    assert "retry-after" not in headers(refused)


def test_the_same_requests_meet_the_same_faults_again() -> None:
    behaviour = Behaviour(error_rate=0.3, rate_limit_rate=0.2, seed=5)
    runs = []
    for _ in range(2):
        provider = service(behaviour)
        runs.append([response(ask(provider, prompt=f"p{n}")) for n in range(200)])

    assert runs[0] == runs[1]
    assert {each.status for each in runs[0]} == {200, 429, 500}


def test_a_fault_spares_the_retry() -> None:
    provider = service(Behaviour(error_rate=0.5))
    statuses = [response(ask(provider)).status for _ in range(20)]

    assert set(statuses) == {200, 500}


def test_refused_requests_do_not_move_the_fates_of_the_others() -> None:
    free = service(Behaviour(error_rate=0.5))
    limited = service(Behaviour(error_rate=0.5, rpm=1))
    expected = [response(ask(free)).status for _ in range(50)]
    met = []
    for minute in range(50):
        met.append(response(ask(limited, minute * 60.0)).status)
        assert response(ask(limited, minute * 60.0 + 1)).status == 429

    assert met == expected


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        (b"GET", b"/health", 200),
        (b"GET", b"/metrics", 200),
        (b"GET", b"/v1/models", 200),
        (b"GET", CHAT, 405),
        (b"POST", b"/health", 404),
        (b"GET", b"/", 404),
        (b"POST", b"/v1/messages", 404),
        (b"POST", b"/v1/chat/completions/more", 404),
    ],
)
def test_paths_are_served_by_their_method(method: bytes, target: bytes, status: int) -> None:
    decision = service(Behaviour()).decide(method, target, b"", 0.0)

    assert isinstance(decision, Respond)
    assert decision.response.status == status
    if status >= 400:
        assert error(decision)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("target", "body", "kind"),
    [
        (b"/chat/completions", b'{"messages":[{"role":"user","content":"x"}]}', "chat.completion"),
        (b"/deep/er/v1/chat/completions?api-version=1",
         b'{"messages":[{"role":"user","content":"x"}]}', "chat.completion"),
        (b"/v1/completions", b'{"prompt":"x"}', "text_completion"),
        (b"/any/embeddings", b'{"input":"x"}', "list"),
    ],
)  # fmt: skip
def test_every_api_is_served_under_any_prefix(target: bytes, body: bytes, kind: str) -> None:
    decision = service(Behaviour(api="openai-embeddings")).decide(b"POST", target, body, 0.0)

    assert json.loads(response(decision).body)["object"] == kind


def test_a_bad_body_is_refused_and_uses_up_no_limit() -> None:
    limited = service(Behaviour(rpm=1))
    refused = limited.decide(b"POST", CHAT, b'{"messages": 5}', 0.0)

    assert response(refused).status == 400
    assert "messages" in error(refused)["message"]
    assert response(ask(limited)).status == 200


def test_nesting_beyond_all_measure_is_refused() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    body = b'{"messages": [{"role": "user", "content": [{"x": ' + deep + b"}]}]}"

    assert response(service(Behaviour()).decide(b"POST", CHAT, body, 0.0)).status == 400
