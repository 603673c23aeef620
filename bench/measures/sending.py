"""Time from a durable intent to its arrival at an HTTP receiver, and effects left uncertain by SIGKILL.

Many runs are due at once. Each makes one call of 0.2 s, from an `async def` and from a `def` activity. Uncertain
effects that never arrived are needless questions to an operator.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.engines import Place, Setup
from bench.figures import NOT_MEASURED, Figures, Goal, Size, percentile
from bench.flows import NOTES, RECEIVER, sending
from bench.serving import TENANT, opened, start_runs, worker_process
from outlast.core.durations import SECOND, Liveness
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.store.port import Store
from outlast.store.queries import CountBy

REPEATS = 3
STORES = ("sqlite",)
ANSWER_MS = 200
LIVE = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
KINDS = {"async": 0, "def": 1}
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
GOALS = (
    *(Goal(f"{kind}_{name}_ms", "ms", digits=1) for kind in KINDS for name in SHARES),
    *(Goal(f"{kind}_runs_per_s", "runs/s", digits=1) for kind in KINDS),
    Goal("kills", ""),
    Goal("uncertain", ""),
    Goal("needless_pct", "%", gate=30, digits=1),
)
MS_NS = 1_000_000
LOOK_S = 0.02
KILL_WITHIN_S = 2.0  # after a worker's first durable intent


def measure(size: Size, setup: Setup) -> Figures:
    """Measure the distribution first, then the kills."""
    runs, kills = size.of(500, 200, 10), size.of(16, 8, 1)
    found: Figures = {}
    for kind, loops in KINDS.items():
        with _stage(setup) as (place, calls):
            asyncio.run(_start(place.url, runs, loops))
            seconds = _walk(place, calls, runs)
            waited = _waited(place, calls)
        found |= {f"{kind}_{name}_ms": percentile(waited, share) for name, share in SHARES.items()}
        found[f"{kind}_runs_per_s"] = runs / seconds
    dice = random.Random(12)
    uncertain = needless = 0
    for n in range(kills):
        with _stage(setup) as (place, calls):
            asyncio.run(_start(place.url, runs, n % 2))
            left = _killed(place, calls, runs, dice.random(), TINY if size is Size.TINY else LIVE)
        uncertain, needless = uncertain + left[0], needless + left[1]
    share = 100 * needless / uncertain if uncertain else NOT_MEASURED
    return {**found, "kills": kills, "uncertain": uncertain, "needless_pct": share}


@contextmanager
def _stage(setup: Setup) -> Iterator[tuple[Place, Path]]:
    """Open a place and start a receiver that records there. Worker processes get both addresses."""
    with setup.engine.place() as place:
        calls = place.folder / "calls.txt"
        command = [sys.executable, "-m", "bench.load.calls", str(calls), str(ANSWER_MS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            try:
                assert receiver.stdout is not None
                os.environ[RECEIVER] = receiver.stdout.readline().strip()
                os.environ[NOTES] = str(place.folder / "intents.txt")
                yield place, calls
            finally:
                receiver.kill()
                for name in (RECEIVER, NOTES):
                    os.environ.pop(name, None)


async def _start(url: str, runs: int, loops: int) -> None:
    async with opened(url) as store:
        await start_runs(store, sending, runs, loops=loops)


def _lines(path: Path) -> dict[str, int]:
    """Return the time in each run's line, in ns."""
    if not path.exists():
        return {}
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def _walk(place: Place, calls: Path, runs: int) -> float:
    """Return seconds from the first arrival to the last run's end."""
    with worker_process(place.url, sending, LIVE, runs):
        asyncio.run(_ended(place.url, runs))
        return (time.monotonic_ns() - min(_lines(calls).values())) / (1_000 * MS_NS)


async def _ended(url: str, runs: int) -> None:
    async with opened(url) as store:
        while await _settled(store) < runs:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(LOOK_S)


async def _settled(store: Store) -> int:
    found = await store.query(CountBy(EFFECT, TENANT, "status"))
    return sum(found.get(status, 0) for status in ("done", "refused", "uncertain"))


def _waited(place: Place, calls: Path) -> list[float]:
    """Return milliseconds from each intent's commit to its arrival."""
    landed, arrived = _lines(place.folder / "intents.txt"), _lines(calls)
    return [(arrived[run] - at) / MS_NS for run, at in landed.items()]


def _killed(place: Place, calls: Path, runs: int, chance: float, live: Liveness) -> tuple[int, int]:
    """Kill a worker. Returns how many effects that leaves uncertain, and how many of these never arrived."""
    intents = place.folder / "intents.txt"
    with worker_process(place.url, sending, live, runs) as worker:
        while not intents.exists():
            time.sleep(LOOK_S)
        time.sleep(KILL_WITHIN_S * chance)
        worker.kill()
    with worker_process(place.url, sending, live, runs):
        asyncio.run(_ended(place.url, runs))
    arrived = _lines(calls)
    effects = asyncio.run(_uncertain(place.url))
    return len(effects), sum(effect.run not in arrived for effect in effects)


async def _uncertain(url: str) -> list[Effect]:
    found: list[Effect] = []
    async with opened(url) as store:
        cursor = ""
        while True:
            page = await store.page(EFFECT, TENANT, {"status": "uncertain"}, cursor=cursor, limit=200)
            found += page.rows
            if not (cursor := page.cursor):
                return found
