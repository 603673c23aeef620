"""1,000 runs of ten nodes, one lookup each: memo and checkpoint, both fully durable."""

from bench.figures import Figures, Goal, Size
from bench.flows import readonly
from bench.steps import SHOWN, measure_steps

REPEATS = 5
GOALS = (
    Goal("steps_per_s", "steps/s", aim=6_000, least=True),
    Goal("cpu_us", "µs CPU/step"),
    *SHOWN,
)


def measure(size: Size) -> Figures:
    """See bench/steps.py."""
    return measure_steps(readonly, size)
