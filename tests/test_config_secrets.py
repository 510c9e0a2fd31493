"""Keys and headers: read, checked, and never shown."""

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.schema import Endpoint
from batchinfer.config.secrets import (
    MAX_KEY,
    Secret,
    endpoint_url,
    header_values,
    interpolated,
    read_key,
)
from batchinfer.errors import ConfigError

NAMED = Endpoint(base_url="https://h/v1", api_key_env="MY_KEY")
IN_FILE = Endpoint(base_url="https://h/v1", api_key_file="key.txt")


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


def _headers(endpoint: Endpoint, env: Mapping[str, str] | None = None) -> dict[str, str]:
    found = header_values(endpoint, env or {}, _no_file)
    return {name: value.reveal() for name, value in found.items()}


def _refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize(
    "show", [repr, str, "{}".format, "{!r:>40}".format, "%s".__mod__, lambda s: f"{s:>9}"]
)
def test_a_secret_shows_nothing_of_itself(show: Callable[[Secret], str]) -> None:
    assert "sk" not in show(Secret("sk-abc"))
    assert "***" in show(Secret("sk-abc"))
    assert "sk" not in repr({"k": [Secret("sk-abc")]})


@pytest.mark.parametrize("store", [pickle.dumps, copy.deepcopy])
def test_a_secret_is_not_stored(store: Callable[[Secret], object]) -> None:
    with pytest.raises(TypeError, match="not stored"):
        store(Secret("sk-abc"))


def test_a_key_is_read_from_the_variable_or_the_file_that_the_endpoint_names() -> None:
    from_env = read_key(NAMED, {"MY_KEY": " sk-abc\r\n"}, _no_file)
    from_file = read_key(IN_FILE, {}, lambda path: f"{path}\n".encode())

    assert from_env is not None
    assert from_env.reveal() == "sk-abc"
    assert from_file is not None
    assert from_file.reveal() == "key.txt"


def test_an_endpoint_that_names_no_key_has_none() -> None:
    assert read_key(Endpoint(), {"OPENAI_API_KEY": "k"}, _no_file) is None


def test_a_key_file_may_stand_in_the_home_folder() -> None:
    endpoint = Endpoint(api_key_file="~/key")
    key = read_key(endpoint, {"HOME": "/home/me"}, str.encode)

    assert key is not None
    assert key.reveal() == "/home/me/key"


def test_a_missing_variable_is_named() -> None:
    assert "environment variable MY_KEY is not set" in _refusal(
        lambda: read_key(NAMED, {"MY_KEY": ""}, _no_file)
    )


@pytest.mark.parametrize("name", ["sk-SECRET-123", "gsk_SECRETabc", "SECRET" * 20, "SECRET\n"])
def test_a_key_in_place_of_the_variables_name_is_not_repeated(name: str) -> None:
    endpoint = Endpoint(api_key_env=name)

    assert "SECRET" not in _refusal(lambda: read_key(endpoint, {}, _no_file))


@pytest.mark.parametrize(
    "key",
    [
        "SECRET SECRET",
        "SECRET\nSECRET",
        "SECRET\r\nX-Evil: 1",
        "SECRET\0",
        "SECRETé",
        "SECRET\u00a0",
        "\ufeffSECRET",
        "SECRET\x7f",
        "SECRET\x1b[31m",
        "SECRET\udcff",
        "S" * (MAX_KEY + 1),
        " ",
        "\n",
    ],
)
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(key: str) -> None:
    for_env = _refusal(lambda: read_key(NAMED, {"MY_KEY": key}, _no_file))
    for_file = _refusal(
        lambda: read_key(IN_FILE, {}, lambda _: key.encode("utf-8", "surrogateescape"))
    )

    assert "SECRET" not in for_env + for_file
    assert "SSSS" not in for_env + for_file


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_every_key_that_is_taken_stands_in_one_header(key: str) -> None:
    try:
        taken = read_key(NAMED, {"MY_KEY": key}, _no_file)
    except ConfigError:
        return
    assert taken is not None
    assert all("\x21" <= character <= "\x7e" for character in taken.reveal())
    assert taken.reveal() == key.strip(" \t\r\n")


def test_a_key_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    endpoint = Endpoint(api_key_file=str(tmp_path))

    assert "No such file" in _refusal(lambda: read_key(IN_FILE, {}, _no_file))
    assert "directory" in _refusal(lambda: read_key(endpoint, {}, lambda p: Path(p).read_bytes()))
    assert "cannot be a file's path" in _refusal(
        lambda: read_key(Endpoint(api_key_file="a\0"), {}, lambda p: Path(p).read_bytes())
    )


def test_the_key_is_sent_as_a_bearer_beside_the_configured_headers() -> None:
    endpoint = Endpoint(
        base_url="https://h/v1",
        api_key_env="MY_KEY",
        headers={"X-Team": "a b", "X-Id": "id-${env:ID}"},
    )

    assert _headers(endpoint, {"MY_KEY": "sk-abc", "ID": "7\n"}) == {
        "Authorization": "Bearer sk-abc",
        "X-Team": "a b",
        "X-Id": "id-7",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "a\nX-B: SECRET"},
        {"X-A": "${env:BROKEN}"},
        {"X-A": "SECRETé"},
        {"X A": "SECRET"},
        {"": "SECRET"},
        {"Content-Length": "SECRET"},
        {"transfer-encoding": "SECRET"},
    ],
)
def test_a_header_that_would_break_a_request_is_refused(headers: dict[str, str]) -> None:
    endpoint = Endpoint(base_url="https://h/v1", headers=headers)
    env = {"BROKEN": "a\r\nSECRET"}

    assert "SECRET" not in _refusal(lambda: header_values(endpoint, env, _no_file))


@pytest.mark.parametrize(
    "text", ["${env:", "${env:}", "${env:A-B}", "${env:${env:A}}", "${env: A}"]
)
def test_a_variable_that_is_not_written_right_is_refused(text: str) -> None:
    assert "endpoint.headers.X" in _refusal(
        lambda: interpolated(text, "endpoint.headers.X", {"A": "B", "B": "c"})
    )


def test_what_a_variable_holds_is_not_filled_in_again() -> None:
    assert interpolated("<${env:A}>", "f", {"A": "${env:B}", "B": "c"}) == "<${env:B}>"
    assert interpolated("$HOME ${HOME} ${A}", "f", {"HOME": "x"}) == "$HOME ${HOME} ${A}"


def test_an_unset_variable_is_refused_by_name() -> None:
    assert "f: the environment variable NOPE is not set" in _refusal(
        lambda: interpolated("${env:NOPE}", "f", {})
    )


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint(base_url="http://gpu/v1", api_key_env="MY_KEY"),
        Endpoint(base_url="http://gpu/v1", headers={"X-Api-Key": "abc"}),
        Endpoint(base_url="http://gpu/v1", headers={"X-Other": "${env:MY_KEY}"}),
        Endpoint(base_url="http://gpu/v1?key=${env:MY_KEY}"),
        Endpoint(base_url="http://127.0.0.1.example.com/v1", api_key_env="MY_KEY"),
    ],
)
def test_a_secret_does_not_cross_a_network_in_the_clear(endpoint: Endpoint) -> None:
    said = _refusal(lambda: header_values(endpoint, {"MY_KEY": "sk-abc"}, _no_file))

    assert "allow_insecure_http" in said
    assert "sk-abc" not in said


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint(base_url="http://127.0.0.1:8000/v1", api_key_env="MY_KEY"),
        Endpoint(base_url="http://gpu/v1", api_key_env="MY_KEY", allow_insecure_http=True),
        Endpoint(base_url="https://gpu/v1", api_key_env="MY_KEY"),
        Endpoint(base_url="http://gpu/v1", headers={"X-Team": "abc"}),
    ],
)
def test_a_secret_goes_to_this_machine_or_encrypted_or_where_it_is_allowed(
    endpoint: Endpoint,
) -> None:
    assert len(_headers(endpoint, {"MY_KEY": "sk-abc"})) == 1


def test_the_simulator_needs_and_gets_no_secret() -> None:
    endpoint = Endpoint(
        provider="simulated", api_key_env="UNSET", headers={"X-Api-Key": "${env:UNSET}"}
    )

    assert read_key(endpoint, {}, _no_file) is None
    assert _headers(endpoint) == {}


def test_the_address_is_filled_in_and_takes_a_path_before_its_query() -> None:
    endpoint = Endpoint(base_url="https://${env:HOST}/v1/?key=${env:K}")

    assert endpoint_url(endpoint, {"HOST": "h", "K": "s"}, "/models") == (
        "https://h/v1/models?key=s"
    )


def test_an_endpoint_shows_neither_query_nor_user_nor_headers() -> None:
    endpoint = Endpoint(base_url="https://SECRET@h/v1?k=SECRET", headers={"a": "SECRET"}, model="m")

    assert "SECRET" not in repr(endpoint)
    assert "https://" not in repr(endpoint) or "h/v1" in repr(endpoint)
