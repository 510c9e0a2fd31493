"""`batchinfer init`: a commented configuration to start from.

Owns: not overwriting one that is there. Refuses to know: what stands in it.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from batchinfer.cli.options import PresetOption


def init(
    path: Annotated[
        str, typer.Argument(metavar="[FILE]", help="- for stdout.")
    ] = "batchinfer.toml",
    preset: PresetOption = None,
) -> None:
    """Write a configuration file in which every field is explained."""
    from batchinfer.config.describe import init_text
    from batchinfer.errors import CannotCreateError

    text = init_text(preset)
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CannotCreateError(f"cannot create {path}: {error.strerror}") from error
    sys.stderr.write(f"wrote {path}; run: batchinfer run INPUT --config {path}\n")
