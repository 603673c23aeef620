"""Kill the only worker 0 to 3 times while its runs are in a call of 1 s, and measure the time to completion."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import NamedTuple

from bench.engines import Engine, Setup
from bench.figures import NOT_MEASURED, Figures, Goal, Size, percentile
from bench.flows import calling
from bench.serving import TENANT, Line, Process, opened, start_runs, worker_process
from outlast.core.durations import SECOND, Liveness
from outlast.core.machine import ENDED, Reason
from outlast.core.rows.run_rows import RUN, Run
from outlast.store.port import Store

REPEATS = 1
STORES = ("sqlite",)
SHORT = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
CALL_MS = 1_000
DEATHS = (0, 1, 2, 3)
LIVES_MAX = 40  # lease of the workers that one run kills
LOOK_S = 0.02
NS = 1_000_000_000
COUNTS = ("few", "many")  # 80 and 2,000 runs; fewer with --quick, so their numbers are printed, too
GOALS = (
    *(Goal(f"{count}_{deaths}_done_s", "s", digits=1) for count in COUNTS for deaths in DEATHS),
    *(
        Goal(f"{count}_{deaths}_taken_{figure}_s", "s", digits=2)
        for count in COUNTS
        for deaths in DEATHS[1:]
        for figure in ("p50", "p99")
    ),
    *(Goal(f"{count}_runs", "") for count in COUNTS),
    Goal("killer_deaths", ""),
    Goal("killer_poisoned_s", "s", digits=1),
    Goal("beside_killer_p50_s", "s", digits=1),
    Goal("beside_killer_last_s", "s", digits=1),
)


class Found(NamedTuple):
    """Seconds since the last kill, or since the start without one."""

    done: float
    taken: list[float]  # for each run of the killed worker, until its call was repeated


def measure(size: Size, setup: Setup) -> Figures:
    """Measure with leases of 3 s, and once with a run that kills its workers.

    `taken` is the time from the last kill to the next call of each run of the killed worker. `killer`: 80 runs, one of
    which kills each worker that makes its call.
    """
    live = TINY if size is Size.TINY else SHORT
    found: Figures = {}
    for name, count in zip(COUNTS, (size.of(80, 80, 3), size.of(2_000, 200, 3)), strict=True):
        found[f"{name}_runs"] = count
        for deaths in DEATHS if size is not Size.TINY else (0, 1):
            case = _killed(setup.engine, live, count, deaths)
            found[f"{name}_{deaths}_done_s"] = case.done
            if deaths:
                found[f"{name}_{deaths}_taken_p50_s"] = percentile(case.taken, 0.5)
                found[f"{name}_{deaths}_taken_p99_s"] = percentile(case.taken, 0.99)
    found |= _killer(setup.engine, live, size.of(80, 80, 2))
    return {goal.name: found.get(goal.name, NOT_MEASURED) for goal in GOALS}


class _Heard:
    """The lines of one worker process, read by a thread because a full pipe would block the worker."""

    def __init__(self, process: Process) -> None:
        self.lines: list[Line] = []
        self.process = process
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while True:
                self.lines.append(self.process.line())
        except EOFError:
            pass

    def called(self) -> dict[str, int]:
        """Return when each run's first call was made here."""
        return {line.run: line.at_ns for line in reversed(list(self.lines)) if not line.run.endswith("/end")}

    def ends(self) -> dict[str, int]:
        """Return when each run reached its last node here."""
        return {line.run.removesuffix("/end"): line.at_ns for line in list(self.lines) if line.run.endswith("/end")}

    def kill(self) -> int:
        """Kill the worker and return the time (monotonic ns)."""
        at = time.monotonic_ns()
        self.process.kill()
        self._thread.join()
        return at

    @property
    def is_over(self) -> bool:
        """True once the worker is dead and all its output was read."""
        return not self._thread.is_alive()


@contextmanager
def _worker(url: str, live: Liveness, count: int) -> Iterator[_Heard]:
    with worker_process(url, calling, live, count) as process:
        yield _Heard(process)


def _killed(engine: Engine, live: Liveness, count: int, deaths: int) -> Found:
    with engine.place() as place:
        asyncio.run(_start(place.url, count))
        since = time.monotonic_ns()
        ended: set[str] = set()
        held: set[str] = set()
        for _ in range(deaths):
            with _worker(place.url, live, count) as heard:
                while not heard.called():
                    time.sleep(LOOK_S)
                time.sleep(CALL_MS / SECOND / 2)
                since = heard.kill()
                ended |= heard.ends().keys()
            held = asyncio.run(_held(place.url))
        with _worker(place.url, live, count) as heard:
            while len(ended | heard.ends().keys()) < count:
                time.sleep(LOOK_S)
            done = time.monotonic_ns()
            called = heard.called()
    return Found((done - since) / NS, [(called[run] - since) / NS for run in held if run in called])


def _killer(engine: Engine, live: Liveness, count: int) -> Figures:
    """Run `count` runs, one of which kills its workers. A supervisor starts the next worker at once."""
    with engine.place() as place:
        asyncio.run(_start(place.url, count - 1))
        asyncio.run(_start(place.url, 1, first=count - 1, ms=-1))
        since = time.monotonic_ns()
        beside = _Beside(place.url, f"r{count - 1}", count - 1)
        deaths = 0
        while not beside.is_over:
            assert deaths < LIVES_MAX, "the killer is never found"
            with _worker(place.url, live, count) as heard:
                while not heard.is_over and not beside.is_over:
                    time.sleep(LOOK_S)
                    beside.look(heard)
                deaths += heard.is_over
                beside.look(heard)  # lines between the last read and the kill
    took = [(at - since) / NS for at in beside.ends.values()]
    return {
        "killer_deaths": deaths,
        "killer_poisoned_s": (beside.poisoned_at - since) / NS,
        "beside_killer_p50_s": percentile(took, 0.5),
        "beside_killer_last_s": max(took),
    }


class _Beside:
    """Progress of a trial: ends of the other runs, and the time at which the killer was quarantined."""

    def __init__(self, url: str, killer: str, others: int) -> None:
        self.ends: dict[str, int] = {}
        self.poisoned_at = 0
        self._url, self._killer, self._others = url, killer, others

    @property
    def is_over(self) -> bool:
        """True once the killer is quarantined and all other runs have ended."""
        return bool(self.poisoned_at) and len(self.ends) == self._others

    def look(self, heard: _Heard) -> None:
        """Read the worker's output, and check if the killer is quarantined."""
        self.ends = heard.ends() | self.ends
        if not self.poisoned_at and asyncio.run(_is_poisoned(self._url, self._killer)):
            self.poisoned_at = time.monotonic_ns()


async def _start(url: str, count: int, first: int = 0, ms: int = CALL_MS) -> None:
    async with opened(url) as store:
        await start_runs(store, calling, count, first=first, loops=ms)


async def _rows(store: Store) -> list[Run]:
    return await store.rows(RUN, (TENANT,))


async def _held(url: str) -> set[str]:
    async with opened(url) as store:
        return {row.run for row in await _rows(store) if row.owner not in ("", ENDED)}


async def _is_poisoned(url: str, run: str) -> bool:
    async with opened(url) as store:
        row = await store.load(RUN, (TENANT, run))
    assert row is not None
    return Reason.POISONED.value in row.attention_text
