"""The command line: one typer app, its commands registered from their own modules.

Owns: the program's name, `--version`, the order of the commands. Refuses to know: any of them.
"""

from typing import Annotated

import typer

from batchinfer import __version__
from batchinfer.cli import init, inspect, run, simulate
from batchinfer.errors import EXIT_MEANING

_EXITS = "\n\n".join(f"{code.value}  {meaning}" for code, meaning in EXIT_MEANING.items())

app = typer.Typer(
    name="batchinfer",
    help="Run an LLM or embedding job over a JSONL file: full, exact, frugal, plain.",
    epilog=f"Exit codes:\n\n{_EXITS}\n\nBy signal: 130 (Ctrl-C), 143 (SIGTERM).",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 (a typer callback)
    if wanted:
        typer.echo(f"batchinfer {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Run an LLM or embedding job over a JSONL file: full, exact, frugal, plain."""


app.command()(run.run)
app.command()(run.resume)
app.command()(inspect.stats)
app.command()(inspect.merge)
app.command()(inspect.verify)
app.command()(simulate.simulate)
app.command()(init.init)
