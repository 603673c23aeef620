"""1, 50 and 1,000 child runs that end at once: commits and CPU of an end, and when their parent has seen all."""

import asyncio
import time
from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, counted
from bench.serving import ACTOR, CONCURRENCY, TENANT, opened, until_status
from outlast import Context, Workflow, workflow
from outlast.clocks import SystemClock, chance, process_id
from outlast.core.commit import Commit
from outlast.core.rows.effect_rows import EFFECT
from outlast.engine import commands
from outlast.engine.worker import WorkerProcess
from outlast.errors import StoreError
from outlast.store.port import Store

REPEATS = 2
STORES = ("sqlite", "postgres", "dynamodb")
COUNTS = {Size.FULL: (1, 50, 1_000), Size.QUICK: (1, 50), Size.TINY: (1, 3)}
PARENT = "parent"
AT_ONCE = 250  # starts of one visit


class Go(BaseModel):
    """Payload of the signal that ends a child."""


@workflow(name="bench-child")
async def child(ctx: Context, n: int) -> int:
    await ctx.receive("go", Go)
    return n


class Parent(BaseModel):
    count: int
    started: int = 0
    sum: int = 0


parent = Workflow("bench-parent", state=Parent)


@parent.node(start=True, max_visits=100)
async def begin(ctx: Context[Parent]) -> Literal["begin", "wait"]:
    state = ctx.state
    last = min(state.count, state.started + AT_ONCE)
    for n in range(state.started, last):
        await ctx.start(child, child.arguments(n), key=f"c{n}")
    state.started = last
    return "begin" if last < state.count else "wait"


@parent.node
async def wait(ctx: Context[Parent]) -> None:
    results = (ctx.child(f"c{n}").result() for n in range(ctx.state.count))
    ctx.state.sum = sum(await asyncio.gather(*results))


def _goals(size: Size) -> tuple[Goal, ...]:
    return tuple(
        goal
        for count in COUNTS[size]
        for goal in (
            Goal(f"seen_s_{counted(count)}", "s", digits=2),
            Goal(f"cpu_ms_each_{counted(count)}", "ms", digits=2),
            Goal(f"commits_each_{counted(count)}", "", digits=2),
            Goal(f"parks_refused_{counted(count)}", ""),
            Goal(f"claims_of_parent_{counted(count)}", ""),
        )
    )


GOALS_OF = {size: _goals(size) for size in Size}


def measure(size: Size, setup: Setup) -> Figures:
    """Measure a worker in this process."""
    found: Figures = {}
    for count in COUNTS[size]:
        with setup.engine.place() as place:
            found |= asyncio.run(_ends(place.url, count))
    return found


async def _ends(url: str, count: int) -> Figures:
    async with opened(url) as store:
        start = {"tenant": TENANT, "actor": ACTOR, "run": PARENT}
        await commands.start(store, parent, {"count": count}, **start)
        async with _Serving(store):
            await until_status(store, "waiting", count + 1)
        rows = await store.rows(EFFECT, (TENANT, PARENT))
        while len(rows) < count:
            rows += await store.rows(EFFECT, (TENANT, PARENT), after=rows[-1][: EFFECT.key])
        for row in rows:
            signal = {"tenant": TENANT, "run": row.external_id, "name": "go", "payload": {}, "actor": ACTOR}
            await commands.signal(store, **signal)
        watched = _Counted(store)
        begun, cpu = time.perf_counter(), time.process_time()
        async with _Serving(watched):
            await until_status(store, "completed", count + 1)
            seen, spent = time.perf_counter() - begun, time.process_time() - cpu
        assert watched.landed[f"{PARENT} complete"] == 1
        tail = counted(count)
        return {
            f"seen_s_{tail}": seen,
            f"cpu_ms_each_{tail}": spent * 1_000 / count,
            f"commits_each_{tail}": sum(watched.landed.values()) / count,
            f"parks_refused_{tail}": watched.refused[f"{PARENT} park"],
            f"claims_of_parent_{tail}": watched.claims,
        }


class _Counted:
    """A store that counts the commits of its worker by run and verb."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.landed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.claims = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, commit: Commit, **options: Any) -> Any:
        future = self._store.submit(commit, **options)
        future.add_done_callback(lambda done: self._count(commit, done))
        return future

    def _count(self, commit: Commit, done: "asyncio.Future[Any]") -> None:
        run, verb, *_ = commit.label.split()
        name = f"{run if run == PARENT else 'child'} {verb}"
        if not done.cancelled():
            (self.refused if isinstance(done.exception(), StoreError) else self.landed)[name] += 1

    async def take(self, *args: Any, **options: Any) -> Any:
        taken = await self._store.take(*args, **options)
        self.claims += sum(run.run == PARENT for run in taken)
        return taken


class _Serving:
    """A worker in this process for a block."""

    def __init__(self, store: Any) -> None:
        self._worker = WorkerProcess(
            store,
            [parent, child],
            worker=process_id("w"),
            clock=SystemClock(),
            chance=chance,
            concurrency=CONCURRENCY,
        )

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._worker.run())

    async def __aexit__(self, *_: object) -> None:
        self._worker.drain()
        await self._task
