"""What HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.errors import ConfigError
from batchinfer.transport.proxies import rules_from


def label(environ: dict[str, str], scheme: str = "http", host: str = "model.test") -> str | None:
    proxy = rules_from(environ).proxy_for(scheme, host, 8000)
    return None if proxy is None else proxy.label


def bypassed(entry: str, host: str) -> bool:
    return label({"HTTP_PROXY": "p:1", "NO_PROXY": entry}, host=host) is None


def test_an_empty_environment_leads_directly() -> None:
    assert label({}) is None


@pytest.mark.parametrize(
    ("environ", "http", "https"),
    [
        ({"HTTP_PROXY": "http://a:1"}, "a:1", None),
        ({"HTTPS_PROXY": "http://a:1"}, None, "a:1"),
        ({"ALL_PROXY": "http://a:1"}, "a:1", "a:1"),
        ({"ALL_PROXY": "http://a:1", "https_proxy": "http://b:2"}, "a:1", "b:2"),
        ({"HTTP_PROXY": "http://a:1", "http_proxy": "http://b:2"}, "b:2", None),
        ({"HTTP_PROXY": "http://a:1", "http_proxy": ""}, None, None),
        ({"ALL_PROXY": "http://a:1", "HTTP_PROXY": ""}, None, "a:1"),
    ],
)
def test_the_variable_for_the_scheme_wins_then_all_and_lower_case_first(
    environ: dict[str, str], http: str | None, https: str | None
) -> None:
    assert (label(environ), label(environ, "https")) == (http, https)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("proxy:3128", "proxy:3128"),
        ("proxy", "proxy:80"),
        ("https://proxy", "proxy:443"),
        (" http://proxy:1/ ", "proxy:1"),
        ("http://me:secret@proxy:3128", "proxy:3128"),
        ("HTTP://Proxy:3128", "proxy:3128"),
    ],
)
def test_a_proxy_is_named_by_host_and_port(value: str, expected: str) -> None:
    assert label({"HTTP_PROXY": value}) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("socks5://me:secret@proxy:1080", "SOCKS proxy, which is not supported"),
        ("socks5h://proxy", "SOCKS"),
        ("ftp://proxy", "not an http:// or https:// address"),
        ("http://", "names no host"),
        ("http://pro xy", "names no host"),
        ("http://[::1", "invalid host or port"),
        ("http://me:secret@proxy:99999", "invalid host or port"),
        ("http://me:secret", "invalid host or port"),
        ("http://me:17/secret@proxy:80", "not percent-encoded"),
    ],
)
def test_an_unusable_proxy_is_named_with_its_variable_and_without_its_secret(
    value: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=r"^HTTPS_PROXY \('") as caught:
        label({"HTTPS_PROXY": value}, "https")
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_unusable_proxy_matters_only_where_it_is_used() -> None:
    environ = {"ALL_PROXY": "socks5://proxy:9", "HTTP_PROXY": "http://a:1", "NO_PROXY": "local"}

    assert label(environ) == "a:1"
    assert label(environ, "https", "local") is None


@pytest.mark.parametrize(
    ("entry", "host", "expected"),
    [
        ("*", "anything", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.11", False),
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("127.0.0.1:8001", "127.0.0.1", False),
        ("10.0.0.0/8", "10.20.30.40", True),
        ("10.0.0.1/8", "10.20.30.40", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::1", False),
        ("localhost,fe80::/10", "fe80::1", True),
        ("localhost,fe80::/10", "localhost", True),
        ("localhost,fe80::/10", "127.0.0.1", False),
        ("localhost [::1]", "::1", True),
        ("[::1]:8000", "::1", True),
        ("[::1]:8001", "::1", False),
        ("::1", "::1", True),
        ("example.com", "example.com", True),
        ("example.com", "api.Example.com", True),
        (".example.com", "api.example.com", True),
        ("*.example.com", "api.example.com", True),
        ("example.com", "notexample.com", False),
        ("example.com:8000", "api.example.com", True),
        ("http://[nonsense", "nonsense", False),
        (" , ,", "anything", False),
        (".", "anything", False),
    ],
)
def test_no_proxy_names_hosts_domains_networks_and_ports(
    entry: str, host: str, expected: bool
) -> None:
    assert bypassed(entry, host) is expected


@given(entries=st.text(), host=st.sampled_from(["localhost", "127.0.0.1", "::1", "fe80::1%eth0"]))
def test_no_value_of_no_proxy_is_an_error(entries: str, host: str) -> None:
    assert bypassed(f"{entries},{host}", host)


@given(value=st.text(min_size=1))
def test_any_proxy_value_is_a_proxy_or_a_config_error(value: str) -> None:
    try:
        label({"HTTP_PROXY": value})
    except ConfigError as error:
        assert str(error).isprintable()  # noqa: PT017 - either outcome is right


@given(password=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6))
def test_a_password_reaches_neither_an_error_nor_a_repr(password: str) -> None:
    rules = rules_from({"HTTP_PROXY": f"http://user:{password}@p:1"})
    shown = repr(rules)
    try:
        shown += repr(rules.proxy_for("http", "model.test", 80))
    except ConfigError as error:
        shown += repr(error)

    assert password not in shown
