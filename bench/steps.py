"""Many runs of ten steps, executed by one or more worker processes: steps per second, and the cost of a step."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from bench.engines import Engine, Place, Setup
from bench.figures import Figures, Goal, Size
from bench.usage import Usage, tree

STEPS = 10
MICRO = 1_000_000
SHOWN = (
    Goal("loop_us", "µs CPU/step"),
    Goal("writer_us", "µs CPU/step"),
    Goal("other_us", "µs CPU/step"),
    Goal("server_us", "µs CPU/step"),
    Goal("kept_bytes", "B/step"),
    Goal("disk_bytes", "B/step"),
    Goal("control_per_s", "commits/s"),
)
WRITERS = ("writer", "postgres")  # threads that access a store


def measure_steps(
    work: str, size: Size, setup: Setup, around: Callable[[Place], AbstractContextManager[object]] = nullcontext
) -> Figures:
    """Start all runs, then execute them, with the control before and after. `around` runs during the measurement."""
    engine, runs = setup.engine, size.of(1_000, 300, 20)
    pause = size.of(50, 30, 5) / 100
    with engine.place() as place, around(place):
        before = engine.control(place, pause)
        used, server = walk(engine, place, work, runs, setup.workers)
        after = engine.control(place, pause)
        kept = engine.kept(place)
    steps = runs * STEPS

    def each(seconds: float) -> float:
        return seconds / steps * MICRO

    threads = used.threads_s
    writer = sum(threads.get(name, 0.0) for name in WRITERS)
    return {
        "steps_per_s": steps / used.wall_s,
        "cpu_us": each(used.cpu_s),
        "loop_us": each(threads.get("loop", 0.0)),
        "writer_us": each(writer),
        "other_us": max(each(used.cpu_s - threads.get("loop", 0.0) - writer), 0.0),
        "server_us": each(server.cpu_s),
        "kept_bytes": kept / steps,
        "disk_bytes": (used.written + server.written) / steps,
        "control_per_s": (before + after) / 2,
    }


def walk(engine: Engine, place: Place, work: str, runs: int, workers: int, *, name: str = "") -> tuple[Usage, Usage]:
    """Start runs and execute them. Returns the resource usage of all workers and of the server."""
    engine.start(place, work, runs, name=name)
    with engine.serve(place, work, workers) as serving:
        server = tree(place.server)
        begun = [worker.used() for worker in serving]
        for worker in serving:
            worker.begin()
        engine.ended(place, work)
        used = [worker.used().minus(before) for worker, before in zip(serving, begun, strict=True)]
        return together(used), tree(place.server).minus(server)


def together(used: list[Usage]) -> Usage:
    """Add up the usage of several processes over the longest of their times."""
    names = {name for each in used for name in each.threads_s}
    return Usage(
        max(each.wall_s for each in used),
        sum(each.cpu_s for each in used),
        {name: sum(each.threads_s.get(name, 0.0) for each in used) for name in names},
        sum(each.written for each in used),
        sum(each.resident for each in used),
    )
