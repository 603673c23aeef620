"""The raw commit rate of the disk, alone: what every other figure is to be read beside."""

from bench.commits import commit_rate
from bench.figures import Figures, Goal, Size
from bench.place import folder

REPEATS = 5
GOALS = (Goal("control_per_s", "commits/s"),)


def measure(size: Size) -> Figures:
    """One connection, one small row a commit."""
    with folder() as path:
        return {"control_per_s": commit_rate(path, size.of(200, 50) / 100)}
