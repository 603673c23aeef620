"""The commit rate of the bare store, the reference for every other figure."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size

REPEATS = 5
GOALS = (Goal("control_per_s", "commits/s"),)


def measure(size: Size, setup: Setup) -> Figures:
    """Commit one small row at a time over one connection."""
    with setup.engine.place() as place:
        return {"control_per_s": setup.engine.control(place, size.of(200, 50, 5) / 100)}
