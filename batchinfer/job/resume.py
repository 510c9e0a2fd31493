"""Continuing a job from what it left: which one, and with which configuration.

Owns: the configuration that a manifest keeps, made whole again. Refuses to know: running.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from batchinfer.config.load import load
from batchinfer.config.schema import Config, Intake
from batchinfer.errors import AmbiguousTargetError, NoInputError, UsageError
from batchinfer.intake.source import is_stream
from batchinfer.job.target import (
    COPY,
    MANIFEST,
    Target,
    manifests,
    target_of,
    the_unfinished,
    unfinished,
)
from batchinfer.journal.manifest import Manifest, read


def targets(path: str | None, output: str | None, folder: Path, *, every: bool) -> list[Target]:
    """Return the jobs to continue: the one named, the one unfinished, or all unfinished.

    Raises NoInputError for a stream that was read in part only.
    """
    if path is not None or output is not None:
        found = [any_target(path, output, folder)]
    elif every:
        found = [_target(place, manifest) for place, manifest in unfinished(folder)]
    else:
        found = [_target(*the_unfinished(folder))]
    for target in found:
        _require_whole(target)
    return found


def _require_whole(target: Target) -> None:
    manifest = read(target.paths.manifest)
    is_copy = Path(target.input).name == Path(f"{target.prefix}{COPY}").name
    if manifest is not None and manifest.input.size is None and is_copy:
        raise NoInputError(
            f"{target.input} is the copy of a stream that was not read to its end; send the whole"
            f" stream again: batchinfer run - --output {target.prefix} (what was answered is kept)"
        )


def any_target(path: str | None, output: str | None, folder: Path) -> Target:
    """Return the job of an input, of a prefix, or the folder's only one."""
    if path is not None and path.endswith(MANIFEST):
        output = path.removesuffix(MANIFEST)
    elif path is not None:
        return _of_input(path, output, folder)
    if output is not None:
        manifest = read(Path(output + MANIFEST))
        if manifest is None:
            raise NoInputError(f"there is no run at {output}: {output}{MANIFEST} does not exist")
        return _target(Path(output + MANIFEST), manifest)
    found = manifests(folder)
    if len(found) == 1:
        return _target(*found[0])
    raise UsageError(
        "name the input file of the job"
        if not found
        else f"several jobs here, name one: {', '.join(m.input.path for _, m in found)}"
    )


def _of_input(path: str, output: str | None, folder: Path) -> Target:
    """Return the job of an input: beside it, or wherever in the folder its outputs were put."""
    if output is None and not is_stream(path):
        beside = target_of(path, None)
        if beside.paths.manifest.exists():
            return beside
        name = str(Path(path).resolve())
        found = [job for job in manifests(folder) if job[1].input.path == name]
        if len(found) == 1:
            return target_of(path, _prefix(found[0][0]))
        if found:
            places = ", ".join(_prefix(place) for place, _ in found)
            raise AmbiguousTargetError(f"{path} has several runs; say --output, one of: {places}")
    target = target_of(path, output)
    if not target.paths.manifest.exists():
        raise NoInputError(
            f"there is no run of {path}: {target.paths.manifest} does not exist; start it with"
            f" batchinfer run {path}, or say where its outputs are: --output PREFIX"
        )
    return target


def _prefix(manifest: Path) -> str:
    return str(manifest)[: -len(MANIFEST)]


def stored_config(
    target: Target,
    config: str | None,
    sets: Sequence[str],
    env: Mapping[str, str],
    read_file: Callable[[str], bytes],
) -> Config:
    """Return the configuration a job was started with, or the one of `--config`, with `sets`."""
    if config is not None:
        return load(config, sets, {}, env, read_file)
    manifest = read(target.paths.manifest)
    stored = {} if manifest is None else manifest.config
    return load(None, sets, {}, env, read_file, base=stored)


def max_line(target: Target) -> int:
    """Return the longest line that the job reads, in bytes."""
    manifest = read(target.paths.manifest)
    kept = manifest.config.get("intake") if manifest else None
    value = kept.get("max_line") if isinstance(kept, dict) else None
    return value if isinstance(value, int) else Intake().max_line


def _target(found: Path, manifest: Manifest) -> Target:
    return target_of(manifest.input.path, _prefix(found))
