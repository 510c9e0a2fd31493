"""`batchinfer stats`, `merge` and `verify`: looking at a job without sending anything.

Owns: their flags and what they print. Refuses to know: how figures and results come about.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchinfer.cli.options import JsonOption, MaybeInput, OutputOption


class Format(StrEnum):
    """Shapes of a merged line."""

    RESULTS = "results"
    FLAT = "flat"
    OPENAI_BATCH = "openai-batch"


def stats(
    path: MaybeInput = None, output: OutputOption = None, as_json: JsonOption = False
) -> None:
    """Show what a job has done, also while it runs; reads its files, changes nothing."""
    from batchinfer.cli.run import show
    from batchinfer.job.finish import status
    from batchinfer.job.resume import any_target, max_line

    target = any_target(path, output, Path.cwd())
    summary = status(target, max_line(target))
    if as_json:
        show(summary, as_json=True, quiet=False)
        return
    from batchinfer.cli.text import summary_lines

    sys.stdout.write("\n".join(summary_lines(summary)) + "\n")


def merge(
    path: MaybeInput = None,
    output: OutputOption = None,
    form: Annotated[Format, typer.Option("--format", help="Shape of a line.")] = Format.RESULTS,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="Where to; - for stdout.")
    ] = None,
) -> None:
    """Write one line for each input line, in input order, from the sidecars as they are."""
    from batchinfer.job.finish import write_results
    from batchinfer.job.resume import any_target, max_line

    target = any_target(path, output, Path.cwd())
    place = sys.stdout.buffer if to == "-" else Path(to) if to else None
    counts = write_results(target, max_line(target), form.value, place)
    where = "stdout" if to == "-" else to or str(target.paths.results)
    sys.stderr.write(
        f"{counts.rows:,} rows to {where}: {counts.succeeded:,} succeeded,"
        f" {counts.failed:,} failed, {counts.pending:,} pending\n"
    )


def verify(path: MaybeInput = None, output: OutputOption = None) -> None:
    """Prove that sidecars and results say the same: one line a row, each its record's."""
    from batchinfer.cli.text import clean
    from batchinfer.errors import DamagedJournalError
    from batchinfer.job.finish import prove
    from batchinfer.job.resume import any_target, max_line

    target = any_target(path, output, Path.cwd())
    proof = prove(target, max_line(target))
    counts = proof.counts
    sys.stdout.write(
        f"{counts.rows:,} rows = {counts.succeeded:,} succeeded + {counts.failed:,} failed"
        f" + {counts.pending:,} pending; "
        f"{'results checked' if proof.checked else 'no results file yet'}\n"
    )
    if proof.problems:
        listed = "".join(f"\n  {clean(problem, 500)}" for problem in proof.problems)
        raise DamagedJournalError(f"the results are not what the sidecars say:{listed}")
