"""W5: storage of a state of a megabyte over 20 steps that change a few bytes each."""

from bench.engines import Engine, Setup
from bench.figures import Figures, Goal, Size

REPEATS = 1
MEGA = 1_000_000
SMALLER = 240_000
GOALS = (
    Goal("times_cargo", "× cargo", gate=1.2, digits=2),
    Goal("kept_mb", "MB", digits=2),
    Goal("cargo_mb", "MB", digits=2),
    Goal("ms_per_step", "ms", digits=1),
    Goal("cpu_ms", "ms CPU/step", gate=12, aim=9, digits=1),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Return the size of database and log after a checkpoint, less an empty store, beside the state's own size."""
    try:
        return _carry(size.of(1_000, 1_000, 40) * 1_000, size.of(20, 20, 3), setup.engine)
    except RuntimeError:  # refused, so the largest accepted state is measured and its size is shown
        return _carry(SMALLER, 20, setup.engine)


def _carry(cargo: int, steps: int, engine: Engine) -> Figures:
    with engine.place() as place:
        engine.start(place, "effectful", 1)  # creates the schema
        empty = engine.kept(place)
        engine.start(place, "cargo", 1, loops=steps, cargo=cargo)
        with engine.serve(place, "cargo", 1) as (worker,):
            before = worker.used()
            worker.begin()
            engine.ended(place, "cargo")
            took = worker.used().minus(before)
        kept = engine.kept(place) - empty
    return {
        "times_cargo": kept / cargo,
        "kept_mb": kept / MEGA,
        "cargo_mb": cargo / MEGA,
        "ms_per_step": took.wall_s / steps * 1_000,
        "cpu_ms": took.cpu_s / steps * 1_000,
    }
