"""W7 with the worker in a process of its own, beside a service that only speaks HTTP."""

from bench.engines import Setup
from bench.figures import Figures, Size
from bench.load.session import GOALS as GOALS
from bench.load.session import measure as measure_service

REPEATS = 1


def measure(size: Size, setup: Setup) -> Figures:
    """`outlast serve --no-worker --no-dispatcher`, and `outlast worker`."""
    with setup.engine.place() as place:
        return measure_service(size, place, worker=False)
