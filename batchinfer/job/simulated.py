"""The simulated provider on its own, in place of this process.

Owns: handing the configuration's behaviour over. Refuses to know: how it is served.
"""

import os
import sys
from typing import NoReturn

import msgspec

from batchinfer.config.schema import Simulate


def serve_forever(behaviour: Simulate, port: int) -> NoReturn:
    """Become the simulated provider; it prints its address as JSON and ends by a signal."""
    text = msgspec.json.encode(behaviour).decode()
    command = [sys.executable, "-P", "-m", "batchinfer.simulate", text, "--port", str(port)]
    os.execv(sys.executable, command)  # noqa: S606 (our own module, no shell)
