"""Known secrets are taken out of any text, in every form in which they come back."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from json import dumps
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.redact import MIN_SECRET, Redactor, redactor
from batchinfer.config.schema import Endpoint

KEYS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=40)


@pytest.mark.parametrize(
    "form",
    [
        str,
        quote,
        lambda key: quote(key, safe=""),
        quote_plus,
        lambda key: quote(key, safe="").lower(),
        dumps,
        repr,
        str.upper,
        lambda key: b64encode(key.encode()).decode(),
        lambda key: urlsafe_b64encode(key.encode()).decode(),
    ],
)
@given(key=KEYS)
def test_a_secret_is_found_in_every_form(form: Callable[[str], str], key: str) -> None:
    text = Redactor([key]).redact(f"<< {form(key)} >>")

    assert form(key).strip("\"'=") not in text.replace("***", "")
    assert "***" in text


@given(key=KEYS, user=st.text("abcuser:", max_size=7))
def test_a_secret_is_found_in_basic_credentials(key: str, user: str) -> None:
    text = b64encode(f"{user}:{key}".encode()).decode()

    assert "***" in Redactor([key]).redact(text)


@given(st.text())
def test_a_text_without_secrets_is_left_alone(text: str) -> None:
    assert Redactor([]).redact(text) == text
    assert Redactor(["", "a" * (MIN_SECRET - 1)]).redact(text) == text


def test_the_simulator_has_no_secrets() -> None:
    endpoint = Endpoint(provider="simulated", api_key_env="UNSET")

    assert redactor(endpoint, {}, str.encode).redact("UNSET") == "UNSET"


def test_a_secret_within_another_leaves_nothing_of_the_longer_one() -> None:
    assert Redactor(["abcd", "abcdefgh"]).redact("x abcdefgh abcd y") == "x *** *** y"


def test_all_secrets_of_an_endpoint_are_known() -> None:
    endpoint = Endpoint(
        base_url="https://h/v1?key=QUERY%2B123&v=${env:IN_URL}&BARE12",
        api_key_env="KEY",
        headers={
            "X-Api-Key": "HEADER12",
            "Proxy-Authorization": "Basic CREDENTIAL",
            "X-Custom": "pre-${env:IN_HEADER}-post",
            "X-Title": "batchinfer",
        },
    )
    env = {"KEY": "APIKEY12", "IN_URL": "URLVAR12", "IN_HEADER": "HEADERVAR"}
    secrets = ["APIKEY12", "HEADER12", "CREDENTIAL", "HEADERVAR", "URLVAR12", "BARE12"]
    secrets += ["QUERY%2B123", "QUERY+123", "pre-HEADERVAR-post"]

    seen = redactor(endpoint, env, str.encode)

    assert [seen.redact(secret) for secret in secrets] == ["***"] * len(secrets)
    assert seen.redact("batchinfer at https://h/v1: Basic") == "batchinfer at https://h/v1: Basic"
