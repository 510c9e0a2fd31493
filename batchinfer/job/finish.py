"""After a run, or without one: results, summary, verification, and how it ended.

Owns: when results are written, which figures a summary is made of. Refuses to know: how they are
shown.
"""

import fcntl
import os
import time
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import structs

from batchinfer.errors import BatchinferError, Exit, NoInputError, UsageError
from batchinfer.job.run import Ended
from batchinfer.job.survey import input_lines, survey, weight
from batchinfer.job.takeover import RUNNING
from batchinfer.job.target import Target, own_prefix
from batchinfer.journal.manifest import Manifest, read, write
from batchinfer.report.results import MergeCounts, Proof, merge, verify
from batchinfer.report.shapes import Form
from batchinfer.report.summary import Outputs, RunFacts, Summary, summarise

LIGHT: Final = 256 * 1024 * 1024
"""Bytes up to which a stopped run is surveyed for exact figures before it says good-bye."""


def write_results(
    target: Target, max_line: int, form: Form = "results", to: Path | BinaryIO | None = None
) -> MergeCounts:
    """Merge the sidecars into results, in input order; default place: the job's results file.

    UsageError where they would replace the input or a sidecar.
    """
    paths = target.paths
    if isinstance(to, Path) and to.resolve() in target.precious:
        raise UsageError(
            f"{to} belongs to this job and cannot be made again; merge to another file"
        )
    lines = input_lines(target.again, max_line)
    return merge(lines, paths.success, paths.failure, to or paths.results, form)


def prove(target: Target, max_line: int) -> Proof:
    """Check sidecars and results against the input: one line a row, each its record's."""
    paths = target.paths
    lines = input_lines(target.again, max_line)
    return verify(lines, paths.success, paths.failure, paths.results)


def finish(target: Target, ended: Ended, max_line: int) -> Summary:
    """Write the results of a run that went through, and return its summary.

    Time and speed are this run's; all other figures are the whole job's.

    A run that was stopped leaves the results file as it was; its rows are counted by a survey
    where that is quick, and are unknown otherwise.
    """
    tally = ended.tally
    if ended.reason is None:
        if not (ended.repeated and target.paths.results.is_file()):
            write_results(target, max_line)
        write(target.paths.manifest, ended.manifest)
    elif not target.streamed and weight(target) <= LIGHT:
        tally.count_rows_as(survey(target, max_line))
    facts = structs.replace(
        _facts(target, ended.manifest, ended.tally.settled),
        elapsed_s=ended.seconds,
        transport=ended.transport,
    )
    return summarise(tally, facts)


def status(target: Target, max_line: int) -> Summary:
    """Return the summary of a job from its files alone, also while it runs."""
    manifest = read(target.paths.manifest)
    if manifest is None:
        raise NoInputError(
            f"there is no run of {target.input}: {target.paths.manifest} does not exist"
            " (was it started with another --output?)"
        )
    tally = survey(target, max_line)
    done = tally.succeeded + tally.failed
    facts = _facts(target, manifest, done)
    if manifest.ended == RUNNING:
        at_work = _locked(target)
        elapsed = manifest.elapsed_s + _since(manifest.started_at, target, at_work=at_work)
        ended = RUNNING if at_work else "killed"
        facts = structs.replace(facts, ended=ended, elapsed_s=elapsed)
    return summarise(tally, facts)


def _since(started_at: str, target: Target, *, at_work: bool) -> float:
    """Return the seconds of a run that wrote down no end: up to now, or to its last record."""
    last = target.paths.success
    until = time.time() if at_work or not last.exists() else last.stat().st_mtime
    return max(0.0, until - datetime.fromisoformat(started_at).timestamp())


def exit_code(summary: Summary, reason: BatchinferError | None) -> Exit:
    """Return how a run ends by the table; a signal is the caller's business."""
    if reason is not None:
        return reason.exit_code
    return Exit.SOME_FAILED if summary.rows.failed else Exit.OK


def _facts(target: Target, manifest: Manifest, settled: int) -> RunFacts:
    paths = target.paths
    return RunFacts(
        ended=manifest.ended,
        elapsed_s=manifest.elapsed_s,
        settled=settled,
        possibly_rebilled=manifest.possibly_rebilled,
        input=target.input,
        prefix=target.prefix if target.prefix != own_prefix(target.input) else None,
        output=Outputs(*map(_if_there, (paths.success, paths.failure, paths.results))),
        concurrency=manifest.concurrency,
    )


def _if_there(path: Path) -> str | None:
    return str(path) if path.exists() and path.stat().st_size else None


def _locked(target: Target) -> bool:
    """Whether a process is at work on the job; asks for a shared lock and gives it back at once."""
    try:
        fd = os.open(target.paths.success, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
