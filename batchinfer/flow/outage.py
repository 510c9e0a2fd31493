"""Whether the endpoint is there, and how long it wants to be left alone.

Owns: telling a row's trouble from the endpoint's, and when to stop waiting for it. Neither an
outage nor a refusal by rate uses up a row's attempts. Refuses to know: sockets and clocks.
"""

from enum import Enum


class Reach(Enum):
    """What to do about an endpoint that cannot be reached."""

    WAIT = "wait"
    NEVER_THERE = "never there"
    GONE = "gone"


class Episodes:
    """Counts troubles of the endpoint: what fails together, or was sent before a rest, is one."""

    def __init__(self) -> None:
        self.count = 0
        self._rest_until = float("-inf")

    def trouble(self, sent_at: float) -> int:
        """Return the number of this episode for a request that left at `sent_at`."""
        if sent_at >= self._rest_until:
            self.count += 1
        return self.count

    def rest(self, until: float) -> None:
        """Let the endpoint be until then."""
        self._rest_until = max(self._rest_until, until)

    def over(self) -> None:
        """Forget: a request went well."""
        self.count = 0


class Outage:
    """Follows one endpoint; `patience` episodes decide at the start, `max_outage` s later on."""

    def __init__(self, patience: int, max_outage: float) -> None:
        self._patience = patience
        self.max_outage = max_outage
        self._seen = False
        self._down_since: float | None = None
        self.episodes = Episodes()

    def reached(self) -> None:
        """Take note that the endpoint answered, be it with an error."""
        self._seen = True
        self._down_since = None
        self.episodes.over()

    def failed(self, sent_at: float, now: float) -> Reach:
        """Return what follows from a connection, begun at `sent_at`, that failed at `now`."""
        if self._down_since is None:
            self._down_since = sent_at
        episode = self.episodes.trouble(sent_at)
        if not self._seen:
            return Reach.NEVER_THERE if episode >= self._patience else Reach.WAIT
        return Reach.GONE if now - self._down_since >= self.max_outage else Reach.WAIT
