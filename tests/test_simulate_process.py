"""The provider as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from batchinfer.errors import ConfigError, Exit, UnreachableError
from batchinfer.simulate import process
from batchinfer.simulate.process import SimulatorProcess

PARENT = """
import time
from batchinfer.simulate.process import SimulatorProcess
print(SimulatorProcess(b'{}').base_url, flush=True)
time.sleep(3600)
"""
COMMAND = [sys.executable, "-m", "batchinfer.simulate"]


def answers(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/models", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def await_silence(base_url: str) -> None:
    while answers(base_url):
        time.sleep(0.02)


def test_a_process_serves_until_it_is_stopped() -> None:
    with SimulatorProcess(b'{"latency": 0}') as simulator:
        assert simulator.base_url.startswith("http://127.0.0.1:")
        assert simulator.pid == simulator._process.pid
        assert answers(simulator.base_url)

    assert not answers(simulator.base_url)
    assert simulator._process.returncode == 0
    simulator.stop()


def test_a_process_is_out_of_reach_of_the_terminals_ctrl_c() -> None:
    with SimulatorProcess(b"{}") as simulator:
        assert os.getsid(simulator.pid) == simulator.pid != os.getsid(0)


def test_a_file_in_the_current_folder_does_not_stand_in_for_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asyncio.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)

    with SimulatorProcess(b"{}") as simulator:
        assert answers(simulator.base_url)


def test_a_senseless_behaviour_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)

    with pytest.raises(ConfigError, match="latncy"):
        SimulatorProcess(b'{"latncy": 1}')


def test_a_process_that_ends_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")

    with pytest.raises(UnreachableError):
        SimulatorProcess(b"{}")


def test_a_process_that_says_nothing_is_ended_after_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec cat\n")
    mute.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr(process, "START_SECONDS", 0.2)

    with pytest.raises(UnreachableError):
        SimulatorProcess(b"{}")


def test_a_process_dies_with_its_parent() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PARENT,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    base_url = parent.stdout.readline().strip()
    try:
        assert answers(base_url)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()

    await_silence(base_url)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_announces_itself_and_ends_well_by_a_signal(number: signal.Signals) -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        announced = json.loads(command.stdout.readline())
        assert announced["pid"] == command.pid
        assert answers(announced["base_url"])
        command.send_signal(number)

        assert command.wait() == 0
        assert command.stdout.read() == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(['{"slots": -1}'], b"slots"), (["{}", "--port", "70000"], b"70000")],
)
def test_the_command_says_what_is_wrong_with_its_configuration(
    arguments: list[str], said: bytes
) -> None:
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, check=False, timeout=30)

    assert ended.returncode == Exit.CONFIG
    assert ended.stdout == b""
    assert said in ended.stderr
    assert b"Traceback" not in ended.stderr
