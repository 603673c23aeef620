"""W1: one run of 1,000 steps, in which every commit waits for the previous one, as a share of single commits."""

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.usage import Usage

REPEATS = 5
GOALS = (
    Goal("effectful_share", "of control", gate=0.3, least=True, digits=2),
    Goal("readonly_share", "of control", gate=0.33, least=True, digits=2),
    Goal("effectful_per_s", "steps/s"),
    Goal("readonly_per_s", "steps/s"),
    Goal("effectful_cpu_us", "µs CPU/step"),
    Goal("readonly_cpu_us", "µs CPU/step"),
    Goal("control_per_s", "commits/s"),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure two kinds of steps, with the control before, between and after them."""
    engine, steps, pause = setup.engine, size.of(1_000, 300, 10), size.of(50, 20, 5) / 100
    controls: list[float] = []
    used: list[Usage] = []
    with engine.place() as place:
        for work in ("long-effectful", "long-readonly"):
            controls.append(engine.control(place, pause))
            engine.start(place, work, 1, loops=steps)
            with engine.serve(place, work, 1) as (worker,):
                before = worker.used()
                worker.begin()
                engine.ended(place, work)
                used.append(worker.used().minus(before))
        controls.append(engine.control(place, pause))
    effectful, readonly = (steps / each.wall_s for each in used)
    return {
        "effectful_share": effectful / ((controls[0] + controls[1]) / 2),
        "readonly_share": readonly / ((controls[1] + controls[2]) / 2),
        "effectful_per_s": effectful,
        "readonly_per_s": readonly,
        "effectful_cpu_us": used[0].cpu_s / steps * 1e6,
        "readonly_cpu_us": used[1].cpu_s / steps * 1e6,
        "control_per_s": sum(controls) / len(controls),
    }
