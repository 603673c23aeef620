"""W7: `outlast serve` with its worker under 200 decisions and 300 reads per second, with 500 open streams."""

from bench.engines import Setup
from bench.figures import Figures, Size
from bench.load.session import GOALS as GOALS
from bench.load.session import measure as measure_service

REPEATS = 1


def measure(size: Size, setup: Setup) -> Figures:
    """Measure HTTP, worker and dispatcher in one process, the default of `outlast serve`."""
    with setup.engine.place() as place:
        return measure_service(size, place, processes=1)
