"""Steps per second with 1,000, 10,000 and 100,000 runs in the store, half of them ended and half waiting."""

import asyncio
from statistics import median

from bench import bulk
from bench.engines import Place, Setup
from bench.figures import Figures, Goal, Size, counted
from bench.flows import asking, effectful
from bench.serving import opened, start_runs, until_status, worker_process
from bench.steps import STEPS, walk

REPEATS = 1
COUNTS = {Size.FULL: (1_000, 10_000, 100_000), Size.QUICK: (100, 1_000, 10_000), Size.TINY: (10, 12, 14)}
ROUNDS = 3  # repeats at each size; the median counts
GOALS_OF = {
    size: (
        *(Goal(f"steps_per_s_{counted(count)}", "steps/s") for count in counts),
        Goal("least_of_most", "", gate=0.7, least=True, digits=2),
    )
    for size, counts in COUNTS.items()
}


def measure(size: Size, setup: Setup) -> Figures:
    """Measure W2 effectful on one store that grows in between, with complete ended runs."""
    runs = size.of(400, 100, 5)
    found: Figures = {}
    with setup.engine.place() as place:
        _seed(place)
        there = 0
        for count in COUNTS[size]:
            _fill(place, there, count - there)
            there = count
            rounds = [_rate(setup, place, runs, f"{count}-{n}") for n in range(size.of(ROUNDS, ROUNDS, 1))]
            found[f"steps_per_s_{counted(count)}"] = median(rounds)
    rates = list(found.values())
    return {**found, "least_of_most": min(rates) / max(rates)}


def _rate(setup: Setup, place: Place, runs: int, name: str) -> float:
    used, _ = walk(setup.engine, place, "effectful", runs, 1, name=name)
    return runs * STEPS / used.wall_s


def _seed(place: Place) -> None:
    """Execute one run of each kind, to be copied."""

    async def start() -> None:
        async with opened(place.url) as store:
            await start_runs(store, effectful, 1, prefix="ended")
            await start_runs(store, asking, 1, prefix="waits")
            await until_status(store, "completed", 1)
            await until_status(store, "waiting", 1)

    with worker_process(place.url, effectful), worker_process(place.url, asking):
        asyncio.run(start())


def _fill(place: Place, first: int, count: int) -> None:
    for seed in ("ended0", "waits0"):
        rows = asyncio.run(bulk.rows_of(place, seed))
        bulk.insert(place, bulk.copies(rows, seed, bulk.names(seed, first // 2, count // 2)))
