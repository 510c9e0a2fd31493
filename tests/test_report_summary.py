import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode
from test_report_tally import EVENTS, FAILURE, SUCCESS, folded

from batchinfer.events import Counted, Event, Settled, Skipped
from batchinfer.model import ErrorClass
from batchinfer.report.summary import Outputs, RunFacts, summarise

FACTS = RunFacts(
    ended="partial",
    elapsed_s=2.0,
    possibly_rebilled=3,
    input="reviews.jsonl",
    output=Outputs("r.success.jsonl", "r.failure.jsonl", None),
    transport="httpx",
    concurrency=64,
)


def encoded(*events: Event, facts: RunFacts = FACTS) -> dict[str, object]:
    told: dict[str, object] = json.loads(encode(summarise(folded(*events), facts)))
    return told


def test_the_json_has_exactly_the_promised_shape() -> None:
    failed = Skipped("failed", ErrorClass.SCHEMA)

    assert encoded(Settled(SUCCESS), Settled(SUCCESS), failed, Counted(5)) == {
        "ended": "partial",
        "rows": {"total": 5, "succeeded": 2, "failed": 1, "pending": 2, "invalid": 0},
        "requests": {"sent": 0, "retried": 0, "ambiguous": 0, "rate_limited": 0},
        "tokens": {"input": 200, "output": 40, "cached": 80, "reasoning": 10, "wasted": 0},
        "cost_usd": 0.5,
        "unpriced_models": [],
        "unknown_usage": 0,
        "latency_ms": {"mean": 50.0, "p50": 50.0, "p95": 50.0, "p99": 50.0},
        "elapsed_s": 2.0,
        "rows_per_s": 1.0,
        "failures": {"schema": 1},
        "possibly_rebilled": 3,
        "input": "reviews.jsonl",
        "prefix": None,
        "output": {"success": "r.success.jsonl", "failure": "r.failure.jsonl", "results": None},
        "transport": "httpx",
        "concurrency": 64,
    }


def test_figures_that_nobody_knows_yet_are_null() -> None:
    told = encoded(facts=RunFacts(ended="running", elapsed_s=0.0))

    assert told["rows"] == {
        "total": None,
        "succeeded": 0,
        "failed": 0,
        "pending": None,
        "invalid": 0,
    }
    assert told["latency_ms"] == {"mean": None, "p50": None, "p95": None, "p99": None}
    assert told["rows_per_s"] == 0.0


@given(EVENTS, st.integers(0, 100))
def test_succeeded_failed_and_pending_add_up_to_the_total(events: list[Event], more: int) -> None:
    total = folded(*events).done + more
    rows = summarise(folded(*events, Counted(total)), FACTS).rows

    assert rows.total == total
    assert rows.succeeded + rows.failed + (rows.pending or 0) == rows.total
    assert rows.pending == more
    assert rows.invalid <= rows.failed


def test_failures_are_sorted_by_how_often_they_came() -> None:
    events: list[Event] = [
        Skipped("failed", ErrorClass.SCHEMA),
        Settled(FAILURE),
        Settled(FAILURE),
        Skipped("failed", ErrorClass.REFUSED),
    ]

    assert list(summarise(folded(*events), FACTS).failures.items()) == [
        ("timeout", 2),
        ("refused", 1),
        ("schema", 1),
    ]


def test_the_rate_of_a_job_looked_at_later_is_that_of_the_rows_it_is_told() -> None:
    facts = RunFacts(ended="finished", elapsed_s=4.0, settled=10)

    assert summarise(folded(Skipped("succeeded")), facts).rows_per_s == 2.5
