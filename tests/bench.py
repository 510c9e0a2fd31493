"""The whole job beside a bare client loop, in one run on one machine (`make bench`).

Prints, for each transport and each number in flight: requests a second of a bare loop over the
same client library, rows a second of the whole job (read, parse, send, judge, CRC, group commit),
and their ratio; then the peak memory of a small and of a large job; then a load of 500 requests of
38.2 ms at 50 in flight, and the share of the time in which the server's slots were busy. Judge by
ratios: absolute figures are the machine's.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
from pyreqwest.client import ClientBuilder

from batchinfer.simulate.process import SimulatorProcess

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]

BODY: Final = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "hello " + "x" * 200}]}
).encode()
HEADERS: Final = {"content-type": "application/json"}
_SPAN: Final = ("first_request", "last_response")


def rows_file(folder: Path, rows: int) -> Path:
    path = folder / f"rows{rows}.jsonl"
    if not path.exists():
        with path.open("w") as file:
            for number in range(rows):
                file.write(f'{{"id":"r{number}","prompt":"hello {number} {"x" * 200}"}}\n')
    return path


async def bare(count: int, in_flight: int, post: Callable[[], Awaitable[None]]) -> float:
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await post()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


async def bare_pyreqwest(url: str, count: int, in_flight: int) -> float:
    async with ClientBuilder().build() as client:

        async def post() -> None:
            response = await client.post(url).headers(HEADERS).body_bytes(BODY).build().send()
            await response.bytes()

        return await bare(count, in_flight, post)


async def bare_httpx(url: str, count: int, in_flight: int) -> float:
    free = [httpx.AsyncHTTPTransport() for _ in range(in_flight)]

    async def post() -> None:
        transport = free.pop()
        request = httpx.Request("POST", url, headers=HEADERS, content=BODY)
        response = await transport.handle_async_request(request)
        await response.aread()
        free.append(transport)

    return await bare(count, in_flight, post)


BARE: Final = {"pyreqwest": bare_pyreqwest, "httpx": bare_httpx}


def job(path: Path, base_url: str, in_flight: int, transport: str) -> tuple[dict[str, Any], int]:
    """Run the whole job; return its summary and its peak memory (KiB)."""
    prefix = path.with_name(f"out-{transport}-{in_flight}-{path.stem}")
    for old in path.parent.glob(f"{prefix.name}.*"):
        old.unlink()
    command = [sys.executable, "-m", "batchinfer", "run", str(path), "--json", "--quiet"]
    command += ["--base-url", base_url, "--model", "m", "--concurrency", str(in_flight)]
    command += ["--transport", transport, "--output", str(prefix)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        summary = json.loads(process.stdout.read())
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return summary, usage.ru_maxrss


def throughput(folder: Path, rows: int) -> None:
    path = rows_file(folder, rows)
    print(f"\n{rows:,} rows, a server without latency")
    print(f"{'transport':<11}{'in flight':>10}{'bare req/s':>12}{'job rows/s':>12}{'ratio':>8}")
    with SimulatorProcess(b'{"latency": 0, "jitter": 0}') as server:
        url = f"{server.base_url}/chat/completions"
        for transport, loop in BARE.items():
            for in_flight in (64, 1000):
                with asyncio.Runner(loop_factory=new_event_loop) as runner:
                    alone = runner.run(loop(url, rows // 2, in_flight))
                summary, _ = job(path, server.base_url, in_flight, transport)
                whole = summary["rows_per_s"]
                assert summary["rows"]["succeeded"] == rows, summary
                line = f"{transport:<11}{in_flight:>10,}{alone:>12,.0f}{whole:>12,.0f}"
                print(f"{line}{whole / alone:>8.2f}", flush=True)


def memory(folder: Path) -> None:
    print("peak memory of the job")
    peaks = []
    with SimulatorProcess(b'{"latency": 0, "jitter": 0}') as server:
        for rows in (10_000, 200_000):
            _, peak = job(rows_file(folder, rows), server.base_url, 64, "pyreqwest")
            peaks.append(peak / 1024)
            print(f"{rows:>9,} rows {peaks[-1]:>8.1f} MiB", flush=True)
    print(f"{'difference':>14} {peaks[1] - peaks[0]:>8.1f} MiB")


def fullness(folder: Path) -> None:
    print("\n38.2 ms a request, 50 slots, 50 in flight")
    for rows in (500, 2000):
        with SimulatorProcess(b'{"latency": 0.0382, "jitter": 0, "slots": 50}') as server:
            summary, _ = job(rows_file(folder, rows), server.base_url, 50, "pyreqwest")
            metrics = _metrics(server.base_url)
        busy = metrics["simulated_busy_slot_seconds_total"]
        first, last = (metrics[f"simulated_{name}_time_seconds"] for name in _SPAN)
        span = last - first
        done = summary["rows"]["succeeded"]
        print(
            f"{rows:>9,} rows: {done} answered, dispatch {span:.3f} s"
            f" (floor {rows / 50 * 0.0382:.3f} s), slots busy {busy / (50 * span):.1%}"
        )


def _metrics(base_url: str) -> dict[str, float]:
    url = f"{base_url.removesuffix('/v1')}/metrics"
    with urllib.request.urlopen(url) as reply:  # noqa: S310 (loopback)
        lines = reply.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.partition(" ") for line in lines if not line.startswith("#"))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--only", choices=["throughput", "memory", "fullness"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchinfer-bench-") as name:
        folder = Path(name)
        # Memory first: a child's peak begins at the size of its parent, which the bare loops swell.
        if arguments.only in {None, "memory"}:
            memory(folder)
        if arguments.only in {None, "throughput"}:
            throughput(folder, arguments.rows)
        if arguments.only in {None, "fullness"}:
            fullness(folder)


if __name__ == "__main__":
    main()
