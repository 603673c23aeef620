"""W2 effectful without listeners, and with one webhook that receives every event: the added cost of a step."""

from statistics import median

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.load.receiver import told
from bench.steps import measure_steps

REPEATS = 1
ROUNDS = 3  # repeats of each, in turn; the medians count
SHOWN = ("cpu_us", "steps_per_s", "kept_bytes")
GOALS = (
    Goal("nobody_cpu_us", "µs CPU/step"),
    Goal("one_cpu_us", "µs CPU/step"),
    Goal("cpu_more", "%"),
    Goal("nobody_steps_per_s", "steps/s"),
    Goal("one_steps_per_s", "steps/s"),
    Goal("nobody_kept_bytes", "B/step"),
    Goal("one_kept_bytes", "B/step"),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure in turn. Dispatcher and receiver are other processes, so CPU is the worker's."""
    rounds = size.of(ROUNDS, ROUNDS, 1)
    nobody: list[Figures] = []
    one: list[Figures] = []
    for _ in range(rounds):
        nobody.append(measure_steps("effectful", size, setup))
        one.append(measure_steps("effectful", size, setup, told))
    found = {f"nobody_{name}": median(each[name] for each in nobody) for name in SHOWN}
    found |= {f"one_{name}": median(each[name] for each in one) for name in SHOWN}
    return {**found, "cpu_more": (found["one_cpu_us"] / found["nobody_cpu_us"] - 1) * 100}
