"""1,000 runs of ten nodes, one local write each: intent, call, record and checkpoint, all fully durable."""

from bench.figures import Figures, Goal, Size
from bench.flows import effectful
from bench.steps import SHOWN, measure_steps

REPEATS = 5
GOALS = (
    Goal("steps_per_s", "steps/s", gate=1_500, aim=3_000, least=True),
    Goal("cpu_us", "µs CPU/step", gate=500),
    *SHOWN,
)


def measure(size: Size) -> Figures:
    """See bench/steps.py."""
    return measure_steps(effectful, size)
