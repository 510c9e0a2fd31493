"""Taking over what an earlier run left: continue it, refuse it, or set it aside.

Owns: the comparison of fingerprints, the number of rows that a crash may make us pay again, the
manifest of a run that begins. Refuses to know: rows. The caller holds the lock.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from msgspec import structs

from batchinfer import __version__
from batchinfer.config.fingerprint import differences, fingerprint, public
from batchinfer.config.schema import Config
from batchinfer.dispatch.scribe import GROUP
from batchinfer.errors import FingerprintError, LockedError
from batchinfer.intake.plan import Names
from batchinfer.job.target import Target
from batchinfer.job.wiring import concurrency, stamp
from batchinfer.journal.manifest import Input, Manifest, Paths, read, write
from batchinfer.journal.replay import repair
from batchinfer.journal.writer import JournalWriter
from batchinfer.report.tally import Tally

RUNNING = "running"

PATIENCE: Final = 0.1
"""Seconds after which a lock is asked for a second and last time."""


@contextmanager
def open_journal(
    target: Target, say: Callable[[str], None], *, fresh: bool, mend: bool
) -> Iterator[JournalWriter]:
    """Lock and open the sidecars; `mend` damage, or set the earlier files aside, before that."""
    paths = target.paths
    before = read(paths.manifest)
    holder = before.holder if before else ""
    if mend:
        moved = repair(paths.success, paths.failure, holder)
        say(
            f"repaired: {moved.success} success and {moved.failure} failure records were damaged;"
            f" {moved.success} rows will be sent, and billed, again"
        )
    if fresh:
        with JournalWriter(paths.success, paths.failure, holder):
            set_aside(target, say)
    with _writer(paths, holder) as journal:
        if journal.healed:
            say(f"a record torn by a crash ({journal.healed} bytes) was removed")
        yield journal


def _writer(paths: Paths, holder: str) -> JournalWriter:
    """Open the sidecars; one more look, for `stats` asks for the lock too, for an instant."""
    try:
        return JournalWriter(paths.success, paths.failure, holder)
    except LockedError:
        time.sleep(PATIENCE)
        return JournalWriter(paths.success, paths.failure, holder)


def begin(
    target: Target, config: Config, say: Callable[[str], None]
) -> tuple[Manifest | None, Manifest]:
    """Write the manifest of a run that begins; return that of the last run and the new one.

    Raises FingerprintError where the sidecars belong to another configuration.
    """
    before = read(target.paths.manifest)
    now = stamp()
    manifest = Manifest(
        tool_version=__version__,
        run_id=uuid4().hex,
        input=identity(target),
        fingerprint=fingerprint(config),
        config=public(config),
        started_at=now,
        updated_at=now,
        ended=RUNNING,
        concurrency=concurrency(config),
        pid=os.getpid(),
        host=socket.gethostname(),
    )
    if before is None:
        _refuse_orphans(target)
    else:
        if _records(target):
            _refuse_another(target, before, manifest)
        manifest = structs.replace(
            manifest,
            elapsed_s=before.elapsed_s,
            possibly_rebilled=before.possibly_rebilled + _crashed(before, say),
        )
    write(target.paths.manifest, manifest)
    return before, manifest


def remarks(names: Names, tally: Tally, left: int) -> Iterator[str]:
    """Yield what is odd about the rows; `left`: successes that no row has asked for."""
    if names.repeats:
        yield (
            f"the id {names.repeated!r} stands on several rows (ids repeated: {names.repeats});"
            " each row has its own answer all the same"
        )
    if tally.total is not None and left:
        yield (
            f"{left} answers of earlier runs belong to rows that the input no longer has;"
            " they are kept and left out of the results"
        )


def identity(target: Target) -> Input:
    """Return what the input looks like now, so that a change is noticed."""
    path = str(Path(target.again).resolve())
    if target.streamed:
        return Input(path)
    status = Path(target.input).stat()
    return Input(path, status.st_size, status.st_mtime_ns)


def read_through(target: Target, manifest: Manifest) -> Manifest:
    """Return the manifest of a run that has read its input to the end.

    Only then is the copy of a stream known to be whole, and has a size.
    """
    if not target.streamed:
        return manifest
    size = Path(target.again).stat().st_size
    return structs.replace(manifest, input=structs.replace(manifest.input, size=size))


def set_aside(target: Target, say: Callable[[str], None]) -> None:
    """Rename the files of an earlier run (`--fresh`); nothing is deleted."""
    suffix = f".old-{stamp().replace(':', '').replace('-', '').replace('.', '')}"
    paths = target.paths
    moved = [p for p in (paths.success, paths.failure, paths.manifest, paths.results) if p.exists()]
    for path in moved:
        path.rename(path.with_name(path.name + suffix))
    if moved:
        say(f"the earlier run's files are kept as {moved[0].name}{suffix} and the like")


def _refuse_orphans(target: Target) -> None:
    for path in _records(target):
        raise FingerprintError(
            f"{path} holds answers, but {target.paths.manifest.name}, which says how they were"
            " asked for, is missing; put it back, choose another --output, or say --fresh"
        )


def _records(target: Target) -> list[Path]:
    """Return the sidecars that hold anything: without any, another configuration does no harm."""
    sidecars = (target.paths.success, target.paths.failure)
    return [path for path in sidecars if path.exists() and path.stat().st_size]


def _refuse_another(target: Target, before: Manifest, now: Manifest) -> None:
    if before.fingerprint == now.fingerprint:
        return
    changed = differences(before.config, now.config)
    what = "; ".join(changed) if changed else "the configuration"
    raise FingerprintError(
        f"{target.paths.manifest} is of a run with another configuration ({what}); nothing was"
        " sent. Use the same configuration, choose another --output, or start over with --fresh"
        " (the old files are kept)"
    )


def _crashed(before: Manifest, say: Callable[[str], None]) -> int:
    """Return how many answers a crash may have lost; the last run is dead, for we hold its lock."""
    if before.ended != RUNNING:
        return 0
    bound = (before.concurrency or 0) + GROUP
    say(
        f"the last run was killed: at most {bound} rows that were under way then"
        " may be sent, and billed, a second time"
    )
    return bound
