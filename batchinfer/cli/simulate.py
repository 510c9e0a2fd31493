"""`batchinfer simulate`: the simulated provider as a server, to rehearse a configuration.

Owns: its flags. Refuses to know: how it behaves.
"""

from typing import Annotated

import typer

from batchinfer.cli.options import ConfigOption, SetOption


def simulate(
    config: ConfigOption = None,
    setting: SetOption = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 8099,
) -> None:
    """Serve a simulated, OpenAI-compatible provider on loopback until Ctrl-C.

    Its behaviour is the [simulate] section: --set simulate.latency=0.2 --set simulate.rpm=600
    """
    import os
    from pathlib import Path

    from batchinfer.config.load import load
    from batchinfer.job.simulated import serve_forever

    sets = ["endpoint.provider=simulated", *(setting or [])]
    loaded = load(config, sets, {}, os.environ, lambda path: Path(path).read_bytes())
    serve_forever(loaded.simulate, port)
