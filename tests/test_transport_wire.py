"""The rules both transports share: header values and the size of a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.errors import ConfigError
from batchinfer.transport.proxies import NO_PROXIES
from batchinfer.transport.wire import announced_size, complete_headers, route_to

printable = st.characters(min_codepoint=0x21, max_codepoint=0x7E)


@given(value=st.text(printable))
def test_any_printable_value_is_sent_as_it_is(value: str) -> None:
    assert complete_headers({"X-Key": value})["x-key"] == value


@given(
    before=st.text(printable, max_size=5),
    hostile=st.characters(max_codepoint=0x1F, exclude_characters="\t")
    | st.characters(min_codepoint=0x7F),
    after=st.text(printable, max_size=5),
)
def test_any_other_character_is_an_error_that_names_the_header_alone(
    before: str, hostile: str, after: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        complete_headers({"X-Key": f"{before}sk-SECRET{hostile}{after}"})
    assert "'X-Key'" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "X Key", "X-Key: sk-SECRET", "X-Key\r\n", "Host", "Content-Length"]
)
def test_a_name_that_cannot_be_sent_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be set") as caught:
        complete_headers({name: "1"})
    assert "SECRET" not in str(caught.value)


def test_the_callers_headers_replace_the_defaults() -> None:
    headers = complete_headers({"Accept-Encoding": "gzip", "User-Agent": "mine"})

    assert (headers["accept-encoding"], headers["user-agent"]) == ("gzip", "mine")


@pytest.mark.parametrize(
    ("length", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("9" * 20, int("9" * 20)),
        ("9" * 21, None),
        ("", None),
        ("-1", None),
        ("1, 1", None),
    ],
)
def test_a_size_is_announced_by_a_plain_number(length: str, size: int | None) -> None:
    assert announced_size({"content-length": length}) == size


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://model.test/v1?key=SECRET", "model.test:80"),
        ("https://model.test/v1", "model.test:443"),
        ("http://[::1]:8000/v1", "[::1]:8000"),
    ],
)
def test_a_route_is_named_by_host_and_port_alone(url: str, where: str) -> None:
    assert route_to(url, NO_PROXIES).where == where
