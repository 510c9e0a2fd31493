"""The summary of a job: what `run --json` and `stats --json` print.

Owns: the names and the shape of the summary, which other programs rely on. Refuses to know: how
the tally came about (a live run or sidecars read back), how a summary is shown, files.
"""

from msgspec import Struct

from batchinfer.report.histogram import Histogram
from batchinfer.report.tally import Tally


class Outputs(Struct, frozen=True):
    """The files of the job as the user would name them; None where there is none (yet)."""

    success: str | None = None
    failure: str | None = None
    results: str | None = None


class RunFacts(Struct, frozen=True, kw_only=True):
    """What a tally cannot know.

    `ended`: "finished", "partial", "interrupted", "running", … `elapsed_s`: seconds of work.
    `settled`: rows settled within `elapsed_s` (None: those the tally saw settled, a live run's).
    `prefix`: of the outputs, where it is not named after the input.
    `possibly_rebilled`: requests of an earlier crash that the server may bill twice.
    """

    ended: str
    elapsed_s: float
    settled: int | None = None
    possibly_rebilled: int = 0
    input: str | None = None
    prefix: str | None = None
    output: Outputs = Outputs()
    transport: str | None = None
    concurrency: int | None = None


class Rows(Struct, frozen=True):
    """Input rows: total = succeeded + failed + pending; `invalid` are a part of `failed`.

    `total` and `pending` are None until the input has been read to its end.
    """

    total: int | None
    succeeded: int
    failed: int
    pending: int | None
    invalid: int


class Requests(Struct, frozen=True):
    """HTTP exchanges, over all runs of the job."""

    sent: int
    retried: int
    ambiguous: int
    rate_limited: int


class Tokens(Struct, frozen=True):
    """As told by the servers: of the answers, and `wasted` on replies that became none."""

    input: int
    output: int
    cached: int
    reasoning: int
    wasted: int


class Latency(Struct, frozen=True):
    """Milliseconds of the exchanges that brought an answer; None where there was none."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class Summary(Struct, frozen=True, kw_only=True):
    """The whole; its JSON encoding is the contract.

    `cost_usd` is None where any cost is unknown: see `unpriced_models` and `unknown_usage` (answers
    whose server told no tokens). `failures` is sorted, most frequent class first.
    """

    ended: str
    rows: Rows
    requests: Requests
    tokens: Tokens
    cost_usd: float | None
    unpriced_models: list[str]
    unknown_usage: int
    latency_ms: Latency
    elapsed_s: float
    rows_per_s: float
    failures: dict[str, int]
    possibly_rebilled: int
    input: str | None
    prefix: str | None
    output: Outputs
    transport: str | None
    concurrency: int | None


def summarise(tally: Tally, facts: RunFacts) -> Summary:
    """Put a tally and the facts of its run into the summary's shape."""
    settled = tally.settled if facts.settled is None else facts.settled
    return Summary(
        ended=facts.ended,
        rows=_rows(tally),
        requests=Requests(tally.sent, tally.retried, tally.ambiguous, tally.rate_limited),
        tokens=Tokens(tally.input, tally.output, tally.cached, tally.reasoning, tally.wasted),
        cost_usd=tally.cost,
        unpriced_models=sorted(tally.unpriced_models),
        unknown_usage=tally.unknown_usage,
        latency_ms=_latency(tally.latency),
        elapsed_s=round(facts.elapsed_s, 3),
        rows_per_s=round(settled / facts.elapsed_s, 3) if facts.elapsed_s > 0 else 0.0,
        failures=_failures(tally),
        possibly_rebilled=facts.possibly_rebilled,
        input=facts.input,
        prefix=facts.prefix,
        output=facts.output,
        transport=facts.transport,
        concurrency=facts.concurrency,
    )


def _rows(tally: Tally) -> Rows:
    pending = None if tally.total is None else tally.total - tally.done
    return Rows(tally.total, tally.succeeded, tally.failed, pending, tally.invalid)


def _latency(latency: Histogram) -> Latency:
    figures = (latency.mean, *(latency.quantile(q) for q in (0.5, 0.95, 0.99)))
    return Latency(*(figure if figure is None else round(figure, 3) for figure in figures))


def _failures(tally: Tally) -> dict[str, int]:
    by_count = sorted(tally.failures.items(), key=lambda item: (-item[1], item[0]))
    return {error.value: count for error, count in by_count}
