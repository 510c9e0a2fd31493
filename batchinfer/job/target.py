"""Which job is meant: the input, its sidecars, and unfinished jobs in a folder.

Owns: default names of files, finding a job again. Refuses to know: what is in the files.
"""

import resource
from pathlib import Path
from typing import Final

from msgspec import Struct

from batchinfer.errors import AmbiguousTargetError, CannotCreateError, UsageError
from batchinfer.intake.source import STDIN, is_stream
from batchinfer.journal.manifest import Manifest, Paths, paths
from batchinfer.journal.manifest import read as read_manifest

_SUFFIXES: Final = (".gz", ".zst", ".zstd")
_FORMATS: Final = (".jsonl", ".ndjson", ".json")
MANIFEST: Final = ".run.json"
"""How the name of a manifest ends."""


COPY: Final = ".input.jsonl"
"""How the name of a stream's copy ends."""


class Target(Struct, frozen=True):
    """A job's files. `again`: where the input can be read a second time."""

    input: str
    prefix: str
    again: str
    paths: Paths

    @property
    def streamed(self) -> bool:
        """Whether the input is copied while it is read, for it comes only once."""
        return self.again != self.input

    @property
    def precious(self) -> frozenset[Path]:
        """The job's files that nothing can make again: all but the results."""
        sidecars = (self.paths.success, self.paths.failure, self.paths.manifest)
        return frozenset(path.resolve() for path in (Path(self.again), *sidecars))


def target_of(path: str, prefix: str | None) -> Target:
    """Return the job of an input; UsageError: a stream without a prefix, an output over it."""
    streamed = is_stream(path)
    if streamed and not prefix:
        what = "standard input" if path == STDIN else path
        raise UsageError(f"{what} has no name to call the outputs after; give --output PREFIX")
    prefix = prefix or own_prefix(path)
    _require_text(path, prefix)
    again = f"{prefix}{COPY}" if streamed else path
    made = paths(prefix)
    for place in (made.success, made.failure, made.manifest, made.results):
        if place.resolve() == Path(path).resolve():
            raise UsageError(f"{path} would be an output of itself; choose another --output")
    return Target(path, prefix, again, made)


def _require_text(*names: str) -> None:
    """Refuse names that the manifest, which is JSON, could not hold."""
    for name in names:
        try:
            str(Path(name).resolve()).encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name}: the path is not valid UTF-8; rename it") from None


def make_folder(target: Target) -> None:
    """Create the folder of the outputs; CannotCreateError when that fails."""
    folder = Path(target.prefix).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotCreateError(f"cannot create the folder {folder}: {error.strerror}") from error


def own_prefix(path: str) -> str:
    """Return the prefix named after an input: its path without .jsonl, .jsonl.gz and the like."""
    stem = path
    for endings in (_SUFFIXES, _FORMATS):
        for ending in endings:
            if stem.endswith(ending) and len(Path(stem).name) > len(ending):
                stem = stem.removesuffix(ending)
                break
    return stem


def manifests(folder: Path) -> list[tuple[Path, Manifest]]:
    """Return the jobs of a folder and the folders in it, by the names of their manifests."""
    places = sorted(folder.glob(f"*{MANIFEST}")) + sorted(folder.glob(f"*/*{MANIFEST}"))
    found = ((path, read_manifest(path)) for path in places)
    return [(path, manifest) for path, manifest in found if manifest is not None]


def unfinished(folder: Path) -> list[tuple[Path, Manifest]]:
    """Return the jobs in a folder that did not finish."""
    return [job for job in manifests(folder) if job[1].ended != "finished"]


def the_unfinished(folder: Path) -> tuple[Path, Manifest]:
    """Return the one unfinished job; AmbiguousTargetError (exit 64) lists several, or says none."""
    jobs = unfinished(folder)
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        raise AmbiguousTargetError(
            f"no unfinished run in {folder.resolve()}; name the input: batchinfer resume INPUT"
        )
    names = "".join(f"\n  {manifest.input.path}  ({path.name})" for path, manifest in jobs)
    raise AmbiguousTargetError(f"several unfinished runs; name the input, or say --all:{names}")


def raise_file_limit(wanted: int) -> str | None:
    """Let the process open `wanted` files; return a warning when the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return None
    best = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
    if best < wanted:
        return f"only {best} files may be open here; fewer than the concurrency needs (ulimit -n)"
    return None
