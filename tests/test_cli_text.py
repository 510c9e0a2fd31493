import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from batchinfer.cli.text import (
    WIDTH,
    clean,
    count,
    duration,
    milliseconds,
    money,
    rate,
    summary_lines,
)
from batchinfer.model import ErrorClass
from batchinfer.report.summary import (
    Latency,
    Outputs,
    Requests,
    Rows,
    Summary,
    Tokens,
)

SUMMARY = Summary(
    prefix=None,
    ended="partial",
    rows=Rows(1_000_000, 999_000, 900, 100, 12),
    requests=Requests(1_000_321, 451, 12, 310),
    tokens=Tokens(12_345_678, 1_234_567, 2_000, 300, 12_000),
    cost_usd=12.3456,
    unpriced_models=[],
    unknown_usage=0,
    latency_ms=Latency(38.2, 35.0, 80.4, 1_200.0),
    elapsed_s=185.0,
    rows_per_s=5_405.0,
    failures={"timeout": 700, "schema": 188, "invalid_input": 12},
    possibly_rebilled=0,
    input="reviews.jsonl",
    output=Outputs("reviews.success.jsonl", "reviews.failure.jsonl", "reviews.results.jsonl"),
    transport="pyreqwest",
    concurrency=64,
)


@given(st.text(max_size=300), st.integers(1, 250))
def test_cleaned_text_prints_on_one_line_within_its_limit(text: str, limit: int) -> None:
    shown = clean(text, limit)

    assert shown.isprintable()
    assert len(shown) <= limit


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=200))
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J", r"\x9b2J"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("evil\u202egnp.exe", r"evil\u202egnp.exe"),
        ("two\r\nlines\tand\xa0blanks\u2028", "two  lines and blanks "),
        ("name\udcff", r"name\udcff"),
        ("bell\x00\x7f", r"bell\x00\x7f"),
    ],
)
def test_what_could_move_the_terminal_becomes_visible(foreign: str, shown: str) -> None:
    assert clean(foreign) == shown


def test_long_text_is_cut_with_an_ellipsis() -> None:
    assert clean("x" * 10**7, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (0.44, "0.4s"),
        (9.97, "10s"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (185, "3m 05s"),
        (3_725, "1h 02m"),
        (183_600, "2d 03h"),
        (-1, "0.0s"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0, "$0.0000"),
        (0.0123, "$0.0123"),
        (0.0000123, "$0.000012"),
        (1e-30, "$0.000000000000"),
        (12.3456, "$12.35"),
        (1_234_567.8, "$1,234,567.80"),
    ],
)
def test_money_shows_what_counts(usd: float, text: str) -> None:
    assert money(usd) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (0, "0.0 rows/s"),
        (0.05, "3.0 rows/min"),
        (8.33, "8.3 rows/s"),
        (1_234.4, "1,234 rows/s"),
        (17_907_784, "17.9M rows/s"),
    ],
)
def test_rates_have_the_unit_that_reads_best(per_second: float, text: str) -> None:
    assert rate(per_second, "rows") == text


@pytest.mark.parametrize(("ms", "text"), [(4.25, "4.2 ms"), (38.2, "38 ms"), (1_240, "1.24 s")])
def test_latencies_have_the_unit_that_reads_best(ms: float, text: str) -> None:
    assert milliseconds(ms) == text


def test_counts_have_thousands_separators() -> None:
    assert count(1_234_567) == "1,234,567"


def test_the_summary_says_how_it_ended_what_it_took_and_where_it_lies() -> None:
    assert summary_lines(SUMMARY) == [
        "ended      partial after 3m 05s, 5,405 rows/s",
        "rows       1,000,000 in all · 999,000 succeeded · 900 failed (12 invalid)",
        "           100 pending",
        "requests   1,000,321 sent · 451 retried · 310 rate-limited · 12 of unknown end",
        "tokens     12,345,678 in (2,000 cached) · 1,234,567 out (300 reasoning)",
        "           12,000 wasted",
        "cost       $12.35",
        "latency    mean 38 ms · p50 35 ms · p95 80 ms · p99 1.20 s",
        "failed     700 timeout",
        "           188 schema",
        "            12 invalid_input",
        "again      batchinfer resume reviews.jsonl",
        "again      batchinfer resume reviews.jsonl --retry-failed=schema",
        "again      mend the invalid lines of the input, then run again",
        "results    reviews.results.jsonl",
        "succeeded  reviews.success.jsonl",
        "failures   reviews.failure.jsonl",
    ]


COUNTS = st.integers(0, 10**12)
SUMMARIES = st.builds(
    structs.replace,
    st.just(SUMMARY),
    rows=st.builds(Rows, COUNTS | st.none(), COUNTS, COUNTS, COUNTS | st.none(), COUNTS),
    requests=st.builds(Requests, COUNTS, COUNTS, COUNTS, COUNTS),
    tokens=st.builds(Tokens, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
    cost_usd=st.floats(0, 1e9) | st.none(),
    unpriced_models=st.lists(st.text(max_size=60), max_size=4),
    unknown_usage=COUNTS,
    failures=st.dictionaries(st.sampled_from([e.value for e in ErrorClass]), COUNTS),
    possibly_rebilled=COUNTS,
    input=st.text(max_size=60) | st.none(),
    elapsed_s=st.floats(0, 1e8),
    rows_per_s=st.floats(0, 1e6),
)


@given(SUMMARIES)
def test_every_summary_fits_the_width_and_prints(summary: Summary) -> None:
    lines = summary_lines(summary)

    assert [line for line in lines if len(line) > WIDTH or not line.isprintable()] == []


def test_the_hint_names_the_classes_that_a_plain_resume_leaves_alone() -> None:
    failed = structs.replace(SUMMARY, failures={"refused": 3, "truncated": 2})

    assert [line for line in summary_lines(failed) if line.startswith("again")] == [
        "again      batchinfer resume reviews.jsonl --retry-failed=refused,truncated"
    ]


def test_an_input_name_is_quoted_for_the_shell() -> None:
    spaced = structs.replace(SUMMARY, input="my $(rm) file.jsonl", failures={"timeout": 1})

    assert "again      batchinfer resume 'my $(rm) file.jsonl'" in summary_lines(spaced)


def test_an_unknown_cost_says_why() -> None:
    unpriced = structs.replace(SUMMARY, cost_usd=None, unpriced_models=["a", "b", "c", "d"])
    silent = structs.replace(SUMMARY, cost_usd=None, unknown_usage=5)

    assert "cost       unknown: no price of a · b · c · …" in summary_lines(unpriced)
    assert "cost       unknown: the server did not count all tokens" in summary_lines(silent)
