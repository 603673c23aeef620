"""W2: 1,000 runs of ten nodes, one lookup each: memo and checkpoint, both fully durable."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.steps import SHOWN, measure_steps

REPEATS = 5
WORKERS = (1, 2)


def goals(setup: Setup) -> tuple[Goal, ...]:
    """Return the goals, which depend on the store and on the number of workers."""
    alone = (setup.engine.name, setup.workers) == ("sqlite", 1)
    aim = 7_000 if (setup.engine.name, setup.workers) == ("sqlite", 2) else None
    return (
        Goal("steps_per_s", "steps/s", gate=4_000 if alone else None, aim=aim, least=True),
        Goal("cpu_us", "µs CPU/step", gate=240 if alone else None),
        *(goal._replace(gate=600) if alone and goal.name == "kept_bytes" else goal for goal in SHOWN),
    )


def measure(size: Size, setup: Setup) -> Figures:
    """Measure runs of ten lookups (bench/steps.py)."""
    return measure_steps("readonly", size, setup)
