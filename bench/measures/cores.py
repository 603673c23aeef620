"""One worker, two workers on one store, and two workers on two stores, in turn: the price of sharing a store."""

from contextlib import ExitStack
from statistics import median

from bench.engines import Engine, Setup
from bench.figures import Figures, Goal, Size
from bench.steps import STEPS, together
from bench.usage import tree

REPEATS = 1
ROUNDS = 3
WORKS = ("effectful", "readonly")
LAYOUTS = {"one": (1, 1), "shared": (1, 2), "apart": (2, 2)}  # stores, workers
GOALS = tuple(
    Goal(f"{work}_{layout}_{what}", unit)
    for work in WORKS
    for layout in LAYOUTS
    for what, unit in (("per_s", "steps/s"), ("cpu_us", "µs CPU/step"))
)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure each layout in turn, so that a slow moment of the machine meets all. Shows medians."""
    found: dict[str, list[float]] = {goal.name: [] for goal in GOALS}
    for _ in range(size.of(ROUNDS, ROUNDS, 1)):
        for work in WORKS:
            for layout, (stores, workers) in LAYOUTS.items():
                rate, cpu = _measure(setup.engine, work, size.of(1_000, 300, 20), stores, workers)
                found[f"{work}_{layout}_per_s"].append(rate)
                found[f"{work}_{layout}_cpu_us"].append(cpu)
    return {name: median(values) for name, values in found.items()}


def _measure(engine: Engine, work: str, runs: int, stores: int, workers: int) -> tuple[float, float]:
    """Return steps per second of all workers together, and µs of CPU per step, the server's included."""
    with ExitStack() as stack:
        places = [stack.enter_context(engine.place()) for _ in range(stores)]
        for place in places:
            engine.start(place, work, runs // stores)
        serving = [w for place in places for w in stack.enter_context(engine.serve(place, work, workers // stores))]
        before, server = [worker.used() for worker in serving], tree(places[0].server).cpu_s
        for worker in serving:
            worker.begin()
        for place in places:
            engine.ended(place, work)
        used = together([w.used().minus(b) for w, b in zip(serving, before, strict=True)])
        cpu = used.cpu_s + tree(places[0].server).cpu_s - server
    steps = runs // stores * stores * STEPS
    return steps / used.wall_s, cpu / steps * 1e6
