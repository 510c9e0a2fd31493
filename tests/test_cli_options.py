import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchinfer.cli.options import FLAGS, classes, complete, number_or_auto, overrides
from batchinfer.config.load import load
from batchinfer.intake.plan import failures_to_retry
from batchinfer.model import ErrorClass


def test_a_flag_that_was_given_sets_its_field() -> None:
    given_ = {"model": "m", "rpm": 0.0, "prompt": "", "tpm": None}

    assert overrides(given_) == {"endpoint.model": "m", "limits.rpm": 0.0, "request.prompt": ""}
    assert overrides({}) == {}


def test_every_flag_names_a_field_that_there_is() -> None:
    values: dict[str, object] = dict.fromkeys(FLAGS, "x") | {
        "provider": "openai-chat",
        "base_url": "http://127.0.0.1:9/v1",
        "transport": "httpx",
        "concurrency": 3,
        "rpm": 1.0,
        "tpm": 2.0,
        "max_cost": 3.0,
    }

    loaded = load(None, ["prices.x.input=1"], overrides(values), {"x": "sk-1"}, lambda _: b"")

    assert loaded.endpoint is not None
    assert (loaded.endpoint.model, loaded.endpoint.transport) == ("x", "httpx")
    assert (loaded.request.prompt, loaded.request.system) == ("x", "x")
    assert (loaded.limits.concurrency, loaded.limits.rpm, loaded.limits.tpm) == (3, 1.0, 2.0)
    assert loaded.budget.max_cost == 3.0


@pytest.mark.parametrize(
    ("text", "value"),
    [(None, None), ("64", 64), ("auto", "auto"), ("-1", "-1"), ("1.5", "1.5"), ("", "")],
)
def test_a_concurrency_is_a_number_or_a_word(text: str | None, value: object) -> None:
    assert number_or_auto(text) == value


def test_a_bare_retry_failed_means_all() -> None:
    arguments = ["run", "--retry-failed", "in.jsonl", "--retry-failed=timeout", "--quiet"]

    assert complete(arguments) == [
        "run",
        "--retry-failed=all",
        "in.jsonl",
        "--retry-failed=timeout",
        "--quiet",
    ]


@given(st.lists(st.text().filter(lambda text: text != "--retry-failed")))
def test_no_other_argument_is_touched(arguments: list[str]) -> None:
    assert complete(arguments) == arguments


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, None),
        ("all", set(ErrorClass)),
        ("", set(ErrorClass)),
        ("timeout, refused", {ErrorClass.TIMEOUT, ErrorClass.REFUSED}),
    ],
)
def test_the_classes_to_retry(text: str | None, wanted: set[ErrorClass] | None) -> None:
    named = classes(text)

    assert (named is None) == (wanted is None)
    assert wanted is None or failures_to_retry(named) == wanted
