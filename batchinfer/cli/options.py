"""The options that commands share, and what becomes of them.

Owns: names and help texts of the options, from flags to the loader's arguments. Refuses to know:
what a configuration means.
"""

from typing import Annotated, Final

import typer

InputArgument = Annotated[
    str, typer.Argument(metavar="INPUT", help="JSONL file (.gz and .zst too), or - for stdin.")
]
MaybeInput = Annotated[
    str | None, typer.Argument(metavar="[INPUT]", help="The job's input file.", show_default=False)
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML configuration.")
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Known endpoint: vllm, ollama, openai, demo, …"),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="PREFIX", help="Where outputs go: PREFIX.results.jsonl…"
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Any configuration field, e.g. limits.rpm=500."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on stdout.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing unless something goes wrong.")
]
RetryFailedOption = Annotated[
    str | None,
    typer.Option(
        "--retry-failed",
        metavar="[=CLASS,…]",
        help="Send failed rows again: all, or only those of the classes named."
        " Without it, those that time may cure (timeout, server_error, …).",
    ),
]
GraceOption = Annotated[
    float, typer.Option("--grace", min=0, metavar="SECONDS", help="How long a stop may drain.")
]
RepairOption = Annotated[
    bool,
    typer.Option("--repair", help="Set damaged sidecar records aside and send their rows again."),
]

FLAGS: Final = {
    "provider": "endpoint.provider",
    "base_url": "endpoint.base_url",
    "model": "endpoint.model",
    "api_key_env": "endpoint.api_key_env",
    "transport": "endpoint.transport",
    "system": "request.system",
    "prompt": "request.prompt",
    "concurrency": "limits.concurrency",
    "rpm": "limits.rpm",
    "tpm": "limits.tpm",
    "max_cost": "budget.max_cost",
}
"""Flag → the configuration field that it sets."""

ALL_CLASSES: Final = "all"


def overrides(flags: dict[str, object]) -> dict[str, object]:
    """Return the fields that flags set, by dotted path; a flag not given (None) sets nothing."""
    return {FLAGS[name]: value for name, value in flags.items() if value is not None}


def number_or_auto(text: str | None) -> int | str | None:
    """Return a concurrency as the configuration wants it; what is no number is its to refuse."""
    return int(text) if text is not None and text.isdecimal() else text


def classes(text: str | None) -> list[str] | None:
    """Return the classes named by --retry-failed: None: not given, []: all."""
    if text is None:
        return None
    return [] if text == ALL_CLASSES else text.split(",")


def complete(arguments: list[str]) -> list[str]:
    """Give a bare --retry-failed its value: the option may stand alone, before an argument."""
    return [f"{a}={ALL_CLASSES}" if a == "--retry-failed" else a for a in arguments]
