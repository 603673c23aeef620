"""W2: 1,000 runs of ten nodes, one local effect each: intent, call, record and checkpoint, all fully durable."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.steps import SHOWN, measure_steps

REPEATS = 5
WORKERS = (1, 2)
GATES = {("sqlite", 1): 2_500, ("postgres", 1): 2_000}  # by store and number of workers
AIMS = {("sqlite", 2): 4_000}


def goals(setup: Setup) -> tuple[Goal, ...]:
    """Return the goals, which depend on the store and on the number of workers."""
    which = (setup.engine.name, setup.workers)
    alone = which == ("sqlite", 1)
    return (
        Goal("steps_per_s", "steps/s", gate=GATES.get(which), aim=AIMS.get(which), least=True),
        Goal("cpu_us", "µs CPU/step", gate=370 if alone else None),
        *(goal._replace(gate=800) if alone and goal.name == "kept_bytes" else goal for goal in SHOWN),
    )


def measure(size: Size, setup: Setup) -> Figures:
    """Measure runs of ten effects (bench/steps.py)."""
    return measure_steps("effectful", size, setup)
