import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
import typer

from batchinfer import errors
from batchinfer.cli import app as command_line
from batchinfer.cli import main as program
from batchinfer.errors import EXIT_MEANING, BatchinferError, Exit, InterruptedRunError

LAZY = ("httpx", "pyreqwest", "rich", "orjson", "tenacity", "asyncio", "minijinja", "uvloop")
PREPARED = """
import sys
sys.argv = {argv!r}
import batchinfer.cli.app
def app(*_, **__): {body}
if {body!r} != "pass": batchinfer.cli.app.app = app
from batchinfer.cli.main import main
try:
    main()
finally:
    sys.stderr.write("loaded:" + ",".join(m for m in {lazy!r} if m in sys.modules))
"""


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The program sets it for its process, which is not this one."""
    kept = os.umask(0)
    os.umask(kept)
    yield
    os.umask(kept)


Ending = Callable[..., object]


def raising(error: BaseException) -> Ending:
    def app(*_: object, **__: object) -> NoReturn:
        raise error

    return app


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ending], int]:
    def run(app: Ending) -> int:
        monkeypatch.setattr(command_line, "app", app)
        monkeypatch.setattr(sys, "argv", ["batchinfer"])
        with pytest.raises(SystemExit) as ended:
            program.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return run


def in_a_process(argv: list[str], body: str = "pass") -> subprocess.CompletedProcess[str]:
    code = PREPARED.format(argv=["batchinfer", *argv], body=body, lazy=LAZY)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


FAMILY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, BatchinferError)
    and kind is not InterruptedRunError
]


@pytest.mark.parametrize("kind", FAMILY)
def test_an_error_of_the_family_is_one_line_and_its_own_code(
    kind: type[BatchinferError],
    end: Callable[[Ending], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = end(raising(kind("it is like this")))

    assert code == kind.exit_code
    assert Exit(code) in EXIT_MEANING
    assert capsys.readouterr() == ("", "batchinfer: it is like this\n")


def test_lines_of_an_error_stay_lines_and_cannot_steer_the_terminal(
    end: Callable[[Ending], int], capsys: pytest.CaptureFixture[str]
) -> None:
    end(raising(BatchinferError("two:\n  a\x1b[31m\x07b")))

    err = capsys.readouterr().err
    assert err.startswith("batchinfer: two:\n  a")
    assert "\x1b" not in err
    assert "\x07" not in err


@pytest.mark.parametrize(
    ("returned", "code"), [(None, 0), (0, 0), (3, 3), (Exit.SOME_FAILED, 3), ("text", 0)]
)
def test_what_a_command_returns_is_the_code(
    end: Callable[[Ending], int], returned: object, code: int
) -> None:
    assert end(lambda *_, **__: returned) == code


@pytest.mark.parametrize(
    ("given", "code"), [(SystemExit(4), 4), (SystemExit("text"), 2), (SystemExit(), 2)]
)
def test_a_system_exit_keeps_its_code(
    end: Callable[[Ending], int], given: SystemExit, code: int
) -> None:
    assert end(raising(given)) == code


def test_a_bug_ends_with_its_own_code_and_without_the_text_of_the_error(
    end: Callable[[Ending], int], capsys: pytest.CaptureFixture[str]
) -> None:
    code = end(raising(KeyError("Authorization: Bearer sk-secret")))

    err = capsys.readouterr().err
    assert code == Exit.BUG
    assert "sk-secret" not in err
    assert "a bug: KeyError" in err
    assert "test_cli_main.py" in err


def test_a_wrong_command_line_is_shown_as_such(
    end: Callable[[Ending], int], capsys: pytest.CaptureFixture[str]
) -> None:
    code = end(raising(typer.BadParameter("--rpm must be a number")))

    assert code == Exit.USAGE
    assert "--rpm must be a number" in capsys.readouterr().err


def test_an_abort_is_a_matter_of_use(end: Callable[[Ending], int]) -> None:
    assert end(raising(typer.Abort())) == Exit.USAGE


@pytest.mark.parametrize(
    ("app", "signum"),
    [
        (raising(InterruptedRunError(signal.SIGTERM)), signal.SIGTERM),
        (raising(InterruptedRunError(signal.SIGINT)), signal.SIGINT),
        (raising(KeyboardInterrupt()), signal.SIGINT),
        (lambda *_, **__: 130, signal.SIGINT),
    ],
)
def test_a_signal_ends_the_program_as_that_signal(
    app: Ending,
    signum: int,
    end: Callable[[Ending], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[int, int]] = []
    default: list[tuple[int, object]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(signal, "signal", lambda number, what: default.append((number, what)))

    assert end(app) == 128 + signum
    assert sent == [(os.getpid(), signum)]
    assert default == [(signum, signal.SIG_DFL)]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_shell_sees_the_signal(signum: signal.Signals) -> None:
    body = f"from batchinfer.errors import InterruptedRunError as E; raise E({int(signum)})"

    ended = in_a_process([], body)

    assert ended.returncode == -signum
    assert "running again continues" in ended.stderr


@pytest.mark.parametrize(
    "body",
    [
        "raise BrokenPipeError",
        "\n  try: raise BrokenPipeError\n  except BrokenPipeError: sys.exit(1)",
    ],
)
def test_a_reader_that_has_gone_is_no_error(body: str) -> None:
    ended = in_a_process([], body)

    assert ended.returncode == 0
    assert "Error" not in ended.stderr
    assert "bug" not in ended.stderr


def test_files_are_made_for_their_owner_alone(end: Callable[[Ending], int]) -> None:
    seen: list[int] = []

    def app(*_: object, **__: object) -> None:
        seen.append(os.umask(0o077))

    end(app)

    assert seen == [0o077]


def test_the_arguments_are_completed_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(command_line, "app", lambda given, **_: seen.append(given))
    monkeypatch.setattr(sys, "argv", ["batchinfer", "run", "x", "--retry-failed"])

    with pytest.raises(SystemExit):
        program.main()

    assert seen == [["run", "x", "--retry-failed=all"]]


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["--version"], []])
def test_help_loads_nothing_that_only_a_run_needs(argv: list[str]) -> None:
    ended = in_a_process(argv)

    assert ended.stderr.endswith("loaded:")
    assert ended.returncode in {0, 2}
    assert ended.stdout or ended.stderr != "loaded:"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_never_the_descriptor_of_a_file_of_ours(closed: str) -> None:
    body = "import os; fd = os.open('/dev/null', os.O_RDONLY); sys.exit(40 + fd)"
    code = PREPARED.format(argv=["batchinfer"], body=body, lazy=LAZY)

    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code],
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode >= 43


def test_a_name_that_the_terminal_cannot_show_does_not_break_the_output() -> None:
    ended = in_a_process([], "print('caf\\udce9')")

    assert ended.returncode == 0
    assert "caf\\udce9" in ended.stdout
