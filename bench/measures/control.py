"""The raw commit rate of the store, alone: what every other figure is to be read beside."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size

REPEATS = 5
GOALS = (Goal("control_per_s", "commits/s"),)


def measure(size: Size, setup: Setup) -> Figures:
    """One connection, one small row a commit."""
    with setup.engine.place() as place:
        return {"control_per_s": setup.engine.control(place, size.of(200, 50, 5) / 100)}
