"""Running a job, and continuing it: there is no difference.

Owns: the order of things — lock, refuse another config, replay, dispatch, manifest, results — and
what a signal does. Refuses to know: how progress is shown, and the command line.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from batchinfer.config.schema import Config
from batchinfer.dispatch.feed import Feed
from batchinfer.dispatch.pool import Pool
from batchinfer.dispatch.scribe import Scribe
from batchinfer.errors import BatchinferError, InterruptedRunError
from batchinfer.events import Counted
from batchinfer.intake.lines import chunks
from batchinfer.intake.plan import Names, Plan, failures_to_retry
from batchinfer.intake.readahead import ReadAhead
from batchinfer.intake.rows import Recipe, is_blank, parse
from batchinfer.intake.source import Input, open_input
from batchinfer.job import takeover, wiring
from batchinfer.job.endpoint import check_way, open_way
from batchinfer.job.history import History, recall
from batchinfer.job.live import View, shown, signals
from batchinfer.job.target import Target, make_folder, raise_file_limit
from batchinfer.journal.manifest import Manifest, write
from batchinfer.journal.writer import JournalWriter
from batchinfer.model import BadRow, ErrorClass, Row
from batchinfer.report.gauges import Gauges
from batchinfer.report.tally import Tally

try:
    from uvloop import new_event_loop
except ImportError:  # the extra `fast` is not installed
    from asyncio import new_event_loop  # type: ignore[assignment]  # uvloop's is narrower

FINISHED: Final = "finished"
MERGING: Final = "merging"
BROKEN: Final = "broken"
"""How a run ended: all rows have their ending, and stand in the results; all have it, but are not
merged yet; something broke that should not have."""

SLOW_ABOVE: Final = 100
"""Requests in flight above which the portable transport is worth a word."""


class Options(Struct, frozen=True, kw_only=True):
    """How to run: starting over, mending damage, seconds a drain may take.

    `retry`: classes of failed rows to send again; []: all; None: those that time may cure.
    """

    retry: list[str] | None = None
    fresh: bool = False
    repair: bool = False
    grace: float = 25.0


class Frontend(Struct, frozen=True):
    """Who is told: `say` a sentence, `view` makes the progress view of the live gauges."""

    say: Callable[[str], None]
    view: Callable[[Gauges], View]


class Ended(Struct, frozen=True):
    """A run that is over: manifest, tally, why it stopped early (None: it did not), transport.

    `seconds`: how long this run was at work; the manifest adds up all runs of the job.
    `repeated`: it found the same input and a job that was finished, and settled nothing.
    """

    manifest: Manifest
    tally: Tally
    reason: BatchinferError | None
    transport: str
    seconds: float
    repeated: bool = False


def run(
    target: Target, config: Config, options: Options, env: Mapping[str, str], front: Frontend
) -> Ended:
    """Run the job to its end, or until something stops it; running it again continues it.

    Raises a BatchinferError where nothing could be started. What stopped a run that was under way
    is in the result, and all that was answered is kept either way.
    """
    again = failures_to_retry(options.retry)
    recipe = wiring.recipe(config)
    check_way(config, env)
    make_folder(target)
    source = open_input(target.input)
    try:
        with takeover.open_journal(
            target, front.say, fresh=options.fresh, mend=options.repair
        ) as journal:
            before, manifest = takeover.begin(target, config, front.say)
            if target.streamed:
                source.keep(Path(target.again))
            session = _Session(target, config, recipe, again, front, grace=options.grace)
            ended = session.run(source, journal, manifest, env)
    finally:
        source.close()
    same = (
        not target.streamed
        and before is not None
        and before.ended == FINISHED
        and before.input == manifest.input
    )
    return structs.replace(ended, repeated=same and not ended.tally.settled)


class _Session:
    """One run of a job whose journal is locked."""

    def __init__(
        self,
        target: Target,
        config: Config,
        recipe: Recipe,
        again: frozenset[ErrorClass],
        front: Frontend,
        *,
        grace: float,
    ) -> None:
        self._target = target
        self._config = config
        self._again = again
        self._grace = grace
        self._front = front
        self._concurrency = wiring.concurrency(config)
        self._recipe = recipe
        self._tally = Tally()
        self._names = Names()
        self._recent = wiring.recent(config)
        self._rows = self._bytes = 0

    def run(
        self, source: Input, journal: JournalWriter, manifest: Manifest, env: Mapping[str, str]
    ) -> Ended:
        """Replay, dispatch, and write down how it ended."""
        began = time.monotonic()
        ended, reason, unanswered, seconds = BROKEN, None, 0, 0.0
        try:
            history = recall(self._target.paths, self._tally.fold, self._recent.fold)
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                pool, lost, name = runner.run(self._drive(source, journal, history, env))
            ended, reason, unanswered = _how(pool.reason), pool.reason, lost
        except BatchinferError as error:
            ended, reason = _how(error), error
            raise
        finally:
            seconds = time.monotonic() - began
            manifest = structs.replace(
                manifest,
                ended=ended,
                reason=None if reason is None else str(reason),
                updated_at=wiring.stamp(),
                elapsed_s=manifest.elapsed_s + seconds,
                possibly_rebilled=manifest.possibly_rebilled + unanswered,
            )
            if source.exhausted:
                manifest = takeover.read_through(self._target, manifest)
            on_disk = MERGING if ended == FINISHED else ended
            write(self._target.paths.manifest, structs.replace(manifest, ended=on_disk))
        for remark in takeover.remarks(self._names, self._tally, len(history.succeeded)):
            self._front.say(remark)
        return Ended(manifest, self._tally, reason, name, seconds)

    async def _drive(
        self, source: Input, journal: JournalWriter, history: History, env: Mapping[str, str]
    ) -> tuple[Pool, int, str]:
        config, sink = self._config, self._tally.fold
        plan = Plan(history.succeeded, history.failed, self._again)
        async with open_way(config, env) as way:
            self._warn(way.name)
            attempt, lane = wiring.attempt(
                config, way.wire, way.transport, self._tally.known_cost, sink
            )
            lane.gate.pacer.restore(self._recent.past, time.monotonic(), time.time())
            ahead = ReadAhead(chunks(source.read, config.intake.max_line))
            feed = Feed(ahead, self._opener(plan), self._counted, self._concurrency)
            scribe = Scribe(journal, sink)
            pool = Pool(feed, scribe, [lane])
            gauges = Gauges(
                self._tally, lambda: attempt.in_flight, self._guess(source), source.fraction
            )
            with signals(pool), shown(self._front.view(gauges)):
                await pool.run(self._grace)
            ahead.close()
            for remark in lane.gate.remarks:
                self._front.say(remark)
            return pool, attempt.unanswered + scribe.unsynced, way.name

    def _opener(self, plan: Plan) -> Callable[[int, bytes], Row | BadRow | None]:
        fold, recipe, names = self._tally.fold, self._recipe, self._names

        def open_row(number: int, line: bytes) -> Row | BadRow | None:
            if is_blank(line):
                return None
            self._rows += 1
            self._bytes += len(line) + 1
            row = parse(number, line, recipe)
            names.note(row.id)
            skip = plan.decide(row)
            if skip is None:
                return row
            fold(skip)
            return None

        return open_row

    def _guess(self, source: Input) -> Callable[[], int | None]:
        """Return a guess of all rows, by the mean length of those read so far."""

        def guess() -> int | None:
            if source.plain_size is None or not self._bytes:
                return None
            return max(self._rows, round(self._rows * source.plain_size / self._bytes))

        return guess

    def _counted(self) -> None:
        self._tally.fold(Counted(self._rows))

    def _warn(self, transport: str) -> None:
        if (warning := raise_file_limit(self._concurrency + 64)) is not None:
            self._front.say(warning)
        if transport.startswith("httpx") and self._concurrency > SLOW_ABOVE:
            self._front.say(
                f"{self._concurrency} in flight over the portable transport is slow;"
                " pyreqwest (the extra `fast`) sends several times as many"
            )


def _how(reason: BatchinferError | None) -> str:
    if reason is None:
        return FINISHED
    return "interrupted" if isinstance(reason, InterruptedRunError) else "partial"
