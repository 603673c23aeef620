"""Ten visits of one effect each, without and with an entry of `ctx.log` before the effect: the cost of an entry."""

from statistics import median

from bench.engines import Setup
from bench.figures import Figures, Goal, Size
from bench.steps import measure_steps

REPEATS = 1
ROUNDS = 3  # repeats of each, in turn; the medians count
SHOWN = ("cpu_us", "steps_per_s", "kept_bytes")
GOALS = (
    Goal("silent_cpu_us", "µs CPU/step"),
    Goal("logging_cpu_us", "µs CPU/step"),
    Goal("entry_cpu_us", "µs CPU/entry"),
    Goal("silent_steps_per_s", "steps/s"),
    Goal("logging_steps_per_s", "steps/s"),
    Goal("silent_kept_bytes", "B/step"),
    Goal("logging_kept_bytes", "B/step"),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure in turn, so that a slow moment of the machine meets both."""
    rounds = size.of(ROUNDS, ROUNDS, 1)
    all_of: dict[str, list[Figures]] = {"silent": [], "logging": []}
    for _ in range(rounds):
        for work, found in all_of.items():
            found.append(measure_steps(work, size, setup))
    figures = {f"{work}_{name}": median(each[name] for each in all_of[work]) for work in all_of for name in SHOWN}
    return {**figures, "entry_cpu_us": figures["logging_cpu_us"] - figures["silent_cpu_us"]}
