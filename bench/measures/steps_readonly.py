"""W2: 1,000 runs of ten nodes, one lookup each: memo and checkpoint, both fully durable."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.steps import SHOWN, measure_steps

REPEATS = 5
WORKERS = (1, 2)


def goals(setup: Setup) -> tuple[Goal, ...]:
    """Return the goals of one worker."""
    aimed = setup.workers == 1
    return (
        Goal("steps_per_s", "steps/s", aim=10_000 if aimed else None, least=True),
        Goal("cpu_us", "µs CPU/step", aim=100 if aimed else None),
        *(goal._replace(aim=500) if aimed and goal.name == "kept_bytes" else goal for goal in SHOWN),
    )


def measure(size: Size, setup: Setup) -> Figures:
    """Measure runs of ten lookups (bench/steps.py)."""
    return measure_steps("readonly", size, setup)
