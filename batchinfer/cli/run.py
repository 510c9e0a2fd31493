"""`batchinfer run` and `batchinfer resume`.

Owns: flags to a configuration, running it, showing how it ended. Refuses to know: how it runs.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchinfer.cli.options import (
    ConfigOption,
    GraceOption,
    InputArgument,
    JsonOption,
    MaybeInput,
    OutputOption,
    PresetOption,
    QuietOption,
    RepairOption,
    RetryFailedOption,
    SetOption,
    classes,
    number_or_auto,
    overrides,
)

if TYPE_CHECKING:
    from batchinfer.config.schema import Config
    from batchinfer.job.run import Options
    from batchinfer.job.target import Target


def run(
    path: InputArgument,
    config: ConfigOption = None,
    preset: PresetOption = None,
    output: OutputOption = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model to ask.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The endpoint.")] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="openai-chat, openai-embeddings, …")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="NAME", help="Variable with the key.")
    ] = None,
    transport: Annotated[
        str | None, typer.Option("--transport", help="auto, pyreqwest or httpx.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Template, e.g. 'Classify: {{ text }}'.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="System template.")] = None,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", "-n", metavar="N|auto", help="In flight at most.")
    ] = None,
    rpm: Annotated[float | None, typer.Option("--rpm", help="Requests a minute at most.")] = None,
    tpm: Annotated[float | None, typer.Option("--tpm", help="Tokens a minute at most.")] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", metavar="USD", help="Stop when this is spent.")
    ] = None,
    setting: SetOption = None,
    retry_failed: RetryFailedOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over; the earlier run's files are kept aside.")
    ] = False,
    repair: RepairOption = False,
    grace: GraceOption = 25.0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a job, or continue it: only rows that have no answer yet are sent.

    batchinfer run reviews.jsonl --preset vllm --model my-model --prompt 'Classify: {{ text }}'
    """
    from batchinfer.config.load import load
    from batchinfer.job.run import Options
    from batchinfer.job.target import target_of

    flags: dict[str, object] = {
        "model": model,
        "base_url": base_url,
        "provider": provider,
        "api_key_env": api_key_env,
        "transport": transport,
        "prompt": prompt,
        "system": system,
        "concurrency": number_or_auto(concurrency),
        "rpm": rpm,
        "tpm": tpm,
        "max_cost": max_cost,
    }
    loaded = load(config, setting or [], overrides(flags), os.environ, _read, preset)
    options = Options(retry=classes(retry_failed), fresh=fresh, repair=repair, grace=grace)
    target = target_of(path, output or loaded.output.prefix)
    raise typer.Exit(_execute(target, loaded, options, quiet=quiet, as_json=as_json))


def resume(
    path: MaybeInput = None,
    config: ConfigOption = None,
    output: OutputOption = None,
    setting: SetOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="All unfinished jobs of this folder.")
    ] = False,
    retry_failed: RetryFailedOption = None,
    repair: RepairOption = False,
    grace: GraceOption = 25.0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a job with the configuration it was started with.

    Without INPUT: the one unfinished job of this folder.
    """
    from batchinfer.cli.main import report
    from batchinfer.config.load import load
    from batchinfer.errors import BatchinferError, InterruptedRunError
    from batchinfer.job.resume import stored_config, targets
    from batchinfer.job.run import Options

    options = Options(retry=classes(retry_failed), repair=repair, grace=grace)
    code = 0
    if config is not None and output is None:
        output = load(config, setting or [], {}, os.environ, _read).output.prefix
    for target in targets(path, output, Path.cwd(), every=every):
        try:
            loaded = stored_config(target, config, setting or [], os.environ, _read)
            code = max(code, _execute(target, loaded, options, quiet=quiet, as_json=as_json))
        except BatchinferError as error:
            if not every or isinstance(error, InterruptedRunError):
                raise
            code = max(code, report(error))
    raise typer.Exit(code)


def _execute(
    target: "Target", config: "Config", options: "Options", *, quiet: bool, as_json: bool
) -> int:
    from batchinfer.cli.progress import choose
    from batchinfer.cli.text import clean
    from batchinfer.job.finish import exit_code, finish
    from batchinfer.job.run import Frontend
    from batchinfer.job.run import run as run_job

    say: Callable[[str], None] = (
        (lambda _: None)
        if quiet
        else (lambda text: print(f"batchinfer: {clean(text, 2000)}", file=sys.stderr))  # noqa: T201
    )
    front = Frontend(say, lambda gauges: choose(gauges, sys.stderr, os.environ, quiet=quiet))
    ended = run_job(target, config, options, os.environ, front)
    summary = finish(target, ended, config.intake.max_line)
    code = exit_code(summary, ended.reason)
    show(summary, as_json=as_json, quiet=quiet and not code)
    if ended.reason is not None:
        raise ended.reason
    return code


def show(summary: object, *, as_json: bool, quiet: bool) -> None:
    """Print a summary: JSON on stdout for programs, lines on stderr for people."""
    import msgspec

    from batchinfer.cli.text import summary_lines

    if as_json:
        # Who does not listen to the end still gets the run's own exit code.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
            sys.stdout.buffer.flush()
    elif not quiet:
        sys.stderr.write("\n".join(summary_lines(summary)) + "\n")  # type: ignore[arg-type]


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
