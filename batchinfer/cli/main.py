"""The program: runs the command line, and turns every ending into its exit code.

Owns: the one place where errors become text and codes. Refuses to know: what the commands do.
"""

import os
import signal
import sys
import traceback
from io import TextIOWrapper
from typing import Final, NoReturn, TextIO, cast

from batchinfer.cli.streams import Lenient
from batchinfer.errors import BatchinferError, Exit

_CTRL_C: Final = 128 + signal.SIGINT
_STDERR: Final = 2


def main() -> NoReturn:
    """Run `batchinfer`; never returns."""
    os.umask(0o077)
    _open_streams()
    code: int = Exit.BUG
    try:
        from batchinfer.cli.app import app
        from batchinfer.cli.options import complete

        # Not standalone, the library returns the code of typer.Exit; of Ctrl-C it makes 130.
        returned = app(complete(sys.argv[1:]), standalone_mode=False)
        code = returned if isinstance(returned, int) else Exit.OK
        if code == _CTRL_C:
            _die_of(signal.SIGINT)
    except BatchinferError as error:
        code = report(error)
    except KeyboardInterrupt:
        _die_of(signal.SIGINT)
    except BrokenPipeError:
        code = _no_reader()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else Exit.USAGE
        if isinstance(end.__context__, BrokenPipeError):
            code = _no_reader()
    except Exception as error:  # noqa: BLE001 (the last resort: a bug must end with its own code)
        code = _unexpected(error)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Exit with this code, whatever the interpreter thinks of streams that cannot be flushed."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _no_reader()
    sys.exit(code)


def _open_streams() -> None:
    """Make closed standard streams ones that swallow all: no sidecar may become descriptor 2."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    stderr = sys.stderr or os.fdopen(_STDERR, "w", encoding="utf-8")
    sys.stderr = cast("TextIO", Lenient(stderr))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _unexpected(error: Exception) -> int:
    """Show a usage error as the command line's library does; anything else is a bug."""
    show = getattr(error, "show", None)
    if callable(show):
        show(sys.stderr)
        return int(getattr(error, "exit_code", Exit.USAGE))
    if type(error).__name__ == "Abort":
        return Exit.USAGE
    frames = "".join(traceback.format_tb(error.__traceback__))
    # Where it broke, not what it held: the text of a foreign error may carry a key or a prompt.
    sys.stderr.write(
        f"{frames}batchinfer: a bug: {type(error).__name__}; what was answered is kept,"
        " running again is safe; please report the lines above\n"
    )
    return Exit.BUG


def report(error: BatchinferError) -> int:
    """Show an error on stderr and return its exit code; a signal is died of."""
    from batchinfer.cli.text import clean
    from batchinfer.errors import InterruptedRunError

    sys.stderr.write("".join(f"{clean(part, 2000)}\n" for part in _lines(error)))
    if isinstance(error, InterruptedRunError):
        _die_of(error.signum)
    return error.exit_code


def _lines(error: BatchinferError) -> list[str]:
    first, *rest = str(error).split("\n")
    return [f"batchinfer: {first}", *rest]


def _no_reader() -> int:
    """Whoever read our output has gone: nothing more to say, and no second error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK


def _die_of(signum: int) -> NoReturn:
    """End as the signal would have ended us, so that shells and cron see it."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    raise SystemExit(128 + signum)
