"""The one error family and the one exit-code table.

Owns: every way the program can end other than well, each with its exit code.
Refuses to know: where an error is raised or how it is shown. An error's text says what broke,
where, and what to do; it is built from our own words and the user's own paths, never from
`str()` of a foreign exception that may carry a key.
"""

from enum import IntEnum
from typing import ClassVar, Final


class Exit(IntEnum):
    """Exit codes (sysexits.h where it has one). Death by signal (130/143) is not listed here."""

    OK = 0
    USAGE = 2
    SOME_FAILED = 3
    AMBIGUOUS_TARGET = 64
    DAMAGED = 65
    NO_INPUT = 66
    UNREACHABLE = 69
    BUG = 70
    CANNOT_CREATE = 73
    STORAGE = 74
    INCOMPLETE = 75
    KEY_REFUSED = 77
    CONFIG = 78


EXIT_MEANING: Final[dict[Exit, str]] = {
    Exit.OK: "all rows succeeded, or nothing to do",
    Exit.USAGE: "wrong use of the command line",
    Exit.SOME_FAILED: "finished, some rows failed",
    Exit.AMBIGUOUS_TARGET: "several unfinished runs, or none, match",
    Exit.DAMAGED: "damaged data in a sidecar",
    Exit.NO_INPUT: "the input cannot be read",
    Exit.UNREACHABLE: "the endpoint was never reachable",
    Exit.BUG: "a bug in batchinfer",
    Exit.CANNOT_CREATE: "an output cannot be created",
    Exit.STORAGE: "a write or sync failed; running again is safe",
    Exit.INCOMPLETE: "incomplete but resumable: lock, outage, quota, budget",
    Exit.KEY_REFUSED: "the API key was refused",
    Exit.CONFIG: "the configuration is wrong, or not that of the run",
}
"""The table that README and `--help` print."""


class BatchinferError(Exception):
    """The base of every error that batchinfer raises on purpose."""

    exit_code: ClassVar[Exit] = Exit.BUG

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__))


class UsageError(BatchinferError):
    """The command line does not make sense."""

    exit_code = Exit.USAGE


class AmbiguousTargetError(BatchinferError):
    """More than one run, or none, could be meant."""

    exit_code = Exit.AMBIGUOUS_TARGET


class DamagedJournalError(BatchinferError):
    """A sidecar holds damaged records before its last line."""

    exit_code = Exit.DAMAGED


class NoInputError(BatchinferError):
    """The input file cannot be read."""

    exit_code = Exit.NO_INPUT


class UnreachableError(BatchinferError):
    """The endpoint could never be reached."""

    exit_code = Exit.UNREACHABLE


class CannotCreateError(BatchinferError):
    """An output file cannot be created."""

    exit_code = Exit.CANNOT_CREATE


class StorageError(BatchinferError):
    """A write or a sync of a sidecar failed."""

    exit_code = Exit.STORAGE


class IncompleteError(BatchinferError):
    """The run stopped early and can be continued."""

    exit_code = Exit.INCOMPLETE


class LockedError(IncompleteError):
    """Another process is working on this job."""


class OutageError(IncompleteError):
    """The endpoint was lost and did not come back in time."""


class QuotaError(IncompleteError):
    """The account's quota or balance is used up."""


class BudgetError(IncompleteError):
    """The budget of this job is spent."""


class KeyRefusedError(BatchinferError):
    """The endpoint refused the API key."""

    exit_code = Exit.KEY_REFUSED


class ConfigError(BatchinferError):
    """The configuration is wrong."""

    exit_code = Exit.CONFIG


class FingerprintError(ConfigError):
    """The sidecars belong to another configuration."""


class InterruptedRunError(IncompleteError):
    """The run was stopped by a signal."""

    def __init__(self, signum: int) -> None:
        super().__init__("interrupted; what was answered is kept, running again continues")
        self.signum = signum
