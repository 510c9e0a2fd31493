"""What an attempt is made with: an endpoint as one run sees it, and the outside world.

Owns: these bundles. Refuses to know: what is done with them.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from batchinfer.dispatch.gate import Gate
from batchinfer.dispatch.steering import Steering
from batchinfer.events import Event
from batchinfer.flow.outage import Episodes, Outage
from batchinfer.providers.base import Provider
from batchinfer.transport.base import Transport


class Wire(Struct, frozen=True):
    """Where and how: all that is the same for each request of an endpoint.

    `secrets` are blotted out of a server's messages, `keys` (as our JSON has them) of answers too.
    """

    provider: Provider
    url: str
    host: str
    headers: Mapping[str, str]
    model: str | None
    params: Mapping[str, object]
    secrets: tuple[str, ...]
    keys: tuple[bytes, ...]
    keep_response: bool


class Endpoint(Struct):
    """An endpoint as one run sees it: the way there, the door, whether it is up, its refusals."""

    wire: Wire
    transport: Transport
    gate: Gate
    outage: Outage
    refusals: Episodes
    steering: Steering


class Surroundings(Struct, frozen=True):
    """The outside as arguments: monotonic seconds, epoch seconds, RFC 3339 now, luck, observers."""

    clock: Callable[[], float]
    epoch: Callable[[], float]
    stamp: Callable[[], str]
    luck: Callable[[], float]
    sink: Callable[[Event], None]
