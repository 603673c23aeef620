"""W2: 1,000 runs of ten nodes, one local effect each: intent, call, record and checkpoint, all fully durable."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.steps import SHOWN, measure_steps

REPEATS = 5
WORKERS = (1, 2)
ASKED = {"sqlite": (1_500, 3_000), "postgres": (1_200, 2_500)}  # gate and aim of one worker


def goals(setup: Setup) -> tuple[Goal, ...]:
    """Return the goals, which depend on the store. For two workers only the factor has a goal."""
    gate, aim = ASKED.get(setup.engine.name, (None, None)) if setup.workers == 1 else (None, None)
    return (Goal("steps_per_s", "steps/s", gate=gate, aim=aim, least=True), Goal("cpu_us", "µs CPU/step"), *SHOWN)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure runs of ten effects (bench/steps.py)."""
    return measure_steps("effectful", size, setup)
