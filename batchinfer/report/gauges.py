"""What a view of a running job may read.

Owns: the bundle of live figures. Refuses to know: how they are shown.
"""

from collections.abc import Callable
from typing import NamedTuple

from batchinfer.report.tally import Tally


class Gauges(NamedTuple):
    """What progress reads.

    `in_flight`: requests on their way now. `total`: a guess of the rows while the tally has no
    count. `fraction`: the share of the input's bytes read, 0 to 1, where that is known.
    """

    tally: Tally
    in_flight: Callable[[], int]
    total: Callable[[], int | None]
    fraction: Callable[[], float | None]
