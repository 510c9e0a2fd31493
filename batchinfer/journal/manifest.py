"""The manifest of a job: what was run on what, how far it came, how it ended.

Owns: the names of the files beside the input, the manifest's shape, reading and replacing it.
Refuses to know: what makes up a fingerprint, or when a run counts as finished.
"""

from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json

from batchinfer.errors import DamagedJournalError
from batchinfer.journal.files import replace_file, storage

VERSION: Final = 1


class Paths(Struct, frozen=True):
    """The files of one job."""

    success: Path
    failure: Path
    manifest: Path
    results: Path


def paths(prefix: str) -> Paths:
    """Return the files of the job whose outputs begin with `prefix`."""
    return Paths(
        success=Path(f"{prefix}.success.jsonl"),
        failure=Path(f"{prefix}.failure.jsonl"),
        manifest=Path(f"{prefix}.run.json"),
        results=Path(f"{prefix}.results.jsonl"),
    )


class Input(Struct, frozen=True):
    """The input as it was: bytes and nanoseconds since 1970; None for standard input."""

    path: str
    size: int | None = None
    mtime_ns: int | None = None


class Rows(Struct, frozen=True):
    """Rows by state; None where not known."""

    total: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    pending: int | None = None
    invalid: int | None = None


class Chunk(Struct, frozen=True, array_like=True):
    """A block of the input: where it begins and how long it is, in bytes, and how many rows."""

    offset: int
    length: int
    rows: int


class Sidecars(Struct, frozen=True):
    """Bytes acknowledged in each sidecar when the manifest was written."""

    success: int = 0
    failure: int = 0


class Manifest(Struct, frozen=True, kw_only=True):
    """A job's manifest.

    `config` holds no secret. Times are RFC 3339 UTC, `elapsed_s` seconds. `ended` is `running`
    until the run ends, then how (`finished`, `partial`, `interrupted`, ...), with `reason` as a
    sentence. `possibly_rebilled` adds up over all runs of the job.
    """

    v: int = VERSION
    tool_version: str
    run_id: str
    input: Input
    fingerprint: str
    config: dict[str, object]
    started_at: str
    updated_at: str
    ended: str
    reason: str | None = None
    concurrency: int | None = None
    possibly_rebilled: int = 0
    rows: Rows = Rows()
    elapsed_s: float = 0.0
    chunks: tuple[Chunk, ...] = ()
    sidecars: Sidecars = Sidecars()
    pid: int
    host: str

    @property
    def holder(self) -> str:
        """Who wrote it, for the message of a lock."""
        return f"process {self.pid} on {self.host}, started {self.started_at}"


class _Header(Struct, frozen=True):
    v: int


def read(path: Path) -> Manifest | None:
    """Return the manifest, or None if there is none.

    Raises DamagedJournalError if it cannot be understood, StorageError if it cannot be read.
    """
    with storage(path, "read"):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        if json.decode(text, type=_Header).v > VERSION:
            raise DamagedJournalError(f"{path}: was written by a newer batchinfer; update it")
        return json.decode(text, type=Manifest)
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DamagedJournalError(f"{path}: is not a manifest of batchinfer") from error


def write(path: Path, manifest: Manifest) -> None:
    """Replace the manifest whole. Raises CannotCreateError, StorageError, LockedError."""
    replace_file(path, [json.encode(manifest), b"\n"])
