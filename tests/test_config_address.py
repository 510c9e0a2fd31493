"""Base URLs: what is accepted, and what of one is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.config.address import host, is_encrypted, is_loopback, joined, problem, shown


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "https://api.example.com/v1/",
        "https://api.example.com",
        "http://[::1]:8080/v1",
        "https://host/v1?api-version=2024-06-01",
    ],
)
def test_a_base_url_is_http_with_a_host(url: str) -> None:
    assert problem(url) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "not a URL"),
        ("http://host/a b", "not a URL"),
        ("http://host:port/v1", "not a URL"),
        ("http://[::1/v1", "not a URL"),
        ("http://höst/v1", "not a URL"),
        ("http://host/v1\n", "not a URL"),
        ("localhost:8000/v1", "must begin with http"),
        ("ftp://host/v1", "must begin with http"),
        ("http:///v1", "no host"),
        ("http://user:pw@host/v1", "no user or password"),
        ("http://@host/v1", "no user or password"),
        ("http://host/v1#top", "fragment"),
        ("http://host/v1/chat/completions", "before /chat/completions"),
        ("http://host/v1/completions/", "before /completions"),
        ("http://host/v1/embeddings?k=v", "before /embeddings"),
    ],
)
def test_what_is_wrong_with_a_base_url_is_said_without_showing_it(url: str, said: str) -> None:
    text = problem(url)

    assert text is not None
    assert said in text
    assert "pw" not in text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1/v1", True),
        ("http://LOCALHOST/v1", True),
        ("http://api.localhost/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://0.0.0.0:8000/v1", True),
        ("http://[::1]/v1", True),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example.com/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
        ("http://[::1/v1", False),
    ],
)
def test_loopback_is_this_machine_only(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


def test_only_https_is_encrypted() -> None:
    assert is_encrypted("https://host/v1")
    assert not is_encrypted("http://https/v1")


def test_the_host_is_compared_in_lower_case() -> None:
    assert host("https://API.example.com:443/v1") == "api.example.com"
    assert host("not a url") is None
    assert host(None) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host/v1?key=SECRET#SECRET", "https://host/v1"),
        ("https://SECRET:SECRET@host:8/v1", "https://host:8/v1"),
        ("https://host/v1/a@b", "https://host/v1/a@b"),
        ("https://host", "https://host"),
    ],
)
def test_a_shown_url_has_no_user_query_or_fragment(url: str, expected: str) -> None:
    assert shown(url) == expected


@given(user=st.text("SECRT:@", max_size=8), query=st.text("SECRT?&=#/@", max_size=8))
def test_nothing_of_user_and_query_is_shown(user: str, query: str) -> None:
    assert shown(f"https://{user}@host/v1?{query}") == "https://host/v1"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h/v1", "http://h/v1/models"),
        ("http://h/v1/", "http://h/v1/models"),
        ("http://h/v1?key=a/b", "http://h/v1/models?key=a/b"),
    ],
)
def test_a_path_is_added_before_the_query(url: str, expected: str) -> None:
    assert joined(url, "/models") == expected
