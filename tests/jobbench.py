"""A job in a folder, run in this process over a scripted network."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes import Answered, FakeTransport, Post, Script, ok

from batchinfer.config.schema import Config, Endpoint, Limits, Price, Retry
from batchinfer.job import finish, wiring
from batchinfer.job import run as running
from batchinfer.job.endpoint import Way
from batchinfer.job.run import Ended, Frontend, Options
from batchinfer.job.target import Target, target_of
from batchinfer.journal.manifest import Manifest, read
from batchinfer.providers.openai_chat import OPENAI_CHAT
from batchinfer.report.gauges import Gauges
from batchinfer.report.summary import Summary

MAX_LINE = 10_000
CONFIG = Config(
    endpoint=Endpoint(base_url="http://127.0.0.1:9/v1", model="m"),
    limits=Limits(concurrency=4),
    retry=Retry(attempts=2, base=0.001, cap=0.002),
    prices={"m": Price(input=1_000_000.0)},
)


class View:
    """A view that counts how it was used."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gauges: Gauges | None = None

    def start(self) -> None:
        self.calls.append("start")

    def tick(self, _: float) -> None:
        self.calls.append("tick")

    def stop(self) -> None:
        self.calls.append("stop")


class Bench:
    """A job in a folder, over a scripted network."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.input = folder / "in.jsonl"
        self.target = target_of(str(self.input), None)
        self.said: list[str] = []
        self.view = View()
        self.script: Script | list[Answered] = [ok()]
        self.transports: list[FakeTransport] = []
        self.name = "fake 1"
        patch.setattr(running, "open_way", self._open)
        self.plain(5)

    def plain(self, count: int) -> None:
        rows = [{"id": f"r{n}", "prompt": f"p{n}"} for n in range(count)]
        self.input.write_text("".join(json.dumps(row) + "\n" for row in rows))

    @contextlib.asynccontextmanager
    async def _open(self, config: Config, _: Mapping[str, str]) -> AsyncIterator[Way]:
        transport = FakeTransport(self.script, seconds=0.0)
        self.transports.append(transport)
        yield Way(wiring.wire(config, OPENAI_CHAT, "http://h/", {}, []), transport, self.name)

    def _view(self, gauges: Gauges) -> View:
        self.view.gauges = gauges
        return self.view

    def run(self, config: Config = CONFIG, target: Target | None = None, **options: Any) -> Ended:
        front = Frontend(self.said.append, self._view)
        return running.run(target or self.target, config, Options(**options), {}, front)

    def whole(self, config: Config = CONFIG, **options: Any) -> Summary:
        """Run and finish."""
        ended = self.run(config, **options)
        return finish.finish(self.target, ended, MAX_LINE)

    @property
    def manifest(self) -> Manifest:
        found = read(self.target.paths.manifest)
        assert found is not None
        return found

    @property
    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.target.paths.results.read_bytes().splitlines()]

    @property
    def posts(self) -> list[Post]:
        return [post for transport in self.transports for post in transport.posts]


def said_by(post: Post) -> str:
    text: str = post.body["messages"][-1]["content"]
    return text


def echo(post: Post) -> Answered:
    return ok(f"answer to {said_by(post)}")


def failing(names: set[str], reply: Answered) -> Script:
    return lambda post: reply if said_by(post) in names else echo(post)
