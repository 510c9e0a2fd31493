"""Presets, and the endpoint that the environment describes."""

from collections.abc import Mapping

import pytest

from batchinfer.config.address import OPENAI, is_encrypted, is_loopback, problem
from batchinfer.config.load import load
from batchinfer.config.presets import PRESETS
from batchinfer.config.schema import Endpoint
from batchinfer.errors import ConfigError


def _endpoint(
    flags: Mapping[str, object], env: Mapping[str, str], preset: str | None = None
) -> Endpoint:
    config = load(None, [], flags, env, lambda path: path.encode(), preset)
    assert config.endpoint is not None
    return config.endpoint


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_an_endpoint(name: str) -> None:
    endpoint = _endpoint({}, {}, name)

    assert endpoint.base_url == PRESETS[name].base_url
    assert PRESETS[name].note


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.base_url])
def test_a_preset_is_local_without_a_key_or_encrypted_with_one(name: str) -> None:
    preset = PRESETS[name]

    assert problem(preset.base_url or "") is None
    assert is_loopback(preset.base_url or "") is (preset.api_key_env is None)
    assert is_encrypted(preset.base_url or "") is (preset.api_key_env is not None)


def test_an_unknown_preset_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no such preset; there are demo, openai, vllm"):
        _endpoint({}, {}, "gpt")


def test_without_an_endpoint_three_ways_on_are_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        _endpoint({"endpoint.model": "m"}, {"OPENAI_BASE_URL": "", "OPENAI_MODEL": "m"})

    for way in ("--preset", "OPENAI_BASE_URL", "OPENAI_API_KEY", "--config configs/demo.toml"):
        assert way in str(caught.value)


def test_the_environment_alone_makes_an_endpoint() -> None:
    env = {"OPENAI_BASE_URL": "http://gpu:8000/v1", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}

    assert _endpoint({}, env) == Endpoint(
        base_url="http://gpu:8000/v1", model="m", api_key_env="OPENAI_API_KEY"
    )


def test_an_address_in_the_environment_needs_no_key() -> None:
    endpoint = _endpoint({}, {"OPENAI_BASE_URL": "http://gpu:8000/v1"})

    assert endpoint.api_key_env is None


def test_a_key_in_the_environment_is_for_openai() -> None:
    endpoint = _endpoint({}, {"OPENAI_API_KEY": "k"})

    assert (endpoint.base_url, endpoint.api_key_env) == (OPENAI, "OPENAI_API_KEY")


def test_a_flag_for_the_model_comes_before_the_environment() -> None:
    env = {"OPENAI_BASE_URL": "http://gpu:8000/v1", "OPENAI_MODEL": "m"}

    assert _endpoint({"endpoint.model": "flag"}, env).model == "flag"


def test_a_provider_without_an_address_is_openais() -> None:
    endpoint = _endpoint({"endpoint.provider": "openai-embeddings"}, {"OPENAI_MODEL": "chat"})

    assert endpoint == Endpoint(
        provider="openai-embeddings", base_url=OPENAI, api_key_env="OPENAI_API_KEY"
    )


@pytest.mark.parametrize("url", ["https://other.example/v1", "https://api.openai.com.evil/v1"])
def test_a_key_in_the_environment_is_never_for_another_host(url: str) -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": OPENAI, "OPENAI_MODEL": "m"}
    endpoint = _endpoint({"endpoint.base_url": url}, env)

    assert endpoint == Endpoint(base_url=url)


def test_a_key_is_for_another_host_when_the_configuration_says_so() -> None:
    flags = {"endpoint.base_url": "https://o.example/v1", "endpoint.api_key_env": "OPENAI_API_KEY"}

    assert _endpoint(flags, {}).api_key_env == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    "flags",
    [{"endpoint.api_key_file": "f"}, {"endpoint.headers.Authorization": "Basic ${env:B}"}],
)
def test_another_way_to_say_the_key_keeps_the_environments_away(flags: dict[str, object]) -> None:
    endpoint = _endpoint({"endpoint.base_url": OPENAI} | flags, {"OPENAI_API_KEY": "k", "B": "b"})

    assert endpoint.api_key_env is None


def test_a_presets_key_stays_with_the_presets_host() -> None:
    moved = _endpoint({"endpoint.base_url": "https://other.example/v1"}, {}, "groq")
    within = _endpoint({"endpoint.base_url": "https://api.groq.com/other/v1"}, {}, "groq")
    named = _endpoint(
        {"endpoint.base_url": "https://other.example/v1", "endpoint.api_key_env": "GROQ_API_KEY"},
        {},
        "groq",
    )

    assert moved.api_key_env is None
    assert within.api_key_env == named.api_key_env == "GROQ_API_KEY"


def test_the_simulator_takes_nothing_from_the_environment() -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": OPENAI, "OPENAI_MODEL": "m"}

    assert _endpoint({}, env, "demo") == Endpoint(provider="simulated")


def test_a_wrong_address_in_the_environment_names_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"\(environment variable OPENAI_BASE_URL\): must begin"):
        _endpoint({}, {"OPENAI_BASE_URL": "gpu:8000"})
