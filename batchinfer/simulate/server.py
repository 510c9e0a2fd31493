"""The simulated provider on a socket.

Owns: the listener, the timers that make an answer due, whose slot is freed when. Refuses to know:
what is answered (service), how it is written (wire).
"""

import asyncio
import itertools
import time
from functools import partial
from typing import Final, assert_never

from batchinfer.errors import ConfigError
from batchinfer.simulate.behaviour import Behaviour
from batchinfer.simulate.service import Hang, Respond, Response, Service, Work
from batchinfer.simulate.slots import Slots
from batchinfer.simulate.wire import Abandon, Connection, Deliver, Request

LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 4096
_LAST_PORT: Final = 65535


class _Ticket:
    """A request on its way to its answer; `open` until it was answered or abandoned."""

    __slots__ = ("deliver", "open", "response", "seconds", "timer")

    def __init__(self, work: Work, deliver: Deliver) -> None:
        self.response: Response = work.response
        self.seconds = work.seconds
        self.deliver = deliver
        self.open = True
        self.timer: asyncio.TimerHandle | None = None


class _Floor:
    """Carries the service's decisions out in time, for all connections."""

    def __init__(self, behaviour: Behaviour, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        self._loop = loop
        self._slots: Slots[_Ticket] = Slots(behaviour.slots)
        self._service = Service(behaviour, self._slots, now, time.time() - now)
        self._connections: set[Connection] = set()
        self._deserted = asyncio.Event()
        self._deserted.set()
        self.next_id = itertools.count(1).__next__

    def joined(self, connection: Connection) -> None:
        """Note a connection that was opened."""
        self._connections.add(connection)
        self._deserted.clear()

    def left(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._connections.discard(connection)
        if not self._connections:
            self._deserted.set()

    def submit(self, request: Request, deliver: Deliver) -> Abandon:
        """Answer the request in its time, unless what is returned is called before."""
        now = time.monotonic()
        decision = self._service.decide(request.method, request.target, request.body, now)
        match decision:
            case Work():
                ticket = _Ticket(decision, deliver)
                if self._slots.enter(ticket, now):
                    self._start(ticket)
                return partial(self._abandon, ticket)
            case Respond(response):
                deliver(response)
                return _answered
            case Hang():
                return self._service.abandon
            case _:
                assert_never(decision)

    async def clear(self) -> None:
        """Cut all connections and see them gone."""
        for connection in tuple(self._connections):
            connection.abort()
        await self._deserted.wait()

    def _start(self, ticket: _Ticket) -> None:
        if ticket.seconds > 0:
            ticket.timer = self._loop.call_later(ticket.seconds, self._finish, ticket)
        else:
            self._finish(ticket)

    def _finish(self, ticket: _Ticket) -> None:
        now = time.monotonic()
        self._release(ticket, now)
        self._service.settle(ticket.response, now)
        ticket.deliver(ticket.response)

    def _abandon(self, ticket: _Ticket) -> None:
        if ticket.open:
            if ticket.timer is not None:
                ticket.timer.cancel()
            self._service.abandon()
            self._release(ticket, time.monotonic())

    def _release(self, ticket: _Ticket, now: float) -> None:
        ticket.open = False
        following = self._slots.leave(ticket, now)
        if following is not None:
            # By the loop even where it takes no time: a long queue must not become a deep stack.
            following.timer = self._loop.call_later(following.seconds, self._finish, following)


class SimulatedServer:
    """A running provider; made by `serve`."""

    def __init__(self, floor: _Floor, listener: asyncio.Server, host: str) -> None:
        self._floor = floor
        self._listener = listener
        self._host = host
        self.port: int = listener.sockets[0].getsockname()[1]

    @property
    def base_url(self) -> str:
        """Where the wire API begins, as a client's `base_url`."""
        host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self._host, self._host)  # noqa: S104 (named, not bound)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    async def close(self) -> None:
        """Stop listening and cut what is open; may be called again."""
        self._listener.close()
        await self._floor.clear()
        await self._listener.wait_closed()


async def serve(behaviour: Behaviour, host: str = LOOPBACK, port: int = 0) -> SimulatedServer:
    """Start a provider on the running loop; port 0 takes a free one.

    Raises ConfigError where the address cannot be had.
    """
    if not 0 <= port <= _LAST_PORT:  # uvloop would take another one
        raise ConfigError(
            f"The simulator cannot listen on port {port}: ports go up to {_LAST_PORT}."
        )
    loop = asyncio.get_running_loop()
    floor = _Floor(behaviour, loop)
    try:
        listener = await loop.create_server(lambda: Connection(floor), host, port, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(f"The simulator cannot listen on {host}, port {port}: {error}") from error
    return SimulatedServer(floor, listener, host)


def _answered() -> None:
    """Abandon an answer that has already left."""
