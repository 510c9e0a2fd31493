"""The real command line in a process of its own, and the files that it leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fakeserver import FakeServer

COMMAND: Final = (sys.executable, "-m", "batchinfer")
DATA: Final = Path(__file__).parent / "data"
PATIENCE: Final = 60.0
"""Seconds after which a command that should have ended is a failure."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is negative where a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> Line:
        """The JSON on stdout."""
        parsed: Line = json.loads(self.out)
        return parsed


def environment(home: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return a small environment: no keys, no proxies, nothing of the machine's own."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", **(extra or {})}


class Running:
    """A command under way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.peak_kb = 0

    def signal(self, signum: int) -> None:
        """Send it a signal."""
        self.process.send_signal(signum)

    def kill(self) -> None:
        """Kill it as a power cut would, and wait until it is gone."""
        self.process.kill()
        self.wait()

    def interrupt(self) -> Ended:
        """Press Ctrl-C and wait."""
        self.signal(signal.SIGINT)
        return self.wait()

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Wait for its end."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            message = f"it did not end within {seconds} s; stderr: {err.decode()}"
            raise AssertionError(message) from None
        return Ended(self.process.returncode, out.decode(), err.decode())

    def end(self) -> None:
        """Leave nothing behind, whatever a test has come to."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def watch_memory(self) -> None:
        """Follow the peak of resident memory (kB) while it runs."""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        status = Path(f"/proc/{self.process.pid}/status")
        while self.process.poll() is None:
            try:
                lines = status.read_text().splitlines()
            except OSError:
                return
            peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
            self.peak_kb = max(self.peak_kb, *peaks) if peaks else self.peak_kb
            time.sleep(0.02)


class Job:
    """An input in a folder of its own, a configuration for a fake server, and its commands."""

    def __init__(self, folder: Path, server: FakeServer | str, **limits: object) -> None:
        self.folder = folder
        self.input = folder / "input.jsonl"
        self.config = folder / "job.toml"
        url = server if isinstance(server, str) else server.url
        self._closers = [] if isinstance(server, str) else server.closers
        self.settings: dict[str, object] = {
            "endpoint.base_url": url,
            "endpoint.model": "m",
            "limits.concurrency": 4,
            "retry.attempts": 3,
            "retry.base": 0.02,
            "retry.cap": 0.2,
            "timeouts.read": 5,
            "timeouts.total": 10,
            **{name.replace("__", "."): value for name, value in limits.items()},
        }
        self.env: dict[str, str] = {}
        self.prefix = str(folder / "input")
        self.write_config()

    def write_config(self) -> None:
        """Write the settings as TOML."""
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in self.settings.items()]
        self.config.write_text("".join(lines))

    # ── the input ────────────────────────────────────────────────────────────────────────────

    def plain(self, count: int, first: int = 1) -> list[str]:
        """Write rows r001, r002, … with the prompts "p r001" …, which are returned."""
        names = [f"r{number:03}" for number in range(first, first + count)]
        self.rows([{"id": name, "prompt": f"p {name}"} for name in names])
        return [f"p {name}" for name in names]

    def rows(self, rows: list[Line]) -> None:
        """Write these rows as the input."""
        self.input.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def data(self, name: str) -> bytes:
        """Take the input from the test data."""
        content = (DATA / f"{name}.jsonl").read_bytes()
        self.input.write_bytes(content)
        return content

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def start(self, *arguments: str, stdin: int | None = None, before: str = "") -> Running:
        """Start a command as given; `before`: what a shell does before it becomes the command."""
        command: tuple[str, ...] = (*COMMAND, *arguments)
        if before:
            command = ("sh", "-c", f'{before}; exec "$@"', "sh", *command)
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment(self.folder, self.env),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running = Running(process)
        self._closers.append(running.end)
        return running

    def start_run(self, *arguments: str, before: str = "") -> Running:
        """Start `run` on the input."""
        return self.start("run", *self._named(arguments), before=before)

    def command(self, *arguments: str) -> Ended:
        """Run a command to its end."""
        return self.start(*arguments).wait()

    def run(self, *arguments: str) -> Ended:
        """Run `run` on the input to its end."""
        return self.start_run(*arguments).wait()

    def resume(self, *arguments: str) -> Ended:
        """Run `resume` on the input to its end."""
        return self.command("resume", str(self.input), *arguments)

    def stats(self) -> Line:
        """Return what `stats --json` prints."""
        ended = self.command("stats", str(self.input), "--json")
        assert ended.code == 0, ended.err
        return ended.summary

    def verify(self) -> str:
        """Return what `verify` prints; it must find nothing wrong."""
        ended = self.command("verify", str(self.input))
        assert ended.code == 0, ended.err
        return ended.out

    def _named(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        return (str(self.input), "--config", str(self.config), *arguments)

    # ── files ────────────────────────────────────────────────────────────────────────────────

    def file(self, ending: str) -> Path:
        """Return an output's path: "success.jsonl", "run.json", …."""
        return Path(f"{self.prefix}.{ending}")

    def results(self) -> list[Line]:
        """Return the lines of the results."""
        return lines_of(self.file("results.jsonl"))

    def outputs(self) -> list[object]:
        """Return the answers of the results, None where there is none."""
        return [line["output"] for line in self.results()]

    def successes(self) -> list[Line]:
        """Return the records of answers."""
        return lines_of(self.file("success.jsonl"))

    def failures(self) -> list[Line]:
        """Return the records of failures."""
        return lines_of(self.file("failure.jsonl"))

    def error_classes(self) -> list[str | None]:
        """Return each result's error class, None where there is an answer."""
        return [line["error"] and line["error"]["class"] for line in self.results()]

    def files(self) -> dict[str, bytes]:
        """Return the name and content of every file in the folder."""
        return {p.name: p.read_bytes() for p in self.folder.iterdir() if p.is_file()}


def lines_of(path: Path) -> list[Line]:
    """Return the JSON values of a file's lines (by byte 0x0A alone); every one must be whole."""
    text = path.read_bytes()
    assert not text or text.endswith(b"\n")
    return [json.loads(line.decode()) for line in text.split(b"\n")[:-1]]


def ok(prompts: list[str]) -> list[object]:
    """Return the default answers to these prompts."""
    return [f"ok:{prompt}" for prompt in prompts]


def wait_for_lines(path: Path, count: int) -> None:
    """Wait until a file holds so many lines."""
    for _ in range(1000):
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    message = f"{path} never held {count} lines"
    raise AssertionError(message)
