"""W7 with HTTP in two processes, and worker and dispatcher in their parent."""

from bench.engines import Setup
from bench.figures import Figures, Size
from bench.load.session import GOALS as GOALS
from bench.load.session import measure as measure_service

REPEATS = 1


def measure(size: Size, setup: Setup) -> Figures:
    """Measure the service as `outlast serve --processes 2` runs it."""
    with setup.engine.place() as place:
        return measure_service(size, place, processes=2)
