"""W7: `outlast serve` with its worker under 200 decisions and 300 reads a second, while 500 streams listen."""

from bench.engines import Setup
from bench.figures import Figures, Size
from bench.load.session import GOALS as GOALS
from bench.load.session import measure as measure_service

REPEATS = 1


def measure(size: Size, setup: Setup) -> Figures:
    """HTTP, worker and dispatcher in one process, as `outlast serve` is unless told otherwise."""
    with setup.engine.place() as place:
        return measure_service(size, place, processes=1)
